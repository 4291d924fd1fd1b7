#include "agent/guard_orders.h"

#include <fmt/core.h>
#include <signal.h>

#include <algorithm>
#include <utility>

#include "dtrun/base/log.h"
#include "dtrun/base/process_tree.h"
#include "output/notice.h"
#include "terminal/foreground.h"

namespace dtrun::launcher {

using base::Deadline;
namespace rounds = rendezvous::rounds;

namespace {

// If a debugger holds the guard, dtrun stops itself after this time all the same: the shell wants
// its terminal.
constexpr auto kPausePatience = std::chrono::seconds(2);

Afterwards after_a_round_of(const LaunchPlan& plan) {
  return plan.options.rounds.one_round() ? Afterwards::kNothing : Afterwards::kAnotherRound;
}

StopCause cause_of(const rounds::StopWorkers& stop, const GuardOrders::OwnStop& own) {
  const bool by_operator_elsewhere = stop.cause.rank < 0 && stop.cause.signal != 0;
  if (own.signal != 0 || by_operator_elsewhere) return StopCause::kOperator;
  const bool restart = stop.then == rounds::StopWorkers::Then::kAnotherRound;
  return restart ? StopCause::kRestart : StopCause::kFailure;
}

}  // namespace

GuardOrders::GuardOrders(base::EventLoop& loop, const LaunchPlan& plan, GuardHandle& guard,
                         std::vector<pid_t> not_ours, Callback before_pause)
    : plan_(plan),
      guard_(guard),
      link_(guard.link()),
      not_ours_(std::move(not_ours)),
      before_pause_(std::move(before_pause)),
      answer_(loop),
      pause_(loop) {}

void GuardOrders::start(const rounds::Start& start, rounds::Moment lease) {
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
  order.lease = lease;
  start.master_address.copy(order.master_addr, sizeof order.master_addr - 1);
  link_.send(MessageKind::kStart, order);
}

void GuardOrders::stop(const rounds::StopWorkers& stop, const OwnStop& own) {
  const bool urgent = stop.urgency == rounds::StopUrgency::kNow;
  StopOrder order;
  order.round = stop.round;
  // The ranks' own outputs are not closed, and they have handlers for SIGTERM.
  order.signal = stop.signal == SIGPIPE ? SIGTERM : stop.signal;
  order.urgency = urgent ? Urgency::kNow : Urgency::kClean;
  order.why = cause_of(stop, own);
  order.grace = own.grace;
  order.afterwards = after_a_round_of(plan_);
  order.failed_rank = stop.cause.rank;
  if (own.signal == 0) stop.cause.describe().copy(order.cause, sizeof order.cause - 1);
  link_.send(MessageKind::kStop, order);
  // The keeper resumes a guard that was stopped, but a debugger or a freezer may hold it. It gets
  // all the time that it may need for ranks and output.
  const StopOptions& options = plan_.options.stop;
  Deadline::Duration time = kKillPatience + kKillPatience / 2;
  if (!urgent)
    time += std::max({own.grace, options.restart_timeout, options.failure_timeout}) +
            options.shutdown_timeout;
  await_answer(time);
}

void GuardOrders::await_answer(Deadline::Duration time) {
  answer_time_ = time;
  answer_.start(Deadline::after(time), [this, time] {
    answer_time_.reset();
    print_note(plan_, fmt::format("the guard has not ended the ranks in {}: it is killed",
                                  base::format_duration(time)));
    if (!guard_.kill()) base::kill_descendants(not_ours_, Deadline::after(kKillPatience));
  });
}

void GuardOrders::ranks_are_gone() {
  answer_time_.reset();
  answer_.cancel();
}

void GuardOrders::tell_more_follows(int round) {
  StopOrder order;
  order.round = round;
  order.afterwards = Afterwards::kAnotherRound;
  link_.send(MessageKind::kStop, order);
}

void GuardOrders::pass(int round, int signal, Deadline::Duration yield_time) {
  base::log::info(base::log::Component::kLauncher, "{} is passed on to the ranks",
                  base::signal_name(signal));
  link_.send(MessageKind::kSignal, SignalOrder{round, signal, yield_time});
}

// If a debugger holds the guard, this loop must not wait for it.
void GuardOrders::renew_lease(rounds::Moment until) {
  link_.send_if_room(MessageKind::kLease, Lease{until});
}

void GuardOrders::flush() {
  link_.send(MessageKind::kFlush, FlushOrder{});
}

void GuardOrders::pause() {
  if (std::exchange(pausing_, true)) return;
  link_.send(MessageKind::kPause, PauseOrder{});
  pause_.start(Deadline::after(kPausePatience), [this] { ranks_are_stopped(); });
}

void GuardOrders::ranks_are_stopped() {
  if (!std::exchange(pausing_, false)) return;
  pause_.cancel();
  before_pause_();
  stop_this_process(SIGTSTP);
  link_.send(MessageKind::kResume, PauseOrder{});
  // The guard may have answered long ago: its answer is read before this time is over.
  if (answer_time_) await_answer(*answer_time_);
}

}  // namespace dtrun::launcher
