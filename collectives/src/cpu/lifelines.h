// Lifelines: how a rank learns of the death of the peers that it waits for: by their sign of life
// in the commons, which it looks at whenever it is asked, and between two looks by a pidfd. That is
// a descriptor each, so of many peers only those that were asked for last have one. One thread.
#pragma once

#include <functional>
#include <list>

#include "life_sign.h"

namespace dtrun::collectives::cpu {

class Lifelines {
 public:
  static constexpr std::size_t kMost = 32;
  enum class Found { alive, dead };

  /// Never blocks. @param watch(fd, world rank) has a descriptor watched that becomes readable with
  /// the death; false: it cannot
  Found look(const Commons& commons, int world_rank, const std::function<bool(int, int)>& watch);
  void drop(int world_rank);

 private:
  struct Line {
    int world_rank;
    base::UniqueFd process;
  };
  std::list<Line> lines_;  ///< by when they were last asked for
};

}  // namespace dtrun::collectives::cpu
