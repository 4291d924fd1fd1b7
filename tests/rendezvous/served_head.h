// A HeadService on a thread of its own, and agents that join it over real sockets, all of these on
// one loop of the test's thread. An agent's workers exist in its record only: they are started and
// stopped at once, and end when the test says so.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <future>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "dtrun/base/event_loop.h"
#include "dtrun/base/socket.h"
#include "dtrun/rendezvous/head_service.h"
#include "dtrun/rendezvous/membership.h"
#include "dtrun/rendezvous/round_clock.h"
#include "dtrun/rendezvous/tcp_store_server.h"

namespace dtrun::rendezvous {

inline base::Deadline patience() {
  return base::Deadline::after(std::chrono::seconds(60));
}

inline rounds::RoundSettings job_of(int min_nodes, int max_nodes, int max_restarts = 0) {
  rounds::RoundSettings settings;
  settings.min_nodes = min_nodes;
  settings.max_nodes = max_nodes;
  settings.max_restarts = max_restarts;
  settings.last_call_timeout = std::chrono::milliseconds(50);
  settings.close_timeout = std::chrono::milliseconds(200);
  return settings;
}

class ServedHead {
 public:
  explicit ServedHead(const rounds::RoundSettings& settings, HeadServiceOptions options = {})
      : ServedHead(rounds::make_head(settings, "job", rounds::read_clock()), std::move(options)) {}
  explicit ServedHead(rounds::HeadState head, HeadServiceOptions options = {},
                      decltype(HeadServiceCallbacks::before_round) before_round = {},
                      decltype(HeadServiceCallbacks::before_close) before_close = {}) {
    if (options.endpoint_host.empty()) options.endpoint_host = "n0";
    if (options.listening_at.empty()) options.listening_at = "127.0.0.1";
    // The door that production has, too: a store's server, which hands agents over.
    TcpStoreServerOptions door;
    door.legacy_numbering = LegacyNumbering::kNone;
    door.handshake_timeout = options.newcomer_time;
    door.max_newcomers = options.max_newcomers;
    door.on_agent = [this](base::UniqueFd connection, const std::string& bytes) {
      service_->adopt(std::move(connection), bytes);
    };
    door.part_with_agent_since = [this](base::Deadline::Clock::time_point moment) {
      return service_->part_with_one_since(moment);
    };
    service_.emplace(loop_, std::move(head), std::move(options),
                     HeadServiceCallbacks{[this](const rounds::Note& note) { add(note.text); },
                                          [this] { ended_.set_value(); }, std::move(before_round),
                                          std::move(before_close)});
    door_.emplace(loop_, base::listen_tcp("127.0.0.1", 0), std::move(door));
    port_ = door_->port();
    thread_ = std::thread([this] { loop_.run(); });
  }
  ~ServedHead() { stop(); }

  std::uint16_t port() const { return port_; }
  HeadPlace place() const { return {"127.0.0.1", port_, {}}; }
  void stop() {
    loop_.stop();
    if (thread_.joinable()) thread_.join();
    door_.reset();
    service_.reset();
  }
  bool ended() {
    return ended_.get_future().wait_for(std::chrono::seconds(60)) == std::future_status::ready;
  }
  /// On the head's thread.
  template <typename Function>
  auto ask(Function function) {
    std::packaged_task<decltype(function(*service_))()> task([&] { return function(*service_); });
    loop_.post([&task] { task(); });
    return task.get_future().get();
  }
  std::vector<std::string> notes() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return notes_;
  }

 private:
  void add(const std::string& text) {
    const std::lock_guard<std::mutex> lock(mutex_);
    notes_.push_back(text);
  }

  base::EventLoop loop_;
  std::optional<HeadService> service_;
  std::optional<TcpStoreServer> door_;
  std::uint16_t port_ = 0;
  std::promise<void> ended_;
  std::mutex mutex_;
  std::vector<std::string> notes_;
  std::thread thread_;
};

struct TestAgentOptions {
  Proof proof{};
  rounds::AfterLoss after_loss = rounds::AfterLoss::kEnd;
  int node_rank = rounds::kNoNodeRank;
  int local_ranks = 2;
  std::string run_id = "job";
  rounds::Moment join_timeout = std::chrono::seconds(60);
  rounds::Moment read_timeout = std::chrono::seconds(60);
};

class TestAgent {
 public:
  TestAgent(base::EventLoop& loop, const std::string& host, const rounds::RoundSettings& job,
            TestAgentOptions options = {})
      : membership_(
            std::in_place, loop, settings(host, job, options), options.proof,
            MembershipCallbacks{
                [this](const rounds::OpenStore& open) { open_store(open); },
                [this](const rounds::StartWorkers& start) { starts.push_back(start.start); },
                [this](const rounds::StopWorkers& stop) { stop_workers(stop); },
                [this](const rounds::Finish& finish) {
                  finished = finish;
                  membership_.reset();
                },
                [this](const rounds::MemberNote& note) { notes.push_back(note.text); }}) {}

  void begin(HeadPlace place) { membership_->begin(std::move(place)); }
  void succeed() {
    membership_->tell(
        rounds::WorkersGone{starts.back().round, rounds::WorkersGone::How::kAllSucceeded});
  }
  void fail(int code) {
    rounds::JobFailure failure;
    failure.rank = starts.back().base_rank;
    failure.code = code;
    failure.host = "h";
    const int round = starts.back().round;
    membership_->tell(rounds::WorkersFailed{round, failure});
    membership_->tell(rounds::WorkersGone{round, rounds::WorkersGone::How::kOtherwise});
  }
  void interrupt() { membership_->tell(rounds::OperatorStop{2}); }
  /// As if its process died.
  void die() { membership_.reset(); }
  Membership& membership() { return *membership_; }
  int round() const { return starts.empty() ? rounds::kNoRound : starts.back().round; }

  std::vector<rounds::Start> starts;
  std::vector<rounds::StopWorkers> stops;
  std::vector<std::string> notes;
  std::optional<rounds::Finish> finished;
  int stores = 0;

 private:
  static rounds::MemberSettings settings(const std::string& host, const rounds::RoundSettings& job,
                                         const TestAgentOptions& options) {
    static std::uint64_t agents = 0;
    rounds::MemberSettings settings;
    settings.hello.run_id = options.run_id;
    settings.hello.host = host;
    settings.hello.node_rank = options.node_rank;
    settings.hello.local_ranks = options.local_ranks;
    settings.hello.min_nodes = job.min_nodes;
    settings.hello.max_nodes = job.max_nodes;
    settings.hello.agent = ++agents;
    settings.after_loss = options.after_loss;
    settings.join_timeout = options.join_timeout;
    settings.read_timeout = options.read_timeout;
    settings.head_name = "n0:29500";
    return settings;
  }
  void open_store(const rounds::OpenStore& open) {
    ++stores;
    membership_->tell(rounds::StoreOpened{open.round, "", 1000 + stores});
  }
  void stop_workers(const rounds::StopWorkers& stop) {
    stops.push_back(stop);
    membership_->tell(rounds::WorkersGone{stop.round, rounds::WorkersGone::How::kOtherwise});
  }

  std::optional<Membership> membership_;
};

/// Runs the loop until that is so, which may be for what happens on another thread. False: it does
/// not become so.
template <typename Predicate>
bool run_until(base::EventLoop& loop, Predicate predicate) {
  const base::Deadline limit = patience();
  while (!predicate()) {
    if (limit.expired()) return false;
    loop.run_some(base::Deadline::after(std::chrono::milliseconds(20)));
  }
  return true;
}

/// Agents of one job.
class TestAgents {
 public:
  explicit TestAgents(const rounds::RoundSettings& job) : job_(job) {}

  TestAgent& add(const std::string& host, HeadPlace place, TestAgentOptions options = {}) {
    TestAgent& agent = agents_.emplace_back(loop_, host, job_, std::move(options));
    agent.begin(std::move(place));
    return agent;
  }
  template <typename Predicate>
  bool until(Predicate predicate) {
    return run_until(loop_, predicate);
  }
  bool until_round(int round, const std::vector<TestAgent*>& of) {
    return until([&] {
      for (const TestAgent* agent : of)
        if (agent->round() < round) return false;
      return true;
    });
  }
  bool until_finished(const std::vector<TestAgent*>& of) {
    return until([&] {
      for (const TestAgent* agent : of)
        if (!agent->finished) return false;
      return true;
    });
  }
  base::EventLoop& loop() { return loop_; }

 private:
  base::EventLoop loop_;
  rounds::RoundSettings job_;
  std::list<TestAgent> agents_;
};

}  // namespace dtrun::rendezvous
