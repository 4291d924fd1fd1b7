#include "meeting/elected_meeting_point.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "dtrun/base/background_call.h"
#include "dtrun/base/error.h"
#include "dtrun/base/log.h"
#include "dtrun/base/socket.h"
#include "dtrun/rendezvous/etcd_election.h"
#include "dtrun/rendezvous/verdict_record.h"
#include "meeting/endpoint_facts.h"
#include "options/port_range.h"

namespace dtrun::launcher {
namespace {

using base::Deadline;
using base::Error;
using base::ErrorCode;
using rendezvous::ElectedHead;
using rendezvous::EtcdElection;
using std::chrono::seconds;

// An etcd that was named may be about to start, so it is waited for. If none was named there may be
// none at all.
constexpr auto kEtcdPatience = seconds(15), kUnnamedPatience = seconds(2);
// A member of etcd that is lost costs 1.5 s.
constexpr auto kRecordPatience = seconds(5);

// The lease of a silent head ends as the membership of a silent agent does; etcd knows seconds.
seconds lease_of(const Options& options) {
  constexpr seconds kShortest{2};
  return std::max(kShortest, std::chrono::ceil<seconds>(options.rounds.silence_window));
}

rendezvous::EtcdOptions etcd_options(const Options& options) {
  rendezvous::EtcdOptions etcd;
  etcd.endpoints = options.etcd.endpoints;
  etcd.protocol = options.etcd.protocol == EtcdProtocol::kHttps
                      ? rendezvous::EtcdOptions::Protocol::https
                      : rendezvous::EtcdOptions::Protocol::http;
  etcd.ca_cert = options.etcd.authority_file;
  etcd.ssl_cert = options.etcd.certificate_file;
  etcd.ssl_cert_key = options.etcd.key_file;
  return etcd;
}

class ElectedMeetingPoint : public MeetingPoint {
 public:
  ElectedMeetingPoint(base::EventLoop& loop, const LaunchPlan& plan)
      : loop_(loop), plan_(plan), patience_(loop) {}

  void find(Found found) override {
    found_ = std::move(found);
    call_ = std::make_unique<base::BackgroundCall>(loop_, [this, options = plan_.options] {
      const OwnAddress own = choose_own_address(options, gather_own_facts(options));
      const auto listener =
          std::make_shared<base::UniqueFd>(listen_in_range(own.listen_address, options.ports));
      return [this, own, listener] {
        own_ = own;
        listener_ = std::move(*listener);
        campaign();
      };
    });
  }

  void on_lost(Lost lost) override { lost_ = std::move(lost); }

  void record_round(int round, base::EventLoop::Callback done) override {
    election_->record_round(round + 1, std::move(done));
  }

  void on_over(Over over) override { over_ = std::move(over); }

  void record_verdict(const Verdict& verdict, base::EventLoop::Callback done) override {
    if (closing_ == Closing::kWritten) return;  // by another
    recorded_ = std::move(done);
    order_close(verdict);
    // The head stays for close_timeout: time must be left to tell it.
    const auto patience =
        std::min<Deadline::Duration>(kRecordPatience, plan_.options.rounds.close_timeout / 2);
    patience_.start(Deadline::after(patience), [this, patience] { tell_unrecorded(patience); });
  }

  void close(const Verdict& verdict, base::EventLoop::Callback done) override {
    if (closing_ == Closing::kWritten) return done();
    closed_ = std::move(done);
    if (closing_ == Closing::kNotAsked) order_close(verdict);
    patience_.start(Deadline::after(plan_.options.rounds.close_timeout), [this] {
      give_up_closing(trouble_ ? trouble_->what() : "it has not answered");
    });
  }

 private:
  enum class Closing { kNotAsked, kAsked, kWritten };

  void order_close(const Verdict& verdict) {
    closing_ = Closing::kAsked;
    asked_ = rendezvous::write_verdict(verdict);
    election_->close(asked_, [this] { end_recording(); });
  }

  void end_recording() {
    closing_ = Closing::kWritten;
    if (const auto done = std::exchange(recorded_, nullptr)) {
      patience_.cancel();
      done();
    }
    end_closing();
  }

  // A finished job does not wait for an etcd that is away.
  void tell_unrecorded(Deadline::Duration waited) {
    const auto done = std::exchange(recorded_, nullptr);
    if (!done) return;
    base::log::warning(
        base::log::Component::kLauncher,
        "the verdict on job '{}' could not be written to etcd at {} in {}; the nodes are told "
        "nevertheless: if this agent dies before all of them are, the others may begin another "
        "round",
        plan_.run_id, etcd_name(), base::format_duration(waited));
    done();
  }

  void campaign() {
    rendezvous::EtcdElectionSettings settings;
    settings.etcd = etcd_options(plan_.options);
    settings.run_id = plan_.run_id;
    settings.node = fmt::format("{}.{}", base::host_name(), ::getpid());
    settings.address = {own_.host, base::local_port(listener_.get())};
    settings.ttl = lease_of(plan_.options);
    rendezvous::EtcdElectionCallbacks callbacks;
    callbacks.on_leader = [this](const ElectedHead& head) { on_leader(head); };
    callbacks.on_stepped_down = [this](const rendezvous::SteppedDown& down) {
      on_stepped_down();
      if (down.cause == rendezvous::SteppedDown::Cause::replaced) give_up_closing(down.why);
      if (lost_) lost_(down.why);
    };
    callbacks.on_closed = [this](const std::string& verdict) { on_closed(verdict); };
    callbacks.on_trouble = [this](const Error& error) { on_trouble(error); };
    election_ = std::make_unique<EtcdElection>(loop_, std::move(settings), std::move(callbacks));
    const auto patience =
        std::min<Deadline::Duration>(plan_.options.etcd.named ? kEtcdPatience : kUnnamedPatience,
                                     plan_.options.rounds.join_timeout);
    patience_.start(Deadline::after(patience), [this, patience] { give_up(patience); });
  }

  void end_closing() {
    const auto done = std::exchange(closed_, nullptr);
    if (!done) return;
    patience_.cancel();
    done();
  }

  // The job is over all the same.
  void give_up_closing(const std::string& why) {
    if (!closed_) return;
    base::log::warning(base::log::Component::kLauncher,
                       "the end of job '{}' could not be written to etcd at {}: {}; a dtrun that "
                       "comes later would begin it anew",
                       plan_.run_id, etcd_name(), why);
    end_closing();
  }

  [[noreturn]] void give_up(Deadline::Duration waited) const {
    throw Error(ErrorCode::kConnection,
                fmt::format("etcd at {} has elected no head for {}", etcd_name(),
                            base::format_duration(waited)),
                trouble_ ? trouble_->why() : "it does not answer",
                plan_.options.etcd.named
                    ? "see that etcd 3.4 or newer runs there, and that --rdzv_endpoint and "
                      "protocol= in --rdzv_conf are right"
                    : "say where etcd is: --rdzv_endpoint=HOST:PORT; without it, it is looked for "
                      "here");
  }

  std::string etcd_name() const {
    return base::HostPort{plan_.options.master_addr, plan_.options.master_port}.to_string();
  }

  void on_leader(const ElectedHead& elected) {
    if (!closed_) patience_.cancel();
    known_ = true;
    Head head;
    head.host = elected.address.host;
    head.port = *elected.address.port;
    head.patience = election_patience(plan_.options);
    if (!plan_.options.local_addr.empty()) head.local_address = own_.listen_address;
    head.reason = fmt::format("etcd at {} has elected {}", etcd_name(), elected.node);
    if (elected.who == ElectedHead::Who::self) {
      // A copy: this agent may be elected again.
      head.listener = base::UniqueFd(::fcntl(listener_.get(), F_DUPFD_CLOEXEC, 0));
      if (!head.listener) throw base::system_error("copy a listening socket");
      head.last_round = static_cast<int>(elected.last_round) - 1;
    }
    found_(std::move(head));
  }

  void on_closed(const std::string& text) {
    const rendezvous::VerdictRecord record = rendezvous::read_verdict(text);
    if (!known_)
      throw Error(ErrorCode::kUsage, fmt::format("job '{}' is over", plan_.run_id), record.words,
                  "start another one with another --rdzv_id");
    if (text == asked_) {
      end_recording();  // it may be that etcd's own answer was lost
    } else {
      closing_ = Closing::kWritten;
      recorded_ = nullptr;
      if (lost_) lost_("a head before it has judged: " + record.words);
      end_closing();
    }
    if (over_ && record.verdict) over_(*record.verdict);
  }

  // The verdict is another head's now, or this agent's when it is elected again.
  void on_stepped_down() {
    recorded_ = nullptr;
    if (closed_) return;
    closing_ = Closing::kNotAsked;
    asked_.clear();
  }

  void on_trouble(const Error& error) {
    if (error.code() != ErrorCode::kConnection) throw Error(error);
    base::log::warning(base::log::Component::kLauncher, "{}", error.what());
    trouble_ = error;
  }

  base::EventLoop& loop_;
  const LaunchPlan& plan_;
  base::Timer patience_;
  Found found_;
  Lost lost_;
  OwnAddress own_;
  base::UniqueFd listener_;
  std::unique_ptr<EtcdElection> election_;
  std::unique_ptr<base::BackgroundCall> call_;
  std::optional<Error> trouble_;  // the last
  bool known_ = false;            // somebody has been elected
  Over over_;
  Closing closing_ = Closing::kNotAsked;
  std::string asked_;                   // to be written
  base::EventLoop::Callback recorded_;  // waits for the verdict to be written, or its time
  base::EventLoop::Callback closed_;    // waits for the end to be written
};

}  // namespace

std::unique_ptr<MeetingPoint> make_elected_meeting_point(base::EventLoop& loop,
                                                         const LaunchPlan& plan) {
  return std::make_unique<ElectedMeetingPoint>(loop, plan);
}

std::chrono::nanoseconds election_patience(const Options& options) {
  constexpr auto kSlack = seconds(10);
  return 2 * lease_of(options) + kSlack;
}

}  // namespace dtrun::launcher
