// Lifelines: the connections and pidfds by which a rank learns of the death of the peers that it
// waits for. Each takes two descriptors, so of many only those that were asked for last are kept.
// One thread.
#pragma once

#include <functional>
#include <list>
#include <string>

#include "commons_door.h"

namespace dtrun::collectives::cpu {

class Lifelines {
 public:
  static constexpr std::size_t kMost = 32;
  enum class Found { watched, dead };

  /// @param watch(fd, world rank) is told of each descriptor that becomes readable with the death
  Found add(const std::string& commons_name, int world_rank,
            const std::function<void(int, int)>& watch);
  void drop(int world_rank);

 private:
  struct Line {
    int world_rank;
    base::UniqueFd connection;
    /// A peer's child that kept its socket open would hide its death; a pidfd does not.
    base::UniqueFd process;
  };
  std::list<Line> lines_;  ///< by when they were last asked for
};

}  // namespace dtrun::collectives::cpu
