// PendingMove: a redistribution that goes on while the program does other things. Its first
// collective is started at once; what comes after that, when the program waits: at the same place
// on all ranks, so that all call their collectives in one order.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "dtrun/base/error.h"
#include "dtrun/collectives/process_group.h"

namespace dtrun::dtensor {

/// What a stage gives, once its work is done.
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
  /// Throws the error again, with more to it.
  using ErrorTeller = std::function<void(const base::Error&)>;

  /// @param options of the first collective, with which the program goes on if they are async
  PendingMove(Stages stages, LocalTensor local, const collectives::CallOptions& options = {},
              ErrorTeller tell = {});

  /// Nothing is left to be started or waited for.
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
