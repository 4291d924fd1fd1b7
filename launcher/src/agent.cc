#include "agent.h"

#include <fmt/core.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <utility>

#include "dtrun/base/error.h"
#include "dtrun/base/event_loop.h"
#include "dtrun/base/exit_status.h"
#include "dtrun/base/log.h"
#include "dtrun/base/process_tree.h"
#include "dtrun/base/socket.h"
#include "job_pause.h"
#include "meeting/job_seat.h"
#include "meeting/waiting_notice.h"
#include "output/notice.h"
#include "ranks/timing.h"
#include "restart_commands.h"
#include "verdict/error_files.h"
#include "verdict/job_report.h"

namespace dtrun::launcher {
namespace {

using base::Deadline;
using base::log::Component;
using rendezvous::rounds::JobFailure;
using How = rendezvous::rounds::WorkersGone::How;
namespace rounds = rendezvous::rounds;

constexpr auto kKillPatience = std::chrono::seconds(10);

class Agent {
 public:
  Agent(const LaunchPlan& plan, const LogFolder& errors, EventFile& events, GuardHandle& guard,
        std::vector<pid_t> not_ours)
      : plan_(plan),
        errors_(errors),
        events_(events),
        not_ours_(std::move(not_ours)),
        guard_(guard),
        link_(guard.link()),
        link_watch_(loop_, link_.fd()),
        answer_(loop_),
        pause_(
            loop_, link_, [this] { before_pause(); }, [this] { after_pause(); }),
        waiting_(loop_, plan, [this] { return waiting_text(); }),
        error_files_(loop_),
        restart_commands_(loop_, plan),
        seat_(loop_, plan, seat_callbacks()) {
    outcome_.local_ranks = plan.local_ranks;
    if (plan.options.adopted) outcome_.first_local_rank = plan.options.adopted->local_rank;
    outcome_.max_restarts = plan.options.rounds.max_restarts;
    link_watch_.on_readable([this] { on_guard_message(); });
  }

  JobOutcome run() {
    signals_ = std::make_unique<base::SignalWatch>(loop_, plan_.options.stop.numbers(),
                                                   [this](int number) { on_signal(number); });
    waiting_.start();
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

  JobSeatCallbacks seat_callbacks() {
    return {.on_start = [this](const rounds::Start& start) { start_workers(start); },
            .on_stop = [this](const rounds::StopWorkers& stop) { stop_workers(stop); },
            .on_finish = [this](const rounds::Finish& what) { finish(what); },
            .on_lease =
                [this](rounds::Moment until) {
                  // If a debugger holds the guard, this loop must not wait for it.
                  if (running_) link_.send_if_room(MessageKind::kLease, Lease{until});
                },
            .on_worker_end = [this](const rounds::WorkerEnd& end) { outcome_.add(end); },
            .on_store_client = [this] { on_store_client(); }};
  }

  // --- from the seat
  void start_workers(const rounds::Start& start) {
    if (outcome_.guard_died) return loop_.stop();  // nobody is here to start them
    if (outcome_.group_end.unkillable > 0) return drop_out();
    if (drain_signal_ != 0) return stay_drained();
    if (failed_here_) print_round_failure(plan_, outcome_);
    failed_here_ = failing_ = another_round_ = false;
    outcome_.begin_round(start);
    events_.round_began(outcome_, start.world_size);
    set_notice_node(plan_.shown_node(start.group_rank));
    running_ = true;
    waiting_.stop();
    if (outcome_.timing.round_opened == 0) outcome_.timing.round_opened = now_ns();
    arrivals_.begin_round(start.world_size);
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
    const bool another = start.restart_count < order.max_restarts;
    order.after_failure = another ? StopCause::kRestart : StopCause::kFailure;
    order.master_port = static_cast<std::uint16_t>(start.master_port);
    order.lease = seat_.lease();
    base::log::info(Component::kLauncher, "round {}: {} has ranks {} to {} of {}", start.round,
                    this_node(), start.base_rank, start.base_rank + plan_.local_ranks - 1,
                    start.world_size);
    start.master_address.copy(order.master_addr, sizeof order.master_addr - 1);
    link_.send(MessageKind::kStart, order);
  }

  void stop_workers(const rounds::StopWorkers& stop) {
    another_round_ = stop.then == rounds::StopWorkers::Then::kAnotherRound;
    failing_ = !another_round_;
    restart_cause_ = stop.cause;
    if (failing_) restart_commands_.cancel();
    if (!running_) return;  // their end is being reported
    const bool urgent = stop.urgency == rounds::StopUrgency::kNow;
    // During a drain the ranks end as they were asked to, and another node that has ended does not
    // cut them short. But after the loss of a node they would only wait for it.
    const bool in_peace = stop.cause.by_operator() || stop.cause.is_nobodys();
    if (drain_signal_ != 0 && outcome_.stop_signal == 0 && in_peace && !urgent) return;
    StopOrder order;
    order.round = stop.round;
    // The ranks' own outputs are not closed, and they have handlers for SIGTERM.
    order.signal = stop.signal == SIGPIPE ? SIGTERM : stop.signal;
    order.urgency = urgent ? Urgency::kNow : Urgency::kClean;
    order.why = cause_of(stop);
    order.grace = stop_grace_;
    order.afterwards = afterwards();
    order.failed_rank = stop.cause.rank;
    if (outcome_.stop_signal == 0) stop.cause.describe().copy(order.cause, sizeof order.cause - 1);
    link_.send(MessageKind::kStop, order);
    await_answer(order);
  }

  StopCause cause_of(const rounds::StopWorkers& stop) const {
    const bool by_operator_elsewhere = stop.cause.rank < 0 && stop.cause.signal != 0;
    if (outcome_.stop_signal != 0 || by_operator_elsewhere) return StopCause::kOperator;
    const bool restart = stop.then == rounds::StopWorkers::Then::kAnotherRound;
    return restart ? StopCause::kRestart : StopCause::kFailure;
  }

  Afterwards afterwards() const {
    return plan_.options.rounds.one_round() ? Afterwards::kNothing : Afterwards::kAnotherRound;
  }

  // The keeper resumes a guard that was stopped, but a debugger or a freezer may hold it. It gets
  // all the time that it may need for ranks and output.
  void await_answer(const StopOrder& order) {
    const StopOptions& stop = plan_.options.stop;
    Deadline::Duration time = kKillPatience + kKillPatience / 2;
    if (order.urgency == Urgency::kClean)
      time += std::max({order.grace, stop.restart_timeout, stop.failure_timeout}) +
              stop.shutdown_timeout;
    await_answer_for(time);
  }

  void await_answer_for(Deadline::Duration time) {
    answer_time_ = time;
    answer_.start(Deadline::after(time), [this, time] {
      answer_time_.reset();
      print_note(plan_, fmt::format("the guard has not ended the ranks in {}: it is killed",
                                    base::format_duration(time)));
      if (!guard_.kill()) base::kill_descendants(not_ours_, Deadline::after(kKillPatience));
    });
  }

  void await_no_answer() {
    answer_time_.reset();
    answer_.cancel();
  }

  void finish(const rounds::Finish& finish) {
    if (finish.error) throw base::Error(*finish.error);
    finished_ = true;
    restart_commands_.cancel();
    if (finish.kind == rounds::Finish::Kind::kFailed) outcome_.end_job_for(finish.failure);
    if (finish.kind == rounds::Finish::Kind::kSucceeded) outcome_.forget_failures();
    if (outcome_.group_end.output_pending != 0 && !outcome_.guard_died) {
      link_.send(MessageKind::kFlush, FlushOrder{});
    } else {
      if (finish.kind == rounds::Finish::Kind::kSucceeded) dismiss_guard();
      go_if_all_is_over();
    }
  }

  // The guard has nothing to do any more, and ends while this agent does. Not after a failure: the
  // guard removes the error files, which have to be read first.
  void dismiss_guard() {
    link_watch_.on_readable(nullptr);
    tell_job_end(plan_, outcome_, link_);
    link_.end();
  }

  void go_if_all_is_over() {
    const bool flushed = outcome_.group_end.output_pending == 0 || outcome_.guard_died;
    if (!finished_ || !flushed) return;
    if (std::exchange(leaving_, true)) return;
    const bool stopped = outcome_.stop_signal != 0;
    seat_.leave(stopped ? JobSeat::End::kByOperator : JobSeat::End::kWithJob,
                [this] { loop_.stop(); });
  }

  // --- from the operator
  void on_signal(int number) {
    const SignalPolicy* const policy = plan_.options.stop.policy_of(number);
    if (policy == nullptr) return;
    switch (policy->action) {
      case SignalPolicy::Action::kIgnore:
        return base::log::info(Component::kLauncher, "{} is ignored", base::signal_name(number));
      case SignalPolicy::Action::kForward:
        return pass_signal(number, {});
      case SignalPolicy::Action::kDrain:
        return drain(*policy);
      case SignalPolicy::Action::kPause:
        return pause_.begin();
      case SignalPolicy::Action::kStop:
        return stop(*policy);
    }
  }

  void before_pause() {
    if (running_ && plan_.options.rounds.max_nodes > 1) print_note(plan_, what_others_do());
  }

  void after_pause() {
    // The guard may have answered long ago: its answer is read before this time is over.
    if (answer_time_) await_answer_for(*answer_time_);
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

  void pass_signal(int number, Deadline::Duration yield_time) {
    if (!running_) return;
    base::log::info(Component::kLauncher, "{} is passed on to the ranks",
                    base::signal_name(number));
    link_.send(MessageKind::kSignal, SignalOrder{outcome_.round, number, yield_time});
  }

  // A second drain, or one without ranks, is a stop.
  void drain(const SignalPolicy& policy) {
    if (!running_ || failed_here_ || drain_signal_ != 0 || outcome_.stop_signal != 0)
      return stop({policy.signal, SignalPolicy::Action::kStop});
    const StopOptions& options = plan_.options.stop;
    const Deadline::Duration time =
        policy.time.count() < 0 ? options.shutdown_timeout : policy.time;
    if (time <= Deadline::Duration::zero())
      return stop({policy.signal, SignalPolicy::Action::kStop});
    drain_signal_ = policy.signal;
    print_note(plan_, fmt::format("{}: the ranks of {} have {} to end by themselves",
                                  base::signal_name(policy.signal), this_node(),
                                  base::format_duration(time)));
    pass_signal(policy.signal, time);
  }

  void stop(const SignalPolicy& policy) {
    if (outcome_.stop_signal == 0 && !late_stop_) {
      // A failed job has not been stopped by an operator: srun -K signals the other tasks when the
      // first has reported the verdict, and this agent has the same verdict.
      late_stop_ = finished_ || failing_;
      if (!late_stop_) outcome_.stop_signal = policy.signal;
      stop_grace_ = policy.time;
      restart_commands_.cancel();
      tell_how_to_hurry();
      base::log::info(Component::kLauncher, "{}: the job is being stopped",
                      base::signal_name(policy.signal));
    } else if (finished_) {
      return loop_.stop();  // only other nodes are waited for, or a reader of the output
    }
    seat_.stop({policy.signal});
  }

  // For an operator at a terminal.
  void tell_how_to_hurry() {
    const Deadline::Duration grace =
        stop_grace_.count() < 0 ? plan_.options.stop.shutdown_timeout : stop_grace_;
    if (!running_ || late_stop_ || grace.count() == 0 || ::isatty(STDERR_FILENO) != 1) return;
    print_note(plan_, fmt::format("stopping, again to kill now: the ranks have {} to end",
                                  base::format_duration(grace)));
  }

  // The ranks' output is lost, and its reader has seen enough. A job that is being stopped, or is
  // over, is not stopped once more.
  void on_reader_gone() {
    if (outcome_.stop_signal != 0 || failing_ || finished_) return;
    outcome_.stop_signal = SIGPIPE;
    print_error(
        "nobody reads the standard output any more: the job is stopped "
        "(--on-closed-output=ignore lets it run on)");
    seat_.stop({.signal = SIGPIPE,
                .why = fmt::format("nobody reads the standard output of dtrun on {} any more",
                                   this_node())});
  }

  // --- from the ranks, where this agent has their store
  void on_store_client() {
    arrivals_.add(now_ns());
    outcome_.timing.first_at_store = arrivals_.first();
    outcome_.timing.all_at_store = arrivals_.all();
  }

  // --- from the guard
  void on_spawned(const Spawned& spawned) {
    Timing& timing = outcome_.timing;
    if (timing.last_spawned != 0) return;
    timing.spawn_began = spawned.began;
    timing.first_spawned = spawned.first;
    timing.last_spawned = spawned.last;
  }

  void on_guard_message() {
    const std::optional<GuardMessage> message = link_.receive();
    if (!message) return on_guard_gone();
    switch (message->kind) {
      case MessageKind::kRankEnd:
        on_rank_end(message->as<RankEnd>(), message->text_after<RankEnd>());
        break;
      case MessageKind::kSpawned:
        on_spawned(message->as<Spawned>());
        break;
      case MessageKind::kSpawnFailure:
        outcome_.spawn_failure = {message->as<SpawnFailure>(), message->text_after<SpawnFailure>()};
        fail_here(failure_here(outcome_.spawn_failure->text));
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
        break;
      case MessageKind::kPaused:
        pause_.on_ranks_stopped();
        break;
      case MessageKind::kReaderGone:
        on_reader_gone();
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
    fail_here(failure);
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
    fail_here(failure);
  }

  void on_group_end(const GroupEnd& end) {
    await_no_answer();
    outcome_.group_end = end;
    running_ = false;
    waiting_.start();
    const bool well = end.success != 0;
    events_.round_ended(outcome_, well);
    if (!well && end.unkillable > 0)
      return error_files_.read(errors_, outcome_, [this] { drop_out(); });
    if (well)
      base::log::info(Component::kLauncher, "all ranks of this node have ended well");
    else
      base::log::info(Component::kLauncher, "round {}: no live workers", end.round);
    const bool goes_on = well && !another_round_;
    if (!goes_on && drain_signal_ != 0 && outcome_.stop_signal == 0 && !failed_here_)
      tell_drained();
    if (well) return seat_.gone(How::kAllSucceeded);
    error_files_.read(errors_, outcome_, [this] { prepare_restart(); });
  }

  // The next round begins when all nodes have left this one, so they wait for these commands.
  void prepare_restart() {
    const bool expected =
        another_round_ || (failed_here_ && outcome_.restarts < outcome_.max_restarts);
    if (!expected || finished_ || outcome_.stop_signal != 0 || drain_signal_ != 0)
      return tell_gone();
    const JobFailure& cause = failed_here_ ? *outcome_.own_failure : restart_cause_;
    restart_commands_.run({outcome_.restarts + 1, shown_node(), cause},
                          [this](const std::string& fault) {
                            if (fault.empty()) return tell_gone();
                            drop_out(fault);
                          });
  }

  void tell_gone() { seat_.gone(How::kOtherwise, worker_ends(outcome_, base::host_name())); }

  // The node leaves as one that was stopped, with its ranks' own exit code.
  void tell_drained() {
    outcome_.drain_signal = drain_signal_;
    // The ranks did not end in time and had to be stopped.
    if (outcome_.group_end.yielded == 0) outcome_.stop_signal = drain_signal_;
    seat_.stop({drain_signal_, exit_code_of(outcome_, plan_.options.stop.exit)});
  }

  // The others begin another round after all ranks of this node have ended well: it takes no part.
  void stay_drained() {
    tell_drained();
    seat_.gone(How::kOtherwise);
  }

  // Two rounds must not run side by side, and this round's ranks cannot be ended.
  void drop_out() {
    drop_out(fmt::format("{} of its processes did not die of SIGKILL within {}",
                         outcome_.group_end.unkillable, base::format_duration(kKillPatience)));
  }
  void drop_out(const std::string& why) {
    seat_.stuck(failure_here(fmt::format("{} drops out: {}", this_node(), why)));
  }

  void on_flushed(const GroupEnd& end) {
    outcome_.group_end.output_pending = 0;
    outcome_.group_end.lost_output_bytes = end.lost_output_bytes;
    outcome_.group_end.output_error = end.output_error;
    outcome_.group_end.lost_file_bytes = end.lost_file_bytes;
    outcome_.group_end.file_error = end.file_error;
    go_if_all_is_over();
  }

  // Somebody has killed the guard: by itself it stays until this process ends.
  void on_guard_gone() {
    link_watch_.on_readable(nullptr);
    await_no_answer();
    // The ranks have died with their parent, and the keeper has ended what they had started.
    const GuardEnd end = guard_.wait(not_ours_);
    outcome_.group_end.unkillable = end.unkillable;
    outcome_.guard_died = true;
    outcome_.guard_end = end.status.describe();
    if (!running_) return go_if_all_is_over();
    running_ = false;
    fail_here(failure_here(fmt::format("the guard of {} has died", this_node())));
    if (outcome_.group_end.unkillable > 0) return drop_out();
    seat_.gone(How::kOtherwise);
  }

  void fail_here(const JobFailure& failure) {
    failed_here_ = true;
    failing_ = afterwards() == Afterwards::kNothing;
    outcome_.own_failure = failure;
    events_.failed(outcome_, failure);
    seat_.failed(failure);
    // The guard ends the round by itself; this order says what follows.
    if (!running_ || afterwards() == Afterwards::kNothing) return;
    StopOrder order;
    order.round = outcome_.round;
    order.afterwards = afterwards();
    link_.send(MessageKind::kStop, order);
  }

  std::string waiting_text() const { return running_ || finished_ ? "" : seat_.waiting_text(); }

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
  EventFile& events_;
  std::vector<pid_t> not_ours_;
  GuardHandle& guard_;
  base::EventLoop loop_;
  GuardLink& link_;
  base::FdWatch link_watch_;
  base::Timer answer_;                             // for the guard's answer to a stop
  std::optional<Deadline::Duration> answer_time_;  // answer_ runs for so long; none: it does not
  JobPause pause_;
  WaitingNotice waiting_;
  ErrorFiles error_files_;
  RestartCommands restart_commands_;
  JobOutcome outcome_;
  JobSeat seat_;
  std::unique_ptr<base::SignalWatch> signals_;
  StoreArrivals arrivals_;
  JobFailure restart_cause_;           // another node's
  int drain_signal_ = 0;               // the signal after which this node's ranks end by themselves
  Deadline::Duration stop_grace_{-1};  // of the signal that stopped the job
  bool running_ = false;               // the guard has a round's ranks
  bool failed_here_ = false;
  bool failing_ = false;        // the round ends early, and no other follows
  bool another_round_ = false;  // the round ends early, and another follows
  bool late_stop_ = false;      // a signal to stop came when it could change nothing
  bool leaving_ = false;
  bool finished_ = false;  // there will be no round any more on this node
};

}  // namespace

JobOutcome run_agent(const LaunchPlan& plan, const LogFolder& errors, EventFile& events,
                     GuardHandle& guard, std::vector<pid_t> not_ours) {
  return Agent(plan, errors, events, guard, std::move(not_ours)).run();
}

}  // namespace dtrun::launcher
