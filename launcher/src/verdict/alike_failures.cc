#include "verdict/alike_failures.h"

namespace dtrun::launcher {

int AlikeFailures::after_round(const JobOutcome& outcome, int local_ranks) {
  const RankOutcome* const root = root_cause(outcome);
  const int code = root != nullptr && root->end.signal == 0 ? root->end.code : 0;
  if (code != code_) shown_by_.clear();
  code_ = code;
  for (const RankOutcome& rank : outcome.ranks) {
    const bool same = code != 0 && rank.end.signal == 0 && rank.end.code == code;
    if (same && rank.end.early != 0) {
      shown_by_.insert(rank.end.local_rank);
    } else if (same || rank.end.stopped == 0) {
      // It ran for longer, or ended in another way.
      shown_by_.clear();
      return 0;
    }
  }
  return static_cast<int>(shown_by_.size()) == local_ranks ? code : 0;
}

}  // namespace dtrun::launcher
