// ZeroRedundancyOptimizer: every rank has all parameters and their averaged gradients, and only its
// part of the optimizer's states: ZeRO-1 (Rajbhandari et al., 2020). It updates its rows of each
// parameter, then all ranks gather them. torch.distributed.optim.ZeroRedundancyOptimizer.
//
//     data_parallel(*model, mesh["dp"]);
//     ZeroRedundancyOptimizer optimizer(model->parameters(), mesh["dp"], [](const Tensors& parts) {
//       return std::make_unique<optim::AdamW>(parts, optim::AdamWOptions{.lr = 1e-3});
//     });
//     optim::CosineAnnealingLR schedule(optimizer.inner(), 1000);
//
// One thread's.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "dtrun/dtensor/mesh/device_mesh.h"
#include "dtrun/dtensor/optim/optimizer.h"

namespace dtrun::dtensor {

class ZeroRedundancyOptimizer {
 public:
  /// Makes the optimizer of this rank's parts, which are distributed tensors: Shard(0) along the
  /// axis. They share the parameters' elements.
  using Make = std::function<std::unique_ptr<optim::Optimizer>(const Tensors& parts)>;

  /// @param mesh of one axis, along which the parameters are copies
  /// @throws Error kInvalidArgument for another mesh, no parameters, one without dims, and one that
  /// is distributed over ranks of this axis
  ZeroRedundancyOptimizer(Tensors parameters, const DeviceMesh& mesh, const Make& make);
  ~ZeroRedundancyOptimizer();
  ZeroRedundancyOptimizer(const ZeroRedundancyOptimizer&) = delete;
  ZeroRedundancyOptimizer& operator=(const ZeroRedundancyOptimizer&) = delete;

  /// Takes this rank's rows of the parameters' gradients, which are the same on all ranks.
  /// Collective: one all_gather for each dtype.
  void step(Tensor::Site site = Tensor::Site::current());
  /// Forgets the gradients.
  void zero_grad() const;

  /// Of the parts: its learning rates, its states by name, which are distributed tensors.
  optim::Optimizer& inner() { return *inner_; }
  const optim::Optimizer& inner() const { return *inner_; }

 private:
  struct Block;
  /// The parts lie in the parameters, wherever those have gone.
  void follow_parameters();

  const ProcessGroup group_;
  const Tensors parameters_;
  Tensors parts_;
  std::vector<Block> blocks_;  ///< by dtype and device
  std::unique_ptr<optim::Optimizer> inner_;
};

}  // namespace dtrun::dtensor
