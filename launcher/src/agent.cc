#include "agent.h"

#include <fmt/core.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "dtrun/base/error.h"
#include "dtrun/base/event_loop.h"
#include "dtrun/base/exit_status.h"
#include "dtrun/base/log.h"
#include "dtrun/base/process_tree.h"
#include "dtrun/base/socket.h"
#include "meeting_point.h"
#include "node_roster.h"
#include "nodes.h"

namespace dtrun::launcher {
namespace {

using base::Deadline;
using base::log::Component;

constexpr auto kKillPatience = std::chrono::seconds(10);

// SIGHUP that was ignored when dtrun started (nohup) stays so.
std::vector<int> stop_signals() {
  std::vector<int> result = {SIGINT, SIGTERM, SIGQUIT};
  struct sigaction action {};
  ::sigaction(SIGHUP, nullptr, &action);
  if (action.sa_handler != SIG_IGN) result.push_back(SIGHUP);
  return result;
}

class Agent {
 public:
  Agent(const LaunchPlan& plan, GuardHandle& guard, std::vector<pid_t> not_ours)
      : plan_(plan),
        node_rank_(plan.options.node_rank),
        not_ours_(std::move(not_ours)),
        guard_(guard.pid),
        link_(guard.link),
        link_watch_(loop_, link_.fd()),
        meeting_point_(make_meeting_point(loop_, plan)) {
    link_watch_.on_readable([this] { on_guard_message(); });
  }

  JobOutcome run() {
    signals_ = std::make_unique<base::SignalWatch>(loop_, stop_signals(),
                                                   [this](int number) { on_signal(number); });
    meeting_point_->find([this](Head head) { on_head(std::move(head)); });
    loop_.run();
    return std::move(outcome_);
  }

 private:
  void on_head(Head head) {
    if (ended_ || outcome_.stop_signal != 0) return;
    tell_who_hosts(head);
    nodes_ = make_nodes(loop_, plan_, std::move(head), callbacks());
    nodes_->join();
  }

  void tell_who_hosts(const Head& head) const {
    if (head.reason.empty()) return;
    if (plan_.options.rounds.max_nodes == 1)
      return base::log::info(Component::kLauncher, "{}", who_hosts(head));
    fmt::print(stderr, "dtrun: {} {}\n", base::host_name(), who_hosts(head));
    std::fflush(stderr);
  }

  NodesCallbacks callbacks() {
    NodesCallbacks callbacks;
    callbacks.on_ready = [this](const StartOrder& order) {
      if (ended_) return;
      outcome_.round = order.round;
      outcome_.base_rank = order.base_rank;
      node_rank_ = order.group_rank;
      running_ = true;
      link_.send(MessageKind::kStart, order);
    };
    callbacks.on_failure = [this](const JobFailure& failure) { on_failure_elsewhere(failure); };
    callbacks.on_release = [this] { loop_.stop(); };
    return callbacks;
  }

  void on_signal(int number) {
    StopOrder order;
    order.signal = number;
    if (outcome_.stop_signal != 0) {
      order.urgency = Urgency::kNow;
      if (ended_) loop_.stop();  // only other nodes are waited for
    } else {
      outcome_.stop_signal = number;
      base::log::info(Component::kLauncher, "{}: the job is being stopped",
                      base::signal_name(number));
      JobFailure failure = failure_here();
      failure.signal = number;
      failure.text =
          fmt::format("dtrun on {} was stopped by {}", this_node(), base::signal_name(number));
      if (nodes_) nodes_->tell_failure(failure);
    }
    stop_ranks(order);
  }

  void stop_ranks(StopOrder order) {
    if (!running_) return loop_.post([this] { end_here(); });
    order.round = outcome_.round;
    link_.send(MessageKind::kStop, order);
  }

  void end_here() {
    if (ended_) return;
    ended_ = true;
    if (!nodes_) return loop_.stop();  // nobody has been found yet
    nodes_->tell_done();
  }

  JobFailure failure_here() const {
    JobFailure failure;
    failure.node_rank = node_rank_.value_or(kNoNodeRank);
    failure.host = base::host_name();
    return failure;
  }

  // Its number may be given out only when all have joined.
  std::string this_node() const {
    return node_rank_ ? fmt::format("node {} ({})", *node_rank_, base::host_name())
                      : base::host_name();
  }

  void on_failure_elsewhere(const JobFailure& failure) {
    outcome_.failed_elsewhere = failure;
    StopOrder order;
    order.failed_rank = failure.rank;
    failure.describe().copy(order.cause, sizeof order.cause - 1);
    stop_ranks(order);
  }

  void on_guard_message() {
    const std::optional<GuardMessage> message = link_.receive();
    if (!message) return on_guard_gone();
    switch (message->kind) {
      case MessageKind::kRankEnd:
        outcome_.ranks.push_back({message->as<RankEnd>(), message->text_after<RankEnd>(), "", {}});
        break;
      case MessageKind::kSpawnFailure:
        outcome_.spawn_failure = {message->as<SpawnFailure>(), message->text_after<SpawnFailure>()};
        tell_failure(outcome_.spawn_failure->text);
        break;
      case MessageKind::kFirstFailure:
        on_first_failure(message->as<RankEnd>(), message->text_after<RankEnd>());
        break;
      case MessageKind::kGroupEnd:
        outcome_.group_end = message->as<GroupEnd>();
        running_ = false;
        end_here();
        break;
      case MessageKind::kStart:
      case MessageKind::kStop:
        break;
    }
  }

  void on_first_failure(const RankEnd& end, const std::string& cause) {
    if (!cause.empty()) {
      outcome_.missing_rank = end;
      outcome_.missing_cause = cause;
    }
    JobFailure failure = failure_here();
    failure.rank = outcome_.base_rank + end.local_rank;
    failure.code = end.code;
    failure.signal = end.signal;
    failure.pid = end.pid;
    failure.text = cause;
    nodes_->tell_failure(failure);
  }

  void tell_failure(const std::string& text) {
    JobFailure failure = failure_here();
    failure.code = 1;
    failure.text = text;
    if (nodes_) nodes_->tell_failure(failure);
  }

  // It was killed: by itself it stays until this process ends.
  void on_guard_gone() {
    link_watch_.on_readable(nullptr);
    int status = 0;
    while (::waitpid(guard_, &status, 0) < 0 && errno == EINTR) {
    }
    if (!ended_) {
      // The ranks have died with their parent; what they had started has come to this process.
      outcome_.group_end.unkillable =
          base::kill_descendants(not_ours_, Deadline::after(kKillPatience));
      outcome_.guard_died = true;
      outcome_.guard_end = base::ExitStatus::from_wait_status(status).describe();
      tell_failure(fmt::format("the guard of {} has died", this_node()));
    }
    running_ = false;
    end_here();
  }

  const LaunchPlan& plan_;
  std::optional<int> node_rank_;
  std::vector<pid_t> not_ours_;
  pid_t guard_;
  base::EventLoop loop_;
  GuardLink& link_;
  base::FdWatch link_watch_;
  JobOutcome outcome_;
  std::unique_ptr<MeetingPoint> meeting_point_;
  std::unique_ptr<Nodes> nodes_;
  std::unique_ptr<base::SignalWatch> signals_;
  bool running_ = false;  // the guard has a round's ranks
  bool ended_ = false;    // there will be no round any more on this node
};

}  // namespace

JobOutcome run_agent(const LaunchPlan& plan, GuardHandle& guard, std::vector<pid_t> not_ours) {
  return Agent(plan, guard, std::move(not_ours)).run();
}

}  // namespace dtrun::launcher
