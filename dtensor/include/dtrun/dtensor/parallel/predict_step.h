// predict_step: the memory that a training step will take on this rank, found without computing it.
//
//     const StepMemory memory = predict_step(*model, optimizer, [&] {
//       loss_of((*model)(samples)).backward();
//     });
#pragma once

#include <cstdint>
#include <functional>

#include "dtrun/dtensor/nn/module.h"
#include "dtrun/dtensor/optim/optimizer.h"

namespace dtrun::dtensor {

/// Of CPU tensors, in bytes, on this rank.
struct StepMemory {
  std::int64_t parameters = 0;
  std::int64_t gradients = 0;
  std::int64_t states = 0;  ///< of the optimizer
  /// The largest gather, whole: what fully_shard() holds of a unit for a while.
  std::int64_t gathered = 0;
  /// What forward has left when backward begins, such as tensors that backward needs.
  std::int64_t activations = 0;
  /// All of it at its most: parameters, states, and what stands beside them in forward and
  /// backward. 0: another HostMemoryMeter stood.
  std::int64_t peak = 0;
};

/// Runs forward and backward once without numbers (tensors::ShapesOnly): tensors are made and freed
/// as in a step, and no memory is written but that of integers, of small tensors and of what is
/// communicated. Communication takes place: collective where the pass is. Gradients, buffers and
/// the thread's random state are as before. States are counted as from the second step on, when
/// they are there; gradients that stand before are not counted.
/// @param pass forward, loss and backward; without clipping and the optimizer's step. It keeps no
/// tensor that it makes. item(), to_vector(), equal() and what has a size by its numbers, such as
/// nonzero(), throw kUsage in it; an element that is read by local() is undefined. A pass that
/// throws ends groups and pipelines as a step that throws does.
StepMemory predict_step(const nn::Module& model, const optim::Optimizer& optimizer,
                        const std::function<void()>& pass);

}  // namespace dtrun::dtensor
