#include "agent/course.h"

namespace dtrun::launcher::course {
namespace {

using A = Action;
using E = Event;
using P = Phase;
using W = When;

// The table is sorted by phase. In a row without actions nothing is done; a comment says why unless
// it is plain. An event without a row cannot happen in that phase, but see plainer().
constexpr Row kRows[] = {
    // Nobody is here to start them.
    {P::kWaiting, E::kStart, W::kGuardIsGone, P::kOver, {A::kQuit}},
    // Two rounds must not run side by side, and the last round's ranks cannot be ended.
    {P::kWaiting, E::kStart, W::kIsStuck, P::kWaiting, {A::kTellStuck}},
    // The others begin another round after all ranks of this node have ended well: it takes no
    // part.
    {P::kWaiting, E::kStart, W::kDrainBegan, P::kWaiting, {A::kTellDrained, A::kTellGone}},
    {P::kWaiting, E::kStart, W::kHasFailed, P::kRunning, {A::kTellLastFailure, A::kBegin}},
    {P::kWaiting, E::kStart, W::kAlways, P::kRunning, {A::kBegin}},
    // The ranks' end is being told.
    {P::kWaiting, E::kStopRound, W::kAlways, P::kWaiting, {}},
    {P::kWaiting, E::kStopJob, W::kAlways, P::kWaiting, {}},
    {P::kWaiting, E::kSucceeded, W::kOutputWaits, P::kFlushing, {A::kFlush}},
    {P::kWaiting, E::kSucceeded, W::kAlways, P::kLeaving, {A::kDismissGuard, A::kLeave}},
    {P::kWaiting, E::kFinished, W::kOutputWaits, P::kFlushing, {A::kFlush}},
    // The guard stays: it removes the error files, which have to be read first.
    {P::kWaiting, E::kFinished, W::kAlways, P::kLeaving, {A::kLeave}},
    {P::kWaiting,
     E::kStopWish,
     W::kFirstStopIsLate,
     P::kWaiting,
     {A::kBeginLateStop, A::kTellStop}},
    {P::kWaiting, E::kStopWish, W::kFirstStop, P::kWaiting, {A::kBeginStop, A::kTellStop}},
    {P::kWaiting, E::kStopWish, W::kAlways, P::kWaiting, {A::kTellStop}},
    {P::kWaiting, E::kForward, W::kAlways, P::kWaiting, {}},
    {P::kWaiting, E::kReaderGone, W::kEndIsSure, P::kWaiting, {}},
    {P::kWaiting, E::kReaderGone, W::kAlways, P::kWaiting, {A::kTellReaderGone}},
    // It is missed when a round begins.
    {P::kWaiting, E::kGuardGone, W::kAlways, P::kWaiting, {}},

    // During a drain the ranks end as they were asked to, and another node that has ended does not
    // cut them short. But after the loss of a node they would only wait for it.
    {P::kRunning, E::kStopRoundInPeace, W::kEndsByItself, P::kRunning, {}},
    {P::kRunning, E::kStopJobInPeace, W::kEndsByItself, P::kRunning, {}},
    {P::kRunning, E::kStopRound, W::kAlways, P::kRunning, {A::kStopRanks}},
    {P::kRunning, E::kStopJob, W::kAlways, P::kRunning, {A::kStopRanks}},
    {P::kRunning,
     E::kStopWish,
     W::kFirstStopIsLate,
     P::kRunning,
     {A::kBeginLateStop, A::kTellStop}},
    {P::kRunning, E::kStopWish, W::kFirstStop, P::kRunning, {A::kBeginStop, A::kTellStop}},
    {P::kRunning, E::kStopWish, W::kAlways, P::kRunning, {A::kTellStop}},
    {P::kRunning, E::kDrainWish, W::kMayDrain, P::kRunning, {A::kDrain}},
    {P::kRunning, E::kForward, W::kAlways, P::kRunning, {A::kPass}},
    {P::kRunning, E::kFailure, W::kIsOnlyRound, P::kRunning, {A::kTellFailure}},
    // The guard ends the round by itself; the order says what follows.
    {P::kRunning, E::kFailure, W::kAlways, P::kRunning, {A::kTellFailure, A::kTellMoreFollows}},
    {P::kRunning,
     E::kEndedWell,
     W::kDrainedForAnother,
     P::kWaiting,
     {A::kTellDrained, A::kTellAllWell}},
    {P::kRunning, E::kEndedWell, W::kAlways, P::kWaiting, {A::kTellAllWell}},
    {P::kRunning, E::kEndedBadly, W::kIsStuck, P::kCollecting, {A::kCollect}},
    {P::kRunning, E::kEndedBadly, W::kHasDrained, P::kCollecting, {A::kTellDrained, A::kCollect}},
    {P::kRunning, E::kEndedBadly, W::kAlways, P::kCollecting, {A::kCollect}},
    {P::kRunning, E::kReaderGone, W::kEndIsSure, P::kRunning, {}},
    {P::kRunning, E::kReaderGone, W::kAlways, P::kRunning, {A::kTellReaderGone}},
    // The ranks have died with their parent, and the keeper has ended what they had started.
    {P::kRunning, E::kGuardGone, W::kAlways, P::kWaiting, {A::kTellFailure, A::kTellGone}},
    {P::kRunning, E::kGuardGoneStuck, W::kAlways, P::kWaiting, {A::kTellFailure, A::kTellStuck}},

    {P::kCollecting, E::kCollected, W::kIsStuck, P::kWaiting, {A::kTellStuck}},
    // The next round begins when all nodes have left this one, so they wait for these commands.
    {P::kCollecting, E::kCollected, W::kMayGoOn, P::kPreparing, {A::kPrepare}},
    {P::kCollecting, E::kCollected, W::kAlways, P::kWaiting, {A::kTellEnds}},
    // No rank is left to be stopped.
    {P::kCollecting, E::kStopRound, W::kAlways, P::kCollecting, {}},
    {P::kCollecting, E::kStopJob, W::kAlways, P::kCollecting, {}},
    {P::kCollecting,
     E::kStopWish,
     W::kFirstStopIsLate,
     P::kCollecting,
     {A::kBeginLateStop, A::kTellStop}},
    {P::kCollecting, E::kStopWish, W::kFirstStop, P::kCollecting, {A::kBeginStop, A::kTellStop}},
    {P::kCollecting, E::kStopWish, W::kAlways, P::kCollecting, {A::kTellStop}},
    {P::kCollecting, E::kForward, W::kAlways, P::kCollecting, {}},
    {P::kCollecting, E::kReaderGone, W::kEndIsSure, P::kCollecting, {}},
    {P::kCollecting, E::kReaderGone, W::kAlways, P::kCollecting, {A::kTellReaderGone}},
    {P::kCollecting, E::kGuardGone, W::kAlways, P::kCollecting, {}},

    {P::kPreparing, E::kPrepared, W::kAlways, P::kWaiting, {A::kTellEnds}},
    {P::kPreparing, E::kUnfit, W::kAlways, P::kWaiting, {A::kTellUnfit}},
    {P::kPreparing, E::kStopRound, W::kAlways, P::kPreparing, {}},
    {P::kPreparing, E::kStopJob, W::kAlways, P::kWaiting, {A::kEndCommands, A::kTellEnds}},
    // It is never late: where the job ends no commands run.
    {P::kPreparing,
     E::kStopWish,
     W::kFirstStop,
     P::kWaiting,
     {A::kBeginStop, A::kEndCommands, A::kTellEnds, A::kTellStop}},
    {P::kPreparing, E::kStopWish, W::kAlways, P::kPreparing, {A::kTellStop}},
    {P::kPreparing, E::kForward, W::kAlways, P::kPreparing, {}},
    {P::kPreparing, E::kReaderGone, W::kEndIsSure, P::kPreparing, {}},
    {P::kPreparing, E::kReaderGone, W::kAlways, P::kPreparing, {A::kTellReaderGone}},
    {P::kPreparing, E::kGuardGone, W::kAlways, P::kPreparing, {}},

    {P::kFlushing, E::kFlushed, W::kAlways, P::kLeaving, {A::kLeave}},
    {P::kFlushing, E::kGuardGone, W::kAlways, P::kLeaving, {A::kLeave}},
    {P::kFlushing, E::kStopWish, W::kFirstStop, P::kFlushing, {A::kBeginLateStop, A::kTellStop}},
    // Only a reader of the output is waited for.
    {P::kFlushing, E::kStopWish, W::kAlways, P::kOver, {A::kQuit}},
    {P::kFlushing, E::kForward, W::kAlways, P::kFlushing, {}},
    {P::kFlushing, E::kReaderGone, W::kAlways, P::kFlushing, {}},

    {P::kLeaving, E::kFree, W::kAlways, P::kOver, {A::kQuit}},
    {P::kLeaving, E::kGuardGone, W::kAlways, P::kLeaving, {}},
    {P::kLeaving, E::kStopWish, W::kFirstStop, P::kLeaving, {A::kBeginLateStop, A::kTellStop}},
    // Only other nodes are waited for.
    {P::kLeaving, E::kStopWish, W::kAlways, P::kOver, {A::kQuit}},
    {P::kLeaving, E::kForward, W::kAlways, P::kLeaving, {}},
    {P::kLeaving, E::kReaderGone, W::kAlways, P::kLeaving, {}},
};

// The event as which one counts where no row of its own holds. So a drain without ranks, or a
// second one, is a stop.
std::optional<Event> plainer(Event event) {
  switch (event) {
    case Event::kDrainWish:
      return Event::kStopWish;
    case Event::kStopRoundInPeace:
      return Event::kStopRound;
    case Event::kStopJobInPeace:
      return Event::kStopJob;
    case Event::kGuardGoneStuck:
      return Event::kGuardGone;
    default:
      return std::nullopt;
  }
}

bool holds(When when, const Facts& facts) {
  const bool stopped = facts.stop == Stop::kWished;
  const bool drains = facts.drain && !stopped;
  const bool another = facts.prospect == Prospect::kAnotherRound;
  const bool ends = facts.prospect == Prospect::kEndOfJob;
  switch (when) {
    case When::kAlways:
      return true;
    case When::kGuardIsGone:
      return facts.guard_gone;
    case When::kIsStuck:
      return facts.stuck;
    case When::kHasFailed:
      return facts.failed_here;
    case When::kIsOnlyRound:
      return facts.only_round;
    case When::kOutputWaits:
      return facts.output_waits && !facts.guard_gone;
    case When::kDrainBegan:
      return facts.drain;
    case When::kMayDrain:
      return !facts.failed_here && !facts.drain && !stopped;
    case When::kEndsByItself:
      return drains;
    case When::kHasDrained:
      return drains && !facts.failed_here;
    case When::kDrainedForAnother:
      return drains && !facts.failed_here && another;
    case When::kMayGoOn:
      return (another || (facts.failed_here && facts.restarts_left)) && !ends && !stopped &&
             !facts.drain;
    case When::kEndIsSure:
      return stopped || ends;
    case When::kFirstStop:
      return facts.stop == Stop::kNone;
    case When::kFirstStopIsLate:
      return facts.stop == Stop::kNone && ends;
  }
  return false;
}

void learn(Event event, Facts& facts) {
  switch (event) {
    case Event::kStopRound:
    case Event::kStopRoundInPeace:
      facts.prospect = Prospect::kAnotherRound;
      break;
    case Event::kStopJob:
    case Event::kStopJobInPeace:
      facts.prospect = Prospect::kEndOfJob;
      break;
    case Event::kGuardGone:
    case Event::kGuardGoneStuck:
      facts.guard_gone = true;
      break;
    default:
      break;
  }
}

void learn(Action action, Facts& facts) {
  switch (action) {
    case Action::kBegin:
      facts.prospect = Prospect::kOpen;
      facts.failed_here = facts.stuck = facts.yielded = facts.output_waits = false;
      break;
    case Action::kDrain:
      facts.drain = true;
      break;
    case Action::kBeginStop:
    case Action::kTellReaderGone:
      facts.stop = Stop::kWished;
      break;
    case Action::kBeginLateStop:
      facts.stop = Stop::kLate;
      break;
    case Action::kTellDrained:
      // The ranks did not end in time and had to be stopped.
      if (!facts.yielded) facts.stop = Stop::kWished;
      break;
    case Action::kTellFailure:
      facts.failed_here = true;
      if (facts.only_round) facts.prospect = Prospect::kEndOfJob;
      break;
    default:
      break;
  }
}

const Row* first_of(const State& state, Event event) {
  for (const Row& row : kRows)
    if (row.phase == state.phase && row.event == event && holds(row.when, state.facts)) return &row;
  return nullptr;
}

constexpr Row kNothing{P::kOver, E::kFree, W::kAlways, P::kOver, {}};

}  // namespace

std::span<const Row> table() {
  return kRows;
}

const Row* row_of(const State& state, Event event) {
  if (state.phase == Phase::kOver) return &kNothing;
  const Row* row = first_of(state, event);
  for (auto plain = plainer(event); row == nullptr && plain; plain = plainer(*plain))
    row = first_of(state, *plain);
  return row;
}

const Row* step(State& state, Event event) {
  const Row* const row = row_of(state, event);
  if (row == nullptr) return nullptr;
  state.phase = row->next;
  learn(event, state.facts);
  for (const std::optional<Action>& action : row->actions)
    if (action) learn(*action, state.facts);
  return row;
}

std::string_view name_of(Phase phase) {
  static constexpr std::string_view kNames[] = {"waiting",  "running", "collecting", "preparing",
                                                "flushing", "leaving", "over"};
  static_assert(std::size(kNames) == kPhases);
  return kNames[static_cast<std::size_t>(phase)];
}

}  // namespace dtrun::launcher::course
