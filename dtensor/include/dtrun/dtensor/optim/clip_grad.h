// Bounds for gradients. torch.nn.utils.clip_grad_norm_, clip_grad_value_, get_total_norm. Gradients
// may lie on any meshes: each element counts once, and one small collective per way of being cut
// serves all of them, however many there are.
#pragma once

#include <optional>

#include "dtrun/dtensor/autograd/tensor.h"

namespace dtrun::dtensor::optim {

struct ClipGradNormOptions {
  double norm_type = 2;  ///< above 0; infinity: the largest magnitude
  bool error_if_nonfinite = false;
  /// Of a pipeline: its axis, over whose ranks the layers are divided. The norm is that of all.
  std::optional<DeviceMesh> stages = std::nullopt;
};

/// The norm of all elements of all tensors as one vector: 0-dim, local, of the first one's dtype
/// and device. 0 of none. Collective over their meshes.
/// @param stages as of ClipGradNormOptions
Tensor get_total_norm(const Tensors& tensors, double norm_type = 2,
                      const std::optional<DeviceMesh>& stages = std::nullopt);

/// Multiplies all gradients by what brings their norm down to `max_norm`, where it is above.
/// @return the norm before @throws Error kInvalidArgument for a norm that is nan or infinite, where
/// the options say so; the gradients stay as they are then
Tensor clip_grad_norm_(const Tensors& parameters, double max_norm,
                       const ClipGradNormOptions& options = {});

/// Each element into [-value, value].
void clip_grad_value_(const Tensors& parameters, double value);

}  // namespace dtrun::dtensor::optim
