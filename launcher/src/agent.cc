#include "agent.h"

#include <fmt/core.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
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
#include "job_pause.h"
#include "meeting/elected_meeting_point.h"
#include "meeting/endpoint.h"
#include "meeting/meeting_point.h"
#include "meeting/member_settings.h"
#include "meeting/round_store.h"
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
        meeting_point_(make_meeting_point(loop_, plan)),
        store_(loop_, plan, [this] { on_store_client(); }) {
    outcome_.local_ranks = plan.local_ranks;
    if (plan.options.adopted) outcome_.first_local_rank = plan.options.adopted->local_rank;
    outcome_.max_restarts = plan.options.rounds.max_restarts;
    link_watch_.on_readable([this] { on_guard_message(); });
    meeting_point_->on_lost([this](const std::string& why) { on_head_lost(why); });
    meeting_point_->on_over([this](const rounds::Close& verdict) { on_over(verdict); });
  }

  JobOutcome run() {
    signals_ = std::make_unique<base::SignalWatch>(loop_, plan_.options.stop.numbers(),
                                                   [this](int number) { on_signal(number); });
    waiting_.start();
    meeting_point_->find([this](Head head) { on_head(std::move(head)); });
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
          loop_, plan_, std::move(head), [this] { go_if_all_is_over(); },
          [this](int round, base::EventLoop::Callback go) {
            meeting_point_->record_round(round, std::move(go));
          },
          [this](const rounds::Close& verdict, base::EventLoop::Callback go) {
            meeting_point_->record_verdict(verdict, std::move(go));
          },
          [this](const rounds::WorkerEnd& end) { outcome_.add(end); },
          [this] { on_store_client(); });
      place.own = endpoint_->own_agent();
    }
    if (membership_) return membership_->move(std::move(place), settings.head_name);
    membership_ =
        std::make_unique<rendezvous::Membership>(loop_, settings, plan_.proof, callbacks());
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
  rendezvous::MembershipCallbacks callbacks() {
    rendezvous::MembershipCallbacks callbacks;
    callbacks.on_open_store = [this](const rounds::OpenStore& what) { open_store(what.round); };
    callbacks.on_start_workers = [this](const rounds::StartWorkers& what) {
      start_workers(what.start);
    };
    callbacks.on_stop_workers = [this](const rounds::StopWorkers& what) { stop_workers(what); };
    callbacks.on_finish = [this](const rounds::Finish& what) { finish(what); };
    callbacks.on_note = [this](const rounds::MemberNote& note) { print_note(plan_, note.text); };
    callbacks.on_lease = [this](rounds::Moment) {
      // If a debugger holds the guard, this loop must not wait for it.
      if (running_) link_.send_if_room(MessageKind::kLease, Lease{lease()});
    };
    return callbacks;
  }

  // Without the head no node goes on, unless etcd elects another head.
  rounds::Moment lease() {
    return endpoint_ && plan_.options.rendezvous != Rendezvous::kEtcd ? kNoLease
                                                                      : membership_->lease();
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
    if (drain_signal_ != 0) return stay_drained(start.round);
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
    order.lease = lease();
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
    // An agent that ends before the job leaves the others to the next head.
    const bool another_may_follow = plan_.options.rendezvous == Rendezvous::kEtcd;
    if (endpoint_ && !endpoint_->ended() && another_may_follow && !endpoint_->job_is_over())
      endpoint_->step_down();
    // Stopped before the start of a job of one node: the head would wait for a node for ever.
    const bool nobody_else = plan_.options.rounds.max_nodes == 1 && outcome_.stop_signal != 0;
    if (endpoint_ && !endpoint_->ended() && nobody_else) return loop_.stop();
    if (endpoint_ && !endpoint_->ended()) return;
    if (!endpoint_ || !endpoint_->closed()) return loop_.stop();
    meeting_point_->close(endpoint_->verdict(), [this] { loop_.stop(); });
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
    if (endpoint_ && plan_.options.rendezvous != Rendezvous::kEtcd)
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
    if (membership_) return membership_->tell(rounds::OperatorStop{policy.signal});
    finished_ = true;  // no head has been found yet
    loop_.stop();
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
    membership_->tell(rounds::OperatorStop{
        .signal = SIGPIPE,
        .why =
            fmt::format("nobody reads the standard output of dtrun on {} any more", this_node())});
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
        this_node(), base::format_duration(membership_->state().silence_window * 9 / 10)));
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
      return error_files_.read(errors_, outcome_, [this, round = end.round] { drop_out(round); });
    if (well)
      base::log::info(Component::kLauncher, "all ranks of this node have ended well");
    else
      base::log::info(Component::kLauncher, "round {}: no live workers", end.round);
    const bool goes_on = well && !another_round_;
    if (!goes_on && drain_signal_ != 0 && outcome_.stop_signal == 0 && !failed_here_)
      tell_drained();
    using How = rounds::WorkersGone::How;
    if (well) return membership_->tell(rounds::WorkersGone{end.round, How::kAllSucceeded});
    error_files_.read(errors_, outcome_, [this, round = end.round] { prepare_restart(round); });
  }

  // The next round begins when all nodes have left this one, so they wait for these commands.
  void prepare_restart(int round) {
    const bool expected =
        another_round_ || (failed_here_ && outcome_.restarts < outcome_.max_restarts);
    if (!expected || finished_ || outcome_.stop_signal != 0 || drain_signal_ != 0)
      return tell_gone(round);
    const JobFailure& cause = failed_here_ ? *outcome_.own_failure : restart_cause_;
    restart_commands_.run({outcome_.restarts + 1, shown_node(), cause},
                          [this, round](const std::string& fault) {
                            if (fault.empty()) return tell_gone(round);
                            drop_out(round, fault);
                          });
  }

  void tell_gone(int round) {
    rounds::WorkersGone gone{round, rounds::WorkersGone::How::kOtherwise};
    gone.ends = worker_ends(outcome_, base::host_name());
    membership_->tell(gone);
  }

  // The node leaves as one that was stopped, with its ranks' own exit code.
  void tell_drained() {
    outcome_.drain_signal = drain_signal_;
    // The ranks did not end in time and had to be stopped.
    if (outcome_.group_end.yielded == 0) outcome_.stop_signal = drain_signal_;
    membership_->tell(
        rounds::OperatorStop{drain_signal_, exit_code_of(outcome_, plan_.options.stop.exit)});
  }

  // The others begin another round after all ranks of this node have ended well: it takes no part.
  void stay_drained(int round) {
    tell_drained();
    membership_->tell(rounds::WorkersGone{round, rounds::WorkersGone::How::kOtherwise});
  }

  // Two rounds must not run side by side, and this round's ranks cannot be ended.
  void drop_out(int round) {
    drop_out(round,
             fmt::format("{} of its processes did not die of SIGKILL within {}",
                         outcome_.group_end.unkillable, base::format_duration(kKillPatience)));
  }
  void drop_out(int round, const std::string& why) {
    membership_->tell(rounds::WorkersStuck{
        round, failure_here(fmt::format("{} drops out: {}", this_node(), why))});
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
    if (outcome_.group_end.unkillable > 0) return drop_out(outcome_.round);
    membership_->tell(rounds::WorkersGone{outcome_.round, rounds::WorkersGone::How::kOtherwise});
  }

  void fail_here(const JobFailure& failure) {
    failed_here_ = true;
    failing_ = afterwards() == Afterwards::kNothing;
    outcome_.own_failure = failure;
    events_.failed(outcome_, failure);
    membership_->tell(rounds::WorkersFailed{outcome_.round, failure});
    // The guard ends the round by itself; this order says what follows.
    if (!running_ || afterwards() == Afterwards::kNothing) return;
    StopOrder order;
    order.round = outcome_.round;
    order.afterwards = afterwards();
    link_.send(MessageKind::kStop, order);
  }

  // With --adopt there is one agent per rank: the head's agent speaks for all.
  std::string waiting_text() const {
    if (running_ || finished_) return "";
    if (endpoint_) return endpoint_->waiting_text();
    if (plan_.options.adopted) return "";
    return membership_ ? rounds::waiting_text(membership_->state())
                       : "waiting for the node that is to host the job";
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
  std::unique_ptr<MeetingPoint> meeting_point_;
  std::string head_host_;
  std::string local_address_;  // of --local_addr
  RoundStore store_;
  std::unique_ptr<Endpoint> endpoint_;  // none: another agent hosts
  std::unique_ptr<rendezvous::Membership> membership_;
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
  bool finished_ = false;       // there will be no round any more on this node
};

}  // namespace

JobOutcome run_agent(const LaunchPlan& plan, const LogFolder& errors, EventFile& events,
                     GuardHandle& guard, std::vector<pid_t> not_ours) {
  return Agent(plan, errors, events, guard, std::move(not_ours)).run();
}

}  // namespace dtrun::launcher
