// AlikeFailures: whether all ranks of this node have failed in the same way soon after their start,
// so that there is no sense in starting them again. In one round some are ended before they can
// show it: what was seen in rounds one after the other counts together. Pure.
#pragma once

#include <set>

#include "verdict/job_outcome.h"

namespace dtrun::launcher {

class AlikeFailures {
 public:
  /// @return the exit code that all ranks have shown; 0: they have not
  int after_round(const JobOutcome& outcome, int local_ranks);

 private:
  int code_ = 0;
  std::set<int> shown_by_;  // local ranks
};

}  // namespace dtrun::launcher
