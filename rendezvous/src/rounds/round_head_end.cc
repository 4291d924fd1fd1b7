#include "rounds/head_step.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "dtrun/base/deadline.h"
#include "rounds/planted_bug.h"
#include "rounds/restart_policy.h"

namespace dtrun::rendezvous::rounds {

bool somebody_was_done(const HeadState& state) {
  return state.last_started == kNoRound && state.former.round != kNoRound &&
         state.former.round == state.latest_seen && !state.former.done.empty();
}

Moment end_of(const HeadState& state) {
  Moment end = Moment::min();
  if (!state.members.empty()) end = state.close_deadline;
  const bool all_know = static_cast<int>(state.told.size()) >= state.settings.max_nodes;
  if (state.farewell && !all_know) end = std::max(end, *state.farewell);
  return std::max(end, std::min(state.owed.latest(), state.close_deadline));
}

// --- running
void HeadStep::run() {
  if (s_.done == s_.participants) return close(Close::Outcome::kSucceeded, {});
  if (!s_.newcomers_since || (s_.somebody_done && !planted(PlantedBug::kRoundAfterDone))) return;
  const int waiting = s_.present - s_.participants;
  if (waiting <= 0) return s_.newcomers_since.reset();
  const bool full = s_.participants + waiting >= s_.settings.max_nodes;
  if (!full && now_ < *s_.newcomers_since + s_.settings.last_call_timeout) return;
  JobFailure cause;
  cause.text = fmt::format("{} more nodes have come", waiting);
  s_.quick_failure.reset();
  begin_drain(DrainCause::kNewcomers, cause);
}

// Something ends the round before its time.
void HeadStep::interrupt(DrainCause cause, const JobFailure& failure, MemberId who,
                         std::uint64_t agent) {
  if (s_.phase == HeadPhase::kDraining) {
    // A worker that fails now is a victim of the stop.
    const bool follows =
        cause == DrainCause::kWorkerFailure || (s_.drain_cause == DrainCause::kWorkerFailure &&
                                                (cause == DrainCause::kLeave || s_.failed == who));
    if (follows || cause <= s_.drain_cause) return;
    s_.drain_cause = cause;
    s_.failure = failure;
    return;
  }
  if (s_.phase != HeadPhase::kRunning) return;
  s_.failed = who;
  s_.failed_agent = agent;
  const bool done = planted(PlantedBug::kDoneIsForgotten) ? s_.done > 0 : s_.somebody_done;
  const bool no_restart_left =
      !s_.settings.elastic() && spent_for(cause) == s_.settings.max_restarts;
  if (done || no_restart_left) return close(Close::Outcome::kFailed, failure);
  const bool alike = fails_alike_again(cause, failure);
  if (cause == DrainCause::kWorkerFailure && is_final(s_.settings, failure) &&
      !planted(PlantedBug::kFinalIsTriedAgain))
    return close_for_good(failure, why_final(failure));
  if (alike && !planted(PlantedBug::kAlikeIsTriedAgain))
    return close_for_good(failure, why_alike(s_.settings, failure));
  begin_drain(cause, failure);
}

// Which count a failure is charged to.
int& HeadStep::spent_for(DrainCause cause) {
  if (s_.settings.restart_scope == RestartScope::kJob || cause != DrainCause::kWorkerFailure)
    return s_.restarts;
  // It may be gone, or have come back by another connection.
  const auto back = s_.by_agent.find(s_.failed_agent);
  const auto found = s_.members.find(back != s_.by_agent.end() ? back->second : *s_.failed);
  if (found != s_.members.end()) return found->second.restarts;
  return s_.failed_agent != 0 ? s_.spent_by_agent[s_.failed_agent] : s_.restarts;
}

void HeadStep::close_for_good(const JobFailure& failure, const std::string& why) {
  if (s_.settings.max_restarts > 0) note(Note::Weight::kPlain, why);
  close(Close::Outcome::kFailed, failure);
}

// Called once for each round that ends early; the next one is compared with it.
bool HeadStep::fails_alike_again(DrainCause cause, const JobFailure& failure) {
  const bool quick =
      cause == DrainCause::kWorkerFailure && now_ - s_.running_since < s_.settings.alike_window;
  const auto before = std::exchange(s_.quick_failure, std::nullopt);
  if (quick) s_.quick_failure = failure;
  return quick && before && is_alike(*before, failure);
}

void HeadStep::begin_drain(DrainCause cause, const JobFailure& failure) {
  s_.phase = HeadPhase::kDraining;
  s_.drain_cause = cause;
  s_.failure = failure;
  note(Note::Weight::kPlain,
       fmt::format("round {} is being stopped: {}", s_.round, failure.describe()));
  for (const auto& [id, member] : s_.members)
    if (member.participant() && !member.stopped &&
        !(planted(PlantedBug::kStopNotSentToOne) && member.group_rank == 2))
      send(id, Stop{s_.round, failure});
}

// --- draining
void HeadStep::drain() {
  const int most = planted(PlantedBug::kDrainEndsEarly) ? 1
                   : planted(PlantedBug::kNewcomerEndsDrain) && s_.present >= s_.settings.max_nodes
                       ? s_.busy
                       : 0;
  if (s_.busy > most || now_ < fence_of(s_)) return;
  const bool all_done = s_.participants > 0 && s_.done == s_.participants && !s_.somebody_missing;
  if (all_done) return close(Close::Outcome::kSucceeded, {});
  const bool costs = planted(PlantedBug::kJoinIsCharged) ||
                     s_.drain_cause == DrainCause::kWorkerFailure ||
                     (s_.drain_cause == DrainCause::kLoss &&
                      (!s_.settings.elastic() || planted(PlantedBug::kElasticLossIsCharged)));
  if (costs && !pay_for_restart()) return;
  gather_again();
}

// False if there is no restart left: the job is over.
bool HeadStep::pay_for_restart() {
  int& spent = spent_for(s_.drain_cause);
  if (spent == s_.settings.max_restarts && !planted(PlantedBug::kBudgetNotChecked)) {
    close(Close::Outcome::kFailed, s_.failure);
    return false;
  }
  spent += planted(PlantedBug::kBudgetChargedTwice) ? 2 : 1;
  if (planted(PlantedBug::kAllPayForOne))
    for (auto& [id, member] : s_.members) ++member.restarts;
  const Moment pause = backoff_before(s_.settings, spent);
  if (!planted(PlantedBug::kPauseIsNotKept)) s_.pause_until = now_ + pause;
  note(Note::Weight::kPlain,
       fmt::format("restart {} of {}{} after this: {}", spent, s_.settings.max_restarts,
                   pause > Moment::zero() ? " in " + base::format_duration(pause) : "",
                   s_.failure.describe()));
  return true;
}

// --- closed
void HeadStep::close(Close::Outcome outcome, const JobFailure& failure) {
  if (s_.phase == HeadPhase::kClosed) return;
  s_.phase = HeadPhase::kClosed;
  s_.verdict = {outcome, failure};
  s_.close_deadline = now_ + s_.settings.close_timeout;
  if (const Moment until = std::min(s_.owed.latest(), s_.close_deadline); until > now_)
    note(
        Note::Weight::kPlain,
        fmt::format("nodes that were done have lost their connection: for {} they may come back to "
                    "hear how the job has ended",
                    base::format_duration(until - now_)));
  for (const auto& [id, member] : s_.members) {
    if (member.participant() || !planted(PlantedBug::kSparesAreNotTold)) send(id, s_.verdict);
    note_told(member.hello.agent);
  }
}

// An agent that comes again counts once. An agent without an identity does not count, because it
// cannot be told from others.
void HeadStep::note_told(std::uint64_t agent) {
  if (agent != 0 && static_cast<int>(s_.told.size()) < s_.settings.max_nodes) s_.told.insert(agent);
}

void HeadStep::leave() {
  if (s_.ended || now_ < end_of(s_)) return;
  s_.ended = true;
  do_(End{});
}

}  // namespace dtrun::rendezvous::rounds
