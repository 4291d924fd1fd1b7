// Bugs that the simulator's own copy of the round logic can be given, so that it is seen to find
// them (docs/simulation.md; tests/simulation/planted.cc says what each does). In every other build
// planted() is false and leaves no code behind.
#pragma once

namespace dtrun::rendezvous::rounds {

enum class PlantedBug {
  kNone,
  kBeatsDoNotCount,
  kNobodyIsEvicted,
  kNoPauseCompensation,
  kTwinStays,
  kCloseNotFinal,
  kSpareCountedTwice,
  kRoundsFromZero,
  kStaleStoreReady,
  kStaleStopped,
  kStaleDone,
  kStaleFailed,
  kSilentLossNotFenced,
  kNoDeathGrace,
  kAnybodyEndsAbsence,
  kMinOffByOne,
  kMaxOffByOne,
  kLastCallNotCancelled,
  kLostWakeUpAtMax,
  kLeavingIsChosen,
  kOldClaims,
  kRankReuse,
  kRoundAfterDone,
  kDoneIsUnknownToTheNext,
  kDoneIsNotSaidAgain,
  kDoneIsForgotten,
  kDoneNeedsNoWord,
  kStopNotSentToOne,
  kDrainEndsEarly,
  kNewcomerEndsDrain,
  kJoinIsCharged,
  kElasticLossIsCharged,
  kBudgetNotChecked,
  kBudgetChargedTwice,
  kAllPayForOne,
  kPauseIsNotKept,
  kFinalIsTriedAgain,
  kAlikeIsTriedAgain,
  kSparesAreNotTold,
  kDeadlineInThePast,
  kSortLexicographic,
  kStalePrepare,
  kStaleStart,
  kStaleStop,
  kStopIgnoredWhenDone,
  kRejoinWithLiveWorkers,
  kGraceAfterLoss,
  kGraceWhenLeaving,
  kRejoinForEver,
  kEndWithLiveWorkers,
  kStoppedIsNotSaid,
};

#ifdef DTRUN_PLANTED_BUGS
bool planted(PlantedBug bug);
void plant(PlantedBug bug);
#else
constexpr bool planted(PlantedBug) {
  return false;
}
#endif

}  // namespace dtrun::rendezvous::rounds
