#include "planted.h"

namespace dtrun::rendezvous::rounds {
namespace {
// The one variable that the code under test asks; set by Planting alone.
PlantedBug present = PlantedBug::kNone;
}  // namespace

bool planted(PlantedBug bug) {
  return present == bug;
}
void plant(PlantedBug bug) {
  present = bug;
}

}  // namespace dtrun::rendezvous::rounds

namespace dtrun::simulation {

using rendezvous::rounds::PlantedBug;

Planting::Planting(PlantedBug bug) {
  rendezvous::rounds::plant(bug);
}
Planting::~Planting() {
  rendezvous::rounds::plant(PlantedBug::kNone);
}

namespace {
// In the order of planted_bug.h.
const std::vector<PlantedBugName> kBugs = {
    {PlantedBug::kBeatsDoNotCount, "beats-do-not-count", "a beat does not count as a sign of life",
     Origin::kInvented},
    {PlantedBug::kNobodyIsEvicted, "nobody-is-evicted", "the silent are never looked for",
     Origin::kInvented},
    {PlantedBug::kNoPauseCompensation, "no-pause-compensation",
     "the time in which the head stood still counts as silence", Origin::kInvented},
    {PlantedBug::kTwinStays, "twin-stays",
     "an agent that comes back by another connection is kept twice", Origin::kInvented},
    {PlantedBug::kCloseNotFinal, "close-not-final", "a Hello after the close opens the job again",
     Origin::kInvented},
    {PlantedBug::kSpareCountedTwice, "spare-counted-twice", "a spare is counted as two",
     Origin::kInvented},
    {PlantedBug::kRoundsFromZero, "rounds-from-zero",
     "a head that comes again counts its rounds from 0", Origin::kReal},
    {PlantedBug::kStaleStoreReady, "stale-store-ready",
     "a StoreReady of an old round starts the new one", Origin::kInvented},
    {PlantedBug::kStaleStopped, "stale-stopped", "a Stopped of an old round counts in this one",
     Origin::kInvented},
    {PlantedBug::kStaleDone, "stale-done", "a Done of an old round counts in this one",
     Origin::kInvented},
    {PlantedBug::kStaleFailed, "stale-failed", "a Failed of an old round counts in this one",
     Origin::kInvented},
    {PlantedBug::kSilentLossNotFenced, "silent-loss-not-fenced",
     "who fell silent is taken for dead at once", Origin::kInvented},
    {PlantedBug::kNoDeathGrace, "no-death-grace",
     "a dead agent's workers are taken for dead at once", Origin::kInvented},
    {PlantedBug::kAnybodyEndsAbsence, "anybody-ends-absence",
     "when one that was lost comes back, no other is waited for any more", Origin::kInvented},
    {PlantedBug::kMinOffByOne, "min-off-by-one",
     "a round begins with one node fewer than min_nodes", Origin::kInvented},
    {PlantedBug::kMaxOffByOne, "max-off-by-one", "a round begins with one node more than max_nodes",
     Origin::kInvented},
    {PlantedBug::kLastCallNotCancelled, "last-call-not-cancelled",
     "the last call is not cancelled when one leaves", Origin::kInvented},
    {PlantedBug::kLostWakeUpAtMax, "lost-wake-up-at-max",
     "the arrival of the last possible node begins nothing", Origin::kInvented},
    {PlantedBug::kLeavingIsChosen, "leaving-is-chosen", "who is leaving takes part",
     Origin::kInvented},
    {PlantedBug::kOldClaims, "old-claims", "ranks of earlier rounds are claimed, too",
     Origin::kReal},
    {PlantedBug::kRankReuse, "rank-reuse", "a group rank is given twice", Origin::kInvented},
    {PlantedBug::kRoundAfterDone, "round-after-done", "newcomers end a round of which one is done",
     Origin::kInvented},
    {PlantedBug::kDoneIsUnknownToTheNext, "done-is-unknown-to-the-next",
     "an elected head does not ask who was done under the last one", Origin::kReal},
    {PlantedBug::kDoneIsNotSaidAgain, "done-is-not-said-again",
     "a member that is done does not say so to the next head", Origin::kReal},
    {PlantedBug::kDoneIsForgotten, "done-is-forgotten", "who was done and is lost is forgotten",
     Origin::kReal},
    {PlantedBug::kDoneNeedsNoWord, "done-needs-no-word",
     "who is done and has lost the head takes the job for a success", Origin::kReal},
    {PlantedBug::kStopNotSentToOne, "stop-not-sent-to-one", "one participant is not told to stop",
     Origin::kInvented},
    {PlantedBug::kDrainEndsEarly, "drain-ends-early", "the last to stop is not waited for",
     Origin::kInvented},
    {PlantedBug::kNewcomerEndsDrain, "newcomer-ends-drain",
     "a newcomer that fills the job begins it at once", Origin::kInvented},
    {PlantedBug::kJoinIsCharged, "join-is-charged", "newcomers cost a restart", Origin::kInvented},
    {PlantedBug::kElasticLossIsCharged, "elastic-loss-is-charged",
     "the loss of an elastic node costs a restart", Origin::kInvented},
    {PlantedBug::kBudgetNotChecked, "budget-not-checked", "restarts have no end",
     Origin::kInvented},
    {PlantedBug::kAllPayForOne, "all-pay-for-one", "a node's failure costs every node a restart",
     Origin::kInvented},
    {PlantedBug::kPauseIsNotKept, "pause-is-not-kept", "a restart does not wait for its pause",
     Origin::kInvented},
    {PlantedBug::kFinalIsTriedAgain, "final-is-tried-again", "a final exit code is like any other",
     Origin::kInvented},
    {PlantedBug::kAlikeIsTriedAgain, "alike-is-tried-again",
     "what fails alike twice in a row is tried again", Origin::kInvented},
    {PlantedBug::kBudgetChargedTwice, "budget-charged-twice", "a restart costs two",
     Origin::kInvented},
    {PlantedBug::kSparesAreNotTold, "spares-are-not-told",
     "the verdict is told to participants only", Origin::kInvented},
    {PlantedBug::kDeadlineInThePast, "deadline-in-the-past", "a deadline that was passed stays",
     Origin::kReal},
    {PlantedBug::kSortLexicographic, "sort-lexicographic", "node10 stands before node2",
     Origin::kInvented},
    {PlantedBug::kStalePrepare, "stale-prepare", "a member obeys the Prepare of an old round",
     Origin::kReal},
    {PlantedBug::kStaleStart, "stale-start", "a member obeys the Start of an old round",
     Origin::kInvented},
    {PlantedBug::kStaleStop, "stale-stop", "a member obeys the Stop of an old round",
     Origin::kInvented},
    {PlantedBug::kStopIgnoredWhenDone, "stop-ignored-when-done",
     "a member that is done does not stop", Origin::kInvented},
    {PlantedBug::kRejoinWithLiveWorkers, "rejoin-with-live-workers",
     "a member joins again before its workers are gone", Origin::kInvented},
    {PlantedBug::kGraceAfterLoss, "grace-after-loss",
     "a member that has lost the head gives its workers their grace", Origin::kInvented},
    {PlantedBug::kGraceWhenLeaving, "grace-when-leaving", "the same, while its operator stops it",
     Origin::kReal},
    {PlantedBug::kRejoinForEver, "rejoin-for-ever", "a member looks for the head for ever",
     Origin::kInvented},
    {PlantedBug::kEndWithLiveWorkers, "end-with-live-workers", "a member ends before its workers",
     Origin::kInvented},
    {PlantedBug::kStoppedIsNotSaid, "stopped-is-not-said",
     "a member does not say that it has stopped", Origin::kInvented},
};
}  // namespace

const std::vector<PlantedBugName>& planted_bugs() {
  return kBugs;
}

}  // namespace dtrun::simulation
