#include "agent.h"

#include <fmt/core.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <optional>

#include "dtrun/base/error.h"
#include "dtrun/base/event_loop.h"
#include "dtrun/base/exit_status.h"
#include "dtrun/base/log.h"
#include "dtrun/base/process_tree.h"
#include "dtrun/base/socket.h"
#include "dtrun/rendezvous/membership.h"
#include "elected_meeting_point.h"
#include "endpoint.h"
#include "job_report.h"
#include "meeting_point.h"
#include "round_store.h"

namespace dtrun::launcher {
namespace {

using base::Deadline;
using base::log::Component;
using rendezvous::rounds::JobFailure;
namespace rounds = rendezvous::rounds;

constexpr auto kKillPatience = std::chrono::seconds(10);

// SIGHUP that was ignored when dtrun started (nohup) stays so.
std::vector<int> stop_signals() {
  std::vector<int> result = {SIGINT, SIGTERM, SIGQUIT};
  struct sigaction action {};
  ::sigaction(SIGHUP, nullptr, &action);
  if (action.sa_handler != SIG_IGN) result.push_back(SIGHUP);
  return result;
}

std::uint64_t new_agent_id() {
  std::uint64_t id = 0;
  if (::getrandom(&id, sizeof id, 0) != sizeof id) throw base::system_error("get random bytes");
  return id;
}

rounds::MemberSettings member_settings(const LaunchPlan& plan, const Head& head) {
  const Options& options = plan.options;
  rounds::MemberSettings settings;
  settings.hello.run_id = plan.run_id;
  settings.hello.host = base::host_name();
  settings.hello.role = options.role;
  settings.hello.node_rank = options.node_rank.value_or(rounds::kNoNodeRank);
  settings.hello.local_ranks = plan.local_ranks;
  settings.hello.min_nodes = options.rounds.min_nodes;
  settings.hello.max_nodes = options.rounds.max_nodes;
  settings.hello.agent = new_agent_id();
  // The head's own word comes first where it is here.
  constexpr auto kHeadStart = std::chrono::seconds(60);
  settings.join_timeout =
      options.rounds.join_timeout + (head.is_here() ? kHeadStart : kHeadStart * 0);
  settings.reach_timeout = head.patience;
  settings.read_timeout = options.answer_timeout;
  const bool another_may_follow = options.rendezvous == Rendezvous::kEtcd;
  settings.rejoin_timeout =
      another_may_follow ? election_patience(options) : options.rounds.silence_window;
  settings.after_loss = another_may_follow           ? rounds::AfterLoss::kRejoin
                        : options.rounds.one_round() ? rounds::AfterLoss::kEnd
                                                     : rounds::AfterLoss::kMakeRoom;
  settings.head_name = head.name();
  settings.why_not_me = head.reason;
  return settings;
}

class Agent {
 public:
  Agent(const LaunchPlan& plan, const ErrorFolder& errors, GuardHandle& guard,
        std::vector<pid_t> not_ours)
      : plan_(plan),
        errors_(errors),
        not_ours_(std::move(not_ours)),
        guard_(guard.pid),
        link_(guard.link),
        link_watch_(loop_, link_.fd()),
        meeting_point_(make_meeting_point(loop_, plan)),
        store_(loop_, plan) {
    outcome_.max_restarts = plan.options.rounds.max_restarts;
    link_watch_.on_readable([this] { on_guard_message(); });
    meeting_point_->on_lost([this](const std::string& why) { on_head_lost(why); });
  }

  JobOutcome run() {
    signals_ = std::make_unique<base::SignalWatch>(loop_, stop_signals(),
                                                   [this](int number) { on_signal(number); });
    meeting_point_->find([this](Head head) { on_head(std::move(head)); });
    loop_.run();
    return std::move(outcome_);
  }

 private:
  // Again where another one is elected.
  void on_head(Head head) {
    if (finished_) return;
    tell_who_hosts(head);
    endpoint_.reset();
    head_host_ = head.host;
    local_address_ = head.local_address;
    const rounds::MemberSettings settings = member_settings(plan_, head);
    rendezvous::HeadPlace place;
    place.host = head.addresses.size() == 1 ? head.addresses.front() : head.host;
    // A head that is not here any more is to be found by the next election.
    place.port = head.is_here() && head.last_round ? 0 : head.port;
    if (head.is_here()) {
      endpoint_ = std::make_unique<Endpoint>(
          loop_, plan_, std::move(head), [this] { go_if_all_is_over(); },
          [this](int round, base::EventLoop::Callback go) {
            meeting_point_->record_round(round, std::move(go));
          });
      place.own = endpoint_->own_agent();
    }
    if (membership_) return membership_->move(std::move(place), settings.head_name);
    membership_ =
        std::make_unique<rendezvous::Membership>(loop_, settings, plan_.proof, callbacks());
    membership_->begin(std::move(place));
  }

  // This agent's own ranks end with the rounds that it was the head of, as all others do.
  void on_head_lost(const std::string& why) {
    if (finished_ || !endpoint_ || endpoint_->closed()) return;
    base::log::warning(Component::kLauncher, "this agent is the head no more: {}", why);
    endpoint_->step_down();
    endpoint_.reset();
  }

  void tell_who_hosts(const Head& head) const {
    if (head.reason.empty()) return;
    if (plan_.options.rounds.max_nodes == 1)
      return base::log::info(Component::kLauncher, "{}", who_hosts(head));
    fmt::print(stderr, "dtrun: {} {}\n", base::host_name(), who_hosts(head));
    std::fflush(stderr);
  }

  // --- the rounds' word
  rendezvous::MembershipCallbacks callbacks() {
    rendezvous::MembershipCallbacks callbacks;
    callbacks.on_open_store = [this](const rounds::OpenStore& what) { open_store(what.round); };
    callbacks.on_start_workers = [this](const rounds::StartWorkers& what) {
      start_workers(what.start);
    };
    callbacks.on_stop_workers = [this](const rounds::StopWorkers& what) { stop_workers(what); };
    callbacks.on_finish = [this](const rounds::Finish& what) { finish(what); };
    callbacks.on_note = [](const rounds::MemberNote& note) {
      fmt::print(stderr, "dtrun: {}\n", note.text);
    };
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

  void start_workers(const rounds::Start& start) {
    if (outcome_.guard_died) return loop_.stop();  // nobody is here to start them
    if (outcome_.group_end.unkillable > 0) return drop_out(start.round);
    if (failed_here_) print_round_failure(errors_, outcome_);
    failed_here_ = false;
    outcome_.begin_round(start);
    running_ = true;
    StartOrder order;
    order.round = start.round;
    order.group_rank = start.group_rank;
    order.group_world_size = start.group_world_size;
    order.base_rank = start.base_rank;
    order.world_size = start.world_size;
    order.role_base_rank = start.role_base_rank;
    order.role_world_size = start.role_world_size;
    order.restart_count = start.restart_count;
    order.max_restarts = plan_.options.rounds.max_restarts;
    order.master_port = static_cast<std::uint16_t>(start.master_port);
    base::log::info(Component::kLauncher, "round {}: {} has ranks {} to {} of {}", start.round,
                    this_node(), start.base_rank, start.base_rank + plan_.local_ranks - 1,
                    start.world_size);
    start.master_address.copy(order.master_addr, sizeof order.master_addr - 1);
    link_.send(MessageKind::kStart, order);
  }

  void stop_workers(const rounds::StopWorkers& stop) {
    if (!running_) return;  // their end is being told
    StopOrder order;
    order.round = stop.round;
    order.signal = stop.signal;
    order.urgency = stop.urgency == rounds::StopUrgency::kNow ? Urgency::kNow : Urgency::kClean;
    order.afterwards = afterwards();
    order.failed_rank = stop.cause.rank;
    if (outcome_.stop_signal == 0) stop.cause.describe().copy(order.cause, sizeof order.cause - 1);
    link_.send(MessageKind::kStop, order);
  }

  Afterwards afterwards() const {
    return plan_.options.rounds.one_round() ? Afterwards::kNothing : Afterwards::kAnotherRound;
  }

  void finish(const rounds::Finish& finish) {
    if (finish.error) throw base::Error(*finish.error);
    finished_ = true;
    if (finish.kind == rounds::Finish::Kind::kFailed) outcome_.end_job_for(finish.failure);
    if (outcome_.group_end.output_pending != 0 && !outcome_.guard_died) {
      link_.send(MessageKind::kFlush, FlushOrder{});
    } else {
      go_if_all_is_over();
    }
  }

  void go_if_all_is_over() {
    const bool flushed = outcome_.group_end.output_pending == 0 || outcome_.guard_died;
    if (!finished_ || !flushed) return;
    // Who ends before the job does leaves the others to the next head.
    const bool another_may_follow = plan_.options.rendezvous == Rendezvous::kEtcd;
    if (endpoint_ && !endpoint_->ended() && another_may_follow && !endpoint_->job_is_over())
      endpoint_->step_down();
    if (endpoint_ && !endpoint_->ended()) return;
    if (!endpoint_ || !endpoint_->closed()) return loop_.stop();
    meeting_point_->close(outcome_.failed_elsewhere ? outcome_.failed_elsewhere->describe()
                          : outcome_.own_failure    ? outcome_.own_failure->describe()
                                                    : "it has ended well",
                          [this] { loop_.stop(); });
  }

  // --- the operator's word
  void on_signal(int number) {
    if (outcome_.stop_signal == 0) {
      outcome_.stop_signal = number;
      base::log::info(Component::kLauncher, "{}: the job is being stopped",
                      base::signal_name(number));
    } else if (finished_) {
      return loop_.stop();  // only other nodes are waited for, or a reader of the output
    }
    if (membership_) return membership_->tell(rounds::OperatorStop{number});
    finished_ = true;  // no head has been found yet
    loop_.stop();
  }

  // --- the guard's word
  void on_guard_message() {
    const std::optional<GuardMessage> message = link_.receive();
    if (!message) return on_guard_gone();
    switch (message->kind) {
      case MessageKind::kRankEnd:
        outcome_.ranks.push_back({message->as<RankEnd>(), message->text_after<RankEnd>(), "", {}});
        break;
      case MessageKind::kSpawnFailure:
        outcome_.spawn_failure = {message->as<SpawnFailure>(), message->text_after<SpawnFailure>()};
        fail_here(failure_here(outcome_.spawn_failure->text));
        break;
      case MessageKind::kFirstFailure:
        on_first_failure(message->as<RankEnd>(), message->text_after<RankEnd>());
        break;
      case MessageKind::kGroupEnd:
        on_group_end(message->as<GroupEnd>());
        break;
      case MessageKind::kFlushed:
        on_flushed(message->as<GroupEnd>());
        break;
      case MessageKind::kStart:
      case MessageKind::kStop:
      case MessageKind::kFlush:
        break;
    }
  }

  void on_first_failure(const RankEnd& end, const std::string& cause) {
    if (!cause.empty()) {
      outcome_.missing_rank = end;
      outcome_.missing_cause = cause;
    }
    JobFailure failure = failure_here(cause);
    failure.rank = outcome_.base_rank + end.local_rank;
    failure.code = end.code;
    failure.signal = end.signal;
    failure.pid = end.pid;
    fail_here(failure);
  }

  void on_group_end(const GroupEnd& end) {
    outcome_.group_end = end;
    running_ = false;
    const bool well = end.success != 0;
    if (!well && end.unkillable > 0) return drop_out(end.round);
    if (well)
      base::log::info(Component::kLauncher, "all ranks of this node have ended well");
    else
      base::log::info(Component::kLauncher, "round {}: no live workers", end.round);
    using How = rounds::WorkersGone::How;
    membership_->tell(rounds::WorkersGone{end.round, well ? How::kAllSucceeded : How::kOtherwise});
  }

  // Two rounds must not run side by side, and this one's ranks cannot be ended.
  void drop_out(int round) {
    const int left = outcome_.group_end.unkillable;
    membership_->tell(rounds::WorkersStuck{
        round, failure_here(fmt::format("{} drops out: {} of its processes did not die of SIGKILL "
                                        "within {}",
                                        this_node(), left, base::format_duration(kKillPatience)))});
  }

  void on_flushed(const GroupEnd& end) {
    outcome_.group_end.output_pending = 0;
    outcome_.group_end.lost_output_bytes = end.lost_output_bytes;
    outcome_.group_end.output_error = end.output_error;
    go_if_all_is_over();
  }

  // It was killed: by itself it stays until this process ends.
  void on_guard_gone() {
    link_watch_.on_readable(nullptr);
    int status = 0;
    while (::waitpid(guard_, &status, 0) < 0 && errno == EINTR) {
    }
    // The ranks have died with their parent; what they had started has come to this process.
    outcome_.group_end.unkillable =
        base::kill_descendants(not_ours_, Deadline::after(kKillPatience));
    outcome_.guard_died = true;
    outcome_.guard_end = base::ExitStatus::from_wait_status(status).describe();
    if (!running_) return go_if_all_is_over();
    running_ = false;
    fail_here(failure_here(fmt::format("the guard of {} has died", this_node())));
    if (outcome_.group_end.unkillable > 0) return drop_out(outcome_.round);
    membership_->tell(rounds::WorkersGone{outcome_.round, rounds::WorkersGone::How::kOtherwise});
  }

  void fail_here(const JobFailure& failure) {
    failed_here_ = true;
    outcome_.own_failure = failure;
    membership_->tell(rounds::WorkersFailed{outcome_.round, failure});
    // It ends by itself; this says what comes then.
    if (!running_ || afterwards() == Afterwards::kNothing) return;
    StopOrder order;
    order.round = outcome_.round;
    order.afterwards = afterwards();
    link_.send(MessageKind::kStop, order);
  }

  JobFailure failure_here(std::string text) const {
    JobFailure failure;
    failure.node_rank = outcome_.group_rank;
    failure.host = base::host_name();
    failure.text = std::move(text);
    return failure;
  }

  // "node 1 (h1)"; its number may be given out only when all have joined.
  std::string this_node() const {
    rounds::Hello hello;
    hello.node_rank = outcome_.group_rank;
    hello.host = base::host_name();
    return hello.describe();
  }

  const LaunchPlan& plan_;
  const ErrorFolder& errors_;
  std::vector<pid_t> not_ours_;
  pid_t guard_;
  base::EventLoop loop_;
  GuardLink& link_;
  base::FdWatch link_watch_;
  JobOutcome outcome_;
  std::unique_ptr<MeetingPoint> meeting_point_;
  std::string head_host_;
  std::string local_address_;  // of --local_addr
  RoundStore store_;
  std::unique_ptr<Endpoint> endpoint_;  // none: another agent hosts
  std::unique_ptr<rendezvous::Membership> membership_;
  std::unique_ptr<base::SignalWatch> signals_;
  bool running_ = false;  // the guard has a round's ranks
  bool failed_here_ = false;
  bool finished_ = false;  // there will be no round any more on this node
};

}  // namespace

JobOutcome run_agent(const LaunchPlan& plan, const ErrorFolder& errors, GuardHandle& guard,
                     std::vector<pid_t> not_ours) {
  return Agent(plan, errors, guard, std::move(not_ours)).run();
}

}  // namespace dtrun::launcher
