// PendingMove: an asynchronous redistribution. Its first collective starts at once. The others
// start when the program waits, which all ranks do at the same place, so that the order of
// collectives is the same on all. A rank that has no part in the first has a stage in its place.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "dtrun/base/error.h"
#include "dtrun/collectives/process_group.h"

namespace dtrun::dtensor {

/// The result of a stage, after its work is done.
struct StartedStage {
  tensors::LocalTensor result;
  collectives::Work work = {};
};

class PendingMove {
 public:
  using LocalTensor = tensors::LocalTensor;
  struct Stage {
    bool is_collective;
    std::function<StartedStage(const LocalTensor&, collectives::CallOptions)> start;
  };
  using Stages = std::vector<Stage>;
  /// Rethrows the error with context added.
  using ErrorTeller = std::function<void(const base::Error&)>;

  /// @param options of the first collective, with which the program goes on if they are async
  PendingMove(Stages stages, LocalTensor local, const collectives::CallOptions& options = {},
              ErrorTeller tell = {});

  /// Whether nothing is left to start or to wait for.
  bool is_completed() const { return stages_.empty() && current_.work.is_completed(); }
  /// @throws what a collective throws
  LocalTensor wait();

 private:
  template <typename Function>
  void told(const Function& function) const;

  Stages stages_;  ///< to be started, the next one last
  ErrorTeller tell_;
  StartedStage current_;
};

}  // namespace dtrun::dtensor
