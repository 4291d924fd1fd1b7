#include "meeting/job_seat.h"

#include <fmt/core.h>

#include <optional>
#include <utility>

#include "dtrun/base/error.h"
#include "dtrun/base/log.h"
#include "dtrun/base/socket.h"
#include "dtrun/rendezvous/membership.h"
#include "meeting/endpoint.h"
#include "meeting/meeting_point.h"
#include "meeting/member_settings.h"
#include "meeting/round_store.h"
#include "output/notice.h"

namespace dtrun::launcher {

using base::log::Component;
namespace rounds = rendezvous::rounds;

class JobSeat::Impl {
 public:
  Impl(base::EventLoop& loop, const LaunchPlan& plan, StartSign& sign, JobSeatCallbacks callbacks)
      : loop_(loop),
        plan_(plan),
        sign_(sign),
        callbacks_(std::move(callbacks)),
        meeting_point_(make_meeting_point(loop, plan)),
        store_(loop, plan, callbacks_.on_store_client) {
    meeting_point_->on_lost([this](const std::string& why) { on_head_lost(why); });
    meeting_point_->on_over([this](const rounds::Close& verdict) { on_over(verdict); });
  }

  void begin() {
    meeting_point_->find([this](Head head) { on_head(std::move(head)); });
  }

  void tell(const rounds::MemberEvent& event) { membership_->tell(event); }
  int round() const { return round_; }

  void stop(const rounds::OperatorStop& stop) {
    if (membership_) return membership_->tell(stop);
    finish({rounds::Finish::Kind::kStopped, {}, {}});  // no head has been found yet
  }

  void leave(End end, base::EventLoop::Callback done) {
    end_ = end;
    left_ = std::move(done);
    leave_if_free();
  }

  // Without the head no node goes on, unless etcd elects another head.
  rounds::Moment lease() { return holds_up_all() ? rounds::Moment::max() : membership_->lease(); }

  rounds::Moment silence_window() const { return membership_->state().silence_window; }
  bool holds_up_all() const { return endpoint_ && !another_may_follow(); }

  // With --adopt there is one agent per rank: the head's agent speaks for all.
  std::string waiting_text() const {
    if (endpoint_) return endpoint_->waiting_text();
    if (plan_.options.adopted) return "";
    return membership_ ? rounds::waiting_text(membership_->state())
                       : "waiting for the node that is to host the job";
  }

 private:
  bool another_may_follow() const { return plan_.options.rendezvous == Rendezvous::kEtcd; }

  // --- from the meeting point
  // Called again when another head is elected.
  void on_head(Head head) {
    if (finished_) return;
    tell_who_hosts(head);
    endpoint_.reset();
    head_host_ = head.host;
    local_address_ = head.local_address;
    const rounds::MemberSettings settings = member_settings(plan_, head);
    rendezvous::HeadPlace place;
    place.host = head.addresses.size() == 1 ? head.addresses.front() : head.host;
    // Port 0: a head that steps down is found by the next election, not at this port.
    place.port = head.is_here() && head.last_round ? 0 : head.port;
    if (head.is_here()) {
      endpoint_ = std::make_unique<Endpoint>(
          loop_, plan_, std::move(head), [this] { leave_if_free(); },
          [this](int round, base::EventLoop::Callback go) {
            sign_.when_given(
                [this, round, go = std::move(go)] { meeting_point_->record_round(round, go); });
          },
          [this](const rounds::Close& verdict, base::EventLoop::Callback go) {
            meeting_point_->record_verdict(verdict, std::move(go));
          },
          callbacks_.on_worker_end, callbacks_.on_store_client);
      place.own = endpoint_->own_agent();
    }
    if (membership_) return membership_->move(std::move(place), settings.head_name);
    membership_ = std::make_unique<rendezvous::Membership>(loop_, settings, plan_.proof,
                                                           membership_callbacks());
    membership_->begin(std::move(place));
  }

  // This agent's own ranks end with the rounds of which it was the head, as all others do.
  void on_head_lost(const std::string& why) {
    if (finished_ || !endpoint_ || endpoint_->closed()) return;
    base::log::warning(Component::kLauncher, "this agent is the head no more: {}", why);
    endpoint_->step_down();
    endpoint_.reset();
  }

  // A head has recorded its verdict, and may die before it tells it.
  void on_over(const rounds::Close& verdict) {
    if (!finished_ && membership_) membership_->tell(rounds::VerdictLeft{verdict});
  }

  void tell_who_hosts(const Head& head) const {
    if (head.reason.empty()) return;
    // With --adopt there is one agent per rank: the head's agent speaks for all.
    const bool speaks =
        plan_.options.rounds.max_nodes > 1 && (head.is_here() || !plan_.options.adopted);
    if (!speaks) return base::log::info(Component::kLauncher, "{}", who_hosts(head));
    print_note(plan_, fmt::format("{} {}", base::host_name(), who_hosts(head)));
  }

  // --- from the rounds
  rendezvous::MembershipCallbacks membership_callbacks() {
    rendezvous::MembershipCallbacks callbacks;
    callbacks.on_open_store = [this](const rounds::OpenStore& what) { open_store(what.round); };
    callbacks.on_start_workers = [this](const rounds::StartWorkers& what) {
      round_ = what.start.round;
      callbacks_.on_start(what.start);
    };
    callbacks.on_stop_workers = callbacks_.on_stop;
    callbacks.on_finish = [this](const rounds::Finish& what) { finish(what); };
    callbacks.on_note = [this](const rounds::MemberNote& note) { print_note(plan_, note.text); };
    callbacks.on_lease = [this](rounds::Moment) { callbacks_.on_lease(lease()); };
    return callbacks;
  }

  void open_store(int round) {
    try {
      membership_->tell(store_.open(round, endpoint_.get(),
                                    {head_host_, membership_->reached_from(), local_address_}));
    } catch (const base::Error& error) {
      membership_->tell(rounds::StoreFailed{round, error.what()});
    }
  }

  void finish(const rounds::Finish& finish) {
    finished_ = true;
    callbacks_.on_finish(finish);
  }

  // --- the end
  void leave_if_free() {
    if (!left_) return;
    const bool hosts = endpoint_ && !endpoint_->ended();
    // An agent that ends before the job leaves the others to the next head.
    if (hosts && another_may_follow() && !endpoint_->job_is_over()) endpoint_->step_down();
    // Stopped before the start of a job of one node: the head would wait for a node for ever.
    const bool nobody_else = plan_.options.rounds.max_nodes == 1 && end_ == End::kByOperator;
    if (endpoint_ && !endpoint_->ended() && nobody_else) return be_free();
    if (endpoint_ && !endpoint_->ended()) return;
    if (!endpoint_ || !endpoint_->closed()) return be_free();
    meeting_point_->close(endpoint_->verdict(), [this] { be_free(); });
  }

  void be_free() {
    if (const auto done = std::exchange(left_, nullptr)) done();
  }

  base::EventLoop& loop_;
  const LaunchPlan& plan_;
  StartSign& sign_;
  const JobSeatCallbacks callbacks_;
  std::unique_ptr<MeetingPoint> meeting_point_;
  std::string head_host_;
  std::string local_address_;  // of --local_addr
  RoundStore store_;
  std::unique_ptr<Endpoint> endpoint_;  // none: another agent hosts
  std::unique_ptr<rendezvous::Membership> membership_;
  int round_ = rounds::kNoRound;  // that was started last
  bool finished_ = false;         // there will be no round any more on this node
  End end_ = End::kWithJob;
  base::EventLoop::Callback left_;  // waits until nobody needs what is hosted here
};

JobSeat::JobSeat(base::EventLoop& loop, const LaunchPlan& plan, StartSign& sign,
                 JobSeatCallbacks callbacks)
    : impl_(std::make_unique<Impl>(loop, plan, sign, std::move(callbacks))) {}

JobSeat::~JobSeat() = default;

void JobSeat::begin() {
  impl_->begin();
}

void JobSeat::failed(const rounds::JobFailure& failure) {
  impl_->tell(rounds::WorkersFailed{impl_->round(), failure});
}

void JobSeat::gone(rounds::WorkersGone::How how, std::vector<rounds::WorkerEnd> ends) {
  impl_->tell(rounds::WorkersGone{impl_->round(), how, std::move(ends)});
}

void JobSeat::stuck(const rounds::JobFailure& failure) {
  impl_->tell(rounds::WorkersStuck{impl_->round(), failure});
}

void JobSeat::stop(const rounds::OperatorStop& stop) {
  impl_->stop(stop);
}

void JobSeat::leave(End end, base::EventLoop::Callback done) {
  impl_->leave(end, std::move(done));
}

rounds::Moment JobSeat::lease() {
  return impl_->lease();
}

rounds::Moment JobSeat::silence_window() const {
  return impl_->silence_window();
}

bool JobSeat::holds_up_all() const {
  return impl_->holds_up_all();
}

std::string JobSeat::waiting_text() const {
  return impl_->waiting_text();
}

}  // namespace dtrun::launcher
