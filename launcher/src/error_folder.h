// ErrorFolder: where the ranks of this node put their error.json, each round its own. Below
// --log_dir in torchrun's layout (attempt_<round>/<local rank>), where it stays; else a private
// folder that is removed at the end, by whoever of agent and guard is left to do it.
#pragma once

#include <string>

#include "launch_plan.h"

namespace dtrun::launcher {

class ErrorFolder {
 public:
  /// Only names it: agent and guard must both know the name before it can be there, lest a folder
  /// be left that nobody knows of.
  static ErrorFolder choose(const LaunchPlan& plan);

  /// The guard's part, before each round. @throws Error kSystem
  void make(int round) const;

  std::string file_of(int round, int local_rank) const;
  /// Whether the files outlive the job.
  bool kept() const { return kept_; }
  /// Nothing happens when it is kept, or gone.
  void remove() const;

 private:
  std::string folder_;
  bool kept_ = false;
  int local_ranks_ = 0;
};

}  // namespace dtrun::launcher
