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
/// as in a step, but hardly any memory is written. Communication takes place: collective where the
/// pass is. Gradients, buffers and the thread's random state are as before. States are counted as
/// from the second step on, when they are there.
/// @param pass forward, loss and backward; without clipping and the optimizer's step, and without
/// item() or to_vector(), which throw kUsage there
StepMemory predict_step(const nn::Module& model, const optim::Optimizer& optimizer,
                        const std::function<void()>& pass);

}  // namespace dtrun::dtensor
