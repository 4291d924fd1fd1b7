// RankBirths: the ranks between their clone and their exec, a few at a time. While other CPUs
// execute the last ones the guard clones the next: on two CPUs 256 ranks start in 0.85 of the time
// that one after the other takes.
#pragma once

#include <deque>
#include <functional>

#include "dtrun/base/child_birth.h"
#include "output/output_thread.h"

namespace dtrun::launcher {

class RankBirths {
 public:
  using OnBorn = std::function<void(int local_rank, base::ChildProcess)>;

  /// @param on_born called for each, in the order of begin()
  explicit RankBirths(OnBorn on_born) : on_born_(std::move(on_born)) {}

  /// @param ends of the rank's output, which the guard keeps open until it has them
  /// @throws base::SpawnError about whose_turn()
  void begin(int local_rank, base::ChildCommand command, base::ChildSetup setup, RankEnds ends);
  /// @throws base::SpawnError about whose_turn(); the others are still to be finished
  void finish();
  /// The rank that an error is about.
  int whose_turn() const { return whose_turn_; }

 private:
  struct Birth {
    int local_rank;
    RankEnds ends;
    base::ChildBirth child;
  };

  void finish_oldest();

  OnBorn on_born_;
  std::deque<Birth> births_;
  int whose_turn_ = 0;
};

}  // namespace dtrun::launcher
