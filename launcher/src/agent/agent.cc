#include "agent/agent.h"

#include <fmt/core.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "agent/course.h"
#include "agent/guard_orders.h"
#include "agent/metrics_server.h"
#include "agent/restart_commands.h"
#include "agent/stack_report.h"
#include "dtrun/base/check.h"
#include "dtrun/base/error.h"
#include "dtrun/base/event_loop.h"
#include "dtrun/base/log.h"
#include "dtrun/base/socket.h"
#include "meeting/job_seat.h"
#include "meeting/start_sign.h"
#include "output/notice.h"
#include "ranks/timing.h"
#include "verdict/error_files.h"
#include "verdict/job_report.h"

namespace dtrun::launcher {
namespace {

using base::Deadline;
using base::log::Component;
using course::Action;
using course::Event;
using course::Phase;
using rendezvous::rounds::JobFailure;
using How = rendezvous::rounds::WorkersGone::How;
namespace rounds = rendezvous::rounds;

// While a job waits to begin, tells the operator from time to time for what.
class WaitingNotice {
 public:
  /// @param text asked each time; empty: there is nothing to say
  WaitingNotice(base::EventLoop& loop, const LaunchPlan& plan, std::function<std::string()> text)
      : plan_(plan), text_(std::move(text)), timer_(loop) {}

  /// The waiting begins. A short wait is not reported.
  void start() { wait(kFirstPause); }
  void stop() { timer_.cancel(); }

 private:
  // Nodes that are started by one command come within the first; then after 6, 14, 30, 62 s and so
  // on.
  static constexpr Deadline::Duration kFirstPause = std::chrono::seconds(2);
  static constexpr Deadline::Duration kLongestPause = std::chrono::minutes(1);

  void wait(Deadline::Duration pause) {
    timer_.start(Deadline::after(pause), [this, pause] {
      if (const std::string text = text_(); !text.empty()) print_note(plan_, text);
      wait(std::min(2 * pause, kLongestPause));
    });
  }

  const LaunchPlan& plan_;
  std::function<std::string()> text_;
  base::Timer timer_;
};

// Whatever it hears becomes an event of the course (course.h), and it carries out the course's
// actions. What an action needs to know of its event the agent keeps until the next of its kind.
class Agent {
 public:
  Agent(const LaunchPlan& plan, const LogFolder& errors, JobEvents& events,
        base::UniqueFd metrics_listener, base::UniqueFd start_sign, GuardHandle& guard,
        std::vector<pid_t> not_ours)
      : plan_(plan),
        errors_(errors),
        events_(events),
        not_ours_(not_ours),
        guard_(guard),
        link_(guard.link()),
        link_watch_(loop_, link_.fd()),
        orders_(loop_, plan, guard, std::move(not_ours), [this] { before_pause(); }),
        waiting_(loop_, plan, [this] { return waiting_text(); }),
        error_files_(loop_),
        restart_commands_(loop_, plan),
        stacks_(loop_, plan),
        start_sign_(loop_, std::move(start_sign)),
        seat_(loop_, plan, start_sign_, seat_callbacks()),
        metrics_(loop_, std::move(metrics_listener), [this] { return events_.metrics().text(); }) {
    outcome_.local_ranks = plan.local_ranks;
    if (plan.options.adopted) outcome_.first_local_rank = plan.options.adopted->local_rank;
    outcome_.max_restarts = plan.options.rounds.max_restarts;
    course_.facts.only_round = plan.options.rounds.one_round();
    link_watch_.on_readable([this] { on_guard_message(); });
  }

  JobOutcome run() {
    signals_ = std::make_unique<base::SignalWatch>(loop_, plan_.options.stop.numbers(),
                                                   [this](int number) { on_signal(number); });
    start_sign_.when_given([this] { waiting_.start(); });
    start_sign_.when_refused([this] {
      wish_ = {.signal = SIGTERM};
      happen(Event::kStopWish);
    });
    seat_.begin();
    loop_.run();
    ignore_late_signals();
    return std::move(outcome_);
  }

 private:
  // The verdict stands, and only has to be reported. srun -K signals the other tasks just then.
  void ignore_late_signals() {
    sigset_t late;
    ::sigemptyset(&late);
    for (const SignalPolicy& policy : plan_.options.stop.signals) ::sigaddset(&late, policy.signal);
    // The watch restores the default actions, so no signal may come in between.
    ::sigprocmask(SIG_BLOCK, &late, nullptr);
    signals_.reset();
    for (const SignalPolicy& policy : plan_.options.stop.signals) ::signal(policy.signal, SIG_IGN);
  }

  // --- the course
  void happen(Event event) {
    const course::Row* const row = course::step(course_, event);
    DT_CHECK(row != nullptr);
    for (const std::optional<Action>& action : row->actions)
      if (action) carry_out(*action);
  }

  bool runs() const { return course_.phase == Phase::kRunning; }

  void carry_out(Action action) {
    switch (action) {
      case Action::kTellLastFailure:
        return print_round_failure(plan_, outcome_);
      case Action::kBegin:
        return begin_round();
      case Action::kStopRanks:
        return orders_.stop(stop_, {outcome_.stop_signal, stop_grace_});
      case Action::kPass:
        return orders_.pass(outcome_.round, wish_.signal, {});
      case Action::kDrain:
        return drain();
      case Action::kCollect:
        return error_files_.read(errors_, outcome_, [this] { happen(Event::kCollected); });
      case Action::kPrepare:
        return prepare();
      case Action::kEndCommands:
        return restart_commands_.cancel();
      case Action::kBeginStop:
        return begin_stop();
      case Action::kBeginLateStop:
        return begin_late_stop();
      case Action::kTellStop:
        return seat_.stop({wish_.signal});
      case Action::kTellReaderGone:
        return tell_reader_gone();
      case Action::kTellFailure:
        return tell_failure();
      case Action::kTellDrained:
        return tell_drained();
      case Action::kTellAllWell:
        return seat_.gone(How::kAllSucceeded);
      case Action::kTellGone:
        return seat_.gone(How::kOtherwise);
      case Action::kTellEnds:
        return seat_.gone(How::kOtherwise, worker_ends(outcome_, base::host_name()));
      case Action::kTellStuck:
        return tell_stuck();
      case Action::kTellUnfit:
        return drop_out(fault_);
      case Action::kTellMoreFollows:
        return orders_.tell_more_follows(outcome_.round);
      case Action::kFlush:
        return orders_.flush();
      case Action::kDismissGuard:
        return dismiss_guard();
      case Action::kLeave:
        return leave();
      case Action::kQuit:
        return loop_.stop();
    }
  }

  // --- from the seat, and to it
  JobSeatCallbacks seat_callbacks() {
    return {.on_start = [this](const rounds::Start& start) { on_start(start); },
            .on_stop = [this](const rounds::StopWorkers& stop) { on_stop(stop); },
            .on_finish = [this](const rounds::Finish& finish) { on_finish(finish); },
            .on_lease =
                [this](rounds::Moment until) {
                  if (runs()) orders_.renew_lease(until);
                },
            .on_worker_end = [this](const rounds::WorkerEnd& end) { outcome_.add(end); },
            .on_store_client = [this] { on_store_client(); }};
  }

  void on_start(const rounds::Start& start) {
    start_ = start;
    course_.facts.restarts_left = start.restart_count < outcome_.max_restarts;
    happen(Event::kStart);
  }

  void begin_round() {
    outcome_.begin_round(start_);
    events_.round_began(outcome_, start_.world_size);
    set_notice_node(plan_.shown_node(start_.group_rank));
    waiting_.stop();
    if (outcome_.timing.round_opened == 0) outcome_.timing.round_opened = now_ns();
    arrivals_.begin_round(start_.world_size);
    base::log::info(Component::kLauncher, "round {}: {} has ranks {} to {} of {}", start_.round,
                    this_node(), start_.base_rank, start_.base_rank + plan_.local_ranks - 1,
                    start_.world_size);
    orders_.start(start_, seat_.lease());
  }

  void on_stop(const rounds::StopWorkers& stop) {
    stop_ = stop;
    const bool another = stop.then == rounds::StopWorkers::Then::kAnotherRound;
    const bool in_peace = (stop.cause.by_operator() || stop.cause.is_nobodys()) &&
                          stop.urgency != rounds::StopUrgency::kNow;
    if (another) return happen(in_peace ? Event::kStopRoundInPeace : Event::kStopRound);
    happen(in_peace ? Event::kStopJobInPeace : Event::kStopJob);
  }

  void on_finish(const rounds::Finish& finish) {
    using Kind = rounds::Finish::Kind;
    if (finish.error) throw base::Error(*finish.error);
    if (finish.kind == Kind::kFailed) outcome_.end_job_for(finish.failure);
    if (finish.kind == Kind::kSucceeded) outcome_.forget_failures();
    happen(finish.kind == Kind::kSucceeded ? Event::kSucceeded : Event::kFinished);
  }

  // The guard has nothing to do any more, and ends while this agent does.
  void dismiss_guard() {
    link_watch_.on_readable(nullptr);
    tell_job_end(plan_, outcome_, link_);
    link_.end();
  }

  void leave() {
    const bool stopped = outcome_.stop_signal != 0;
    seat_.leave(stopped ? JobSeat::End::kByOperator : JobSeat::End::kWithJob,
                [this] { happen(Event::kFree); });
  }

  void tell_failure() {
    outcome_.own_failure = failure_;
    events_.failed(outcome_, failure_);
    seat_.failed(failure_);
  }

  void tell_stuck() {
    drop_out(fmt::format("{} of its processes did not die of SIGKILL within {}",
                         outcome_.group_end.unkillable,
                         base::format_duration(GuardOrders::kKillPatience)));
  }

  void drop_out(const std::string& why) {
    seat_.stuck(failure_here(fmt::format("{} drops out: {}", this_node(), why)));
  }

  // The node leaves as one that was stopped, with its ranks' own exit code.
  void tell_drained() {
    outcome_.drain_signal = drain_signal_;
    // The ranks did not end in time and had to be stopped.
    if (outcome_.group_end.yielded == 0) outcome_.stop_signal = drain_signal_;
    seat_.stop({drain_signal_, exit_code_of(outcome_, plan_.options.stop.exit)});
  }

  // --- from the operator
  void on_signal(int number) {
    const SignalPolicy* const policy = plan_.options.stop.policy_of(number);
    if (policy == nullptr) return;
    switch (policy->action) {
      case SignalPolicy::Action::kIgnore:
        return base::log::info(Component::kLauncher, "{} is ignored", base::signal_name(number));
      case SignalPolicy::Action::kPause:
        return orders_.pause();
      case SignalPolicy::Action::kForward:
        wish_ = *policy;
        return happen(Event::kForward);
      case SignalPolicy::Action::kDrain:
        wish_ = *policy;
        // A drain that gives no time is a stop.
        return happen(time_of_wish() > Deadline::Duration::zero() ? Event::kDrainWish
                                                                  : Event::kStopWish);
      case SignalPolicy::Action::kStop:
        wish_ = *policy;
        return happen(Event::kStopWish);
    }
  }

  Deadline::Duration time_of_wish() const {
    return wish_.time.count() < 0 ? plan_.options.stop.shutdown_timeout : wish_.time;
  }

  void drain() {
    drain_signal_ = wish_.signal;
    print_note(plan_, fmt::format("{}: the ranks of {} have {} to end by themselves",
                                  base::signal_name(drain_signal_), this_node(),
                                  base::format_duration(time_of_wish())));
    orders_.pass(outcome_.round, drain_signal_, time_of_wish());
  }

  void begin_stop() {
    outcome_.stop_signal = wish_.signal;
    take_grace();
    tell_how_to_hurry();
    log_stop();
  }

  // A failed job has not been stopped by an operator: srun -K signals the other tasks when the
  // first has reported the verdict, and this agent has the same verdict.
  void begin_late_stop() {
    take_grace();
    log_stop();
  }

  // The time of a drain that has become a stop is no grace.
  void take_grace() {
    stop_grace_ = wish_.action == SignalPolicy::Action::kStop ? wish_.time : SignalPolicy().time;
  }

  void log_stop() const {
    base::log::info(Component::kLauncher, "{}: the job is being stopped",
                    base::signal_name(wish_.signal));
  }

  // For an operator at a terminal.
  void tell_how_to_hurry() {
    const Deadline::Duration grace =
        stop_grace_.count() < 0 ? plan_.options.stop.shutdown_timeout : stop_grace_;
    if (!runs() || grace.count() == 0 || ::isatty(STDERR_FILENO) != 1) return;
    print_note(plan_, fmt::format("stopping, again to kill now: the ranks have {} to end",
                                  base::format_duration(grace)));
  }

  void before_pause() {
    if (runs() && plan_.options.rounds.max_nodes > 1) print_note(plan_, what_others_do());
  }

  // How the other nodes react while this agent sends nothing.
  std::string what_others_do() const {
    if (seat_.holds_up_all())
      return "the ranks of this node are stopped: those of the other nodes wait for them";
    return fmt::format(
        "the ranks of this node are stopped: the other nodes give it up when they have heard "
        "nothing of it for {}",
        base::format_duration(plan_.options.rounds.silence_window));
  }

  // --- from the ranks, where this agent has their store
  void on_store_client() {
    arrivals_.add(now_ns());
    outcome_.timing.first_at_store = arrivals_.first();
    outcome_.timing.all_at_store = arrivals_.all();
  }

  // --- from the guard
  void on_spawned(const Spawned& spawned, base::UniqueFd page) {
    events_.ranks_started(outcome_, spawned, std::move(page));
    Timing& timing = outcome_.timing;
    if (timing.last_spawned != 0) return;
    timing.spawn_began = spawned.began;
    timing.first_spawned = spawned.first;
    timing.last_spawned = spawned.last;
  }

  void on_guard_message() {
    std::optional<GuardMessage> message = link_.receive();
    if (!message) return on_guard_gone();
    switch (message->kind) {
      case MessageKind::kRankEnd:
        on_rank_end(message->as<RankEnd>(), message->text_after<RankEnd>());
        break;
      case MessageKind::kRankGone:
        events_.rank_gone(message->as<RankGone>());
        break;
      case MessageKind::kSpawned:
        on_spawned(message->as<Spawned>(), std::move(message->file));
        break;
      case MessageKind::kSpawnFailure:
        outcome_.spawn_failure = {message->as<SpawnFailure>(), message->text_after<SpawnFailure>()};
        fail(failure_here(outcome_.spawn_failure->text), Event::kFailure);
        break;
      case MessageKind::kFirstFailure:
        on_first_failure(message->as<FirstFailure>(), message->text_after<FirstFailure>());
        break;
      case MessageKind::kGroupEnd:
        outcome_.timing.ranks_ended = now_ns();
        on_group_end(message->as<GroupEnd>());
        break;
      case MessageKind::kNote:
        print_note(plan_, message->text_after<GuardNote>());
        if (const int rank = message->as<GuardNote>().stack_of; rank >= 0) stacks_.tell(rank);
        break;
      case MessageKind::kPaused:
        orders_.ranks_are_stopped();
        break;
      case MessageKind::kReaderGone:
        happen(Event::kReaderGone);
        break;
      case MessageKind::kFlushed:
        on_flushed(message->as<GroupEnd>());
        break;
      case MessageKind::kFenced:
        on_fenced();
        break;
      case MessageKind::kStart:
      case MessageKind::kStop:
      case MessageKind::kSignal:
      case MessageKind::kPause:
      case MessageKind::kResume:
      case MessageKind::kFlush:
      case MessageKind::kJobEnd:
      case MessageKind::kLease:
        break;
    }
  }

  // This process has not run, or has not reached the head. If the head has given it up meanwhile,
  // the head's message about that is on its way.
  void on_fenced() {
    const JobFailure failure = failure_here(fmt::format(
        "the guard of {} has ended its ranks, because other nodes may take their place: node 0 has "
        "heard nothing of this dtrun for {} (--rdzv_conf keep_alive_interval, "
        "keep_alive_max_attempt)",
        this_node(), base::format_duration(seat_.silence_window() * 9 / 10)));
    print_note(plan_, failure.text);
    fail(failure, Event::kFailure);
  }

  void on_rank_end(const RankEnd& end, const std::string& text) {
    const auto tail_bytes = std::min(static_cast<std::size_t>(end.tail_bytes), text.size());
    RankOutcome rank{.end = end};
    rank.error_tail = text.substr(0, tail_bytes);
    rank.operations = text.substr(tail_bytes);
    take_python_fault(rank);
    events_.rank_ended(outcome_, end);
    outcome_.ranks.push_back(std::move(rank));
  }

  void on_first_failure(const FirstFailure& first, const std::string& text) {
    const RankEnd& end = first.end;
    const auto tail_bytes = static_cast<std::size_t>(first.tail_bytes);
    const std::string cause = text.substr(std::min(tail_bytes, text.size()));
    if (!cause.empty()) {
      outcome_.missing_rank = end;
      outcome_.missing_cause = cause;
    }
    JobFailure failure = failure_of(outcome_, end, failure_here(cause));
    if (plan_.programs.size() > 1) name_program(plan_.program_name(end.local_rank), failure);
    failure.tail = end_of_text(text.substr(0, tail_bytes), kMostTailBytes);
    fail(std::move(failure), Event::kFailure);
  }

  void on_group_end(const GroupEnd& end) {
    orders_.ranks_are_gone();
    outcome_.group_end = end;
    waiting_.start();
    const bool well = end.success != 0;
    events_.round_ended(outcome_, well);
    if (well)
      base::log::info(Component::kLauncher, "all ranks of this node have ended well");
    else if (end.unkillable == 0)
      base::log::info(Component::kLauncher, "round {}: no live workers", end.round);
    course_.facts.stuck = end.unkillable > 0;
    course_.facts.yielded = end.yielded != 0;
    course_.facts.output_waits = end.output_pending != 0;
    happen(well ? Event::kEndedWell : Event::kEndedBadly);
  }

  void prepare() {
    const JobFailure& cause = course_.facts.failed_here ? *outcome_.own_failure : stop_.cause;
    restart_commands_.run({outcome_.restarts + 1, shown_node(), cause},
                          [this](const std::string& fault) {
                            fault_ = fault;
                            happen(fault.empty() ? Event::kPrepared : Event::kUnfit);
                          });
  }

  void on_flushed(const GroupEnd& end) {
    outcome_.group_end.output_pending = 0;
    outcome_.group_end.lost_output_bytes = end.lost_output_bytes;
    outcome_.group_end.output_error = end.output_error;
    outcome_.group_end.lost_file_bytes = end.lost_file_bytes;
    outcome_.group_end.file_error = end.file_error;
    happen(Event::kFlushed);
  }

  // Somebody has killed the guard: by itself it stays until this process ends.
  void on_guard_gone() {
    link_watch_.on_readable(nullptr);
    orders_.ranks_are_gone();
    const GuardEnd end = guard_.wait(not_ours_);
    outcome_.group_end.unkillable = end.unkillable;
    outcome_.guard_died = true;
    events_.guard_died(outcome_);
    outcome_.guard_end = end.status.describe();
    fail(failure_here(fmt::format("the guard of {} has died", this_node())),
         end.unkillable > 0 ? Event::kGuardGoneStuck : Event::kGuardGone);
  }

  void fail(JobFailure failure, Event event) {
    failure_ = std::move(failure);
    happen(event);
  }

  // The ranks' output is lost, and its reader has seen enough.
  void tell_reader_gone() {
    outcome_.stop_signal = SIGPIPE;
    print_error(
        "nobody reads the standard output any more: the job is stopped "
        "(--on-closed-output=ignore lets it run on)");
    seat_.stop({.signal = SIGPIPE,
                .why = fmt::format("nobody reads the standard output of dtrun on {} any more",
                                   this_node())});
  }

  std::string waiting_text() const {
    const bool waits = course_.phase == Phase::kWaiting || course_.phase == Phase::kCollecting ||
                       course_.phase == Phase::kPreparing;
    return waits ? seat_.waiting_text() : "";
  }

  JobFailure failure_here(std::string text) const {
    JobFailure failure;
    failure.node_rank = shown_node();
    failure.host = base::host_name();
    failure.text = std::move(text);
    return failure;
  }

  int shown_node() const {
    const int number = outcome_.group_rank;
    return number == rounds::kNoNodeRank ? number : plan_.shown_node(number);
  }

  // "node 1 (h1)"; its number may be given out only when all have joined.
  std::string this_node() const {
    rounds::Hello hello;
    hello.node_rank = shown_node();
    hello.host = base::host_name();
    return hello.describe();
  }

  const LaunchPlan& plan_;
  const LogFolder& errors_;
  JobEvents& events_;
  std::vector<pid_t> not_ours_;
  GuardHandle& guard_;
  base::EventLoop loop_;
  GuardLink& link_;
  base::FdWatch link_watch_;
  GuardOrders orders_;
  WaitingNotice waiting_;
  ErrorFiles error_files_;
  RestartCommands restart_commands_;
  StackReport stacks_;
  JobOutcome outcome_;
  StartSign start_sign_;
  JobSeat seat_;
  MetricsServer metrics_;
  std::unique_ptr<base::SignalWatch> signals_;
  StoreArrivals arrivals_;
  course::State course_;
  // Of the event that came last:
  rounds::Start start_;
  rounds::StopWorkers stop_;
  SignalPolicy wish_;                  // the operator's
  JobFailure failure_;                 // this node's
  std::string fault_;                  // of this node, which makes it unfit
  int drain_signal_ = 0;               // the signal after which this node's ranks end by themselves
  Deadline::Duration stop_grace_{-1};  // of the signal that stopped the job
};

}  // namespace

JobOutcome run_agent(const LaunchPlan& plan, const LogFolder& errors, JobEvents& events,
                     base::UniqueFd metrics_listener, base::UniqueFd start_sign, GuardHandle& guard,
                     std::vector<pid_t> not_ours) {
  return Agent(plan, errors, events, std::move(metrics_listener), std::move(start_sign), guard,
               std::move(not_ours))
      .run();
}

}  // namespace dtrun::launcher
