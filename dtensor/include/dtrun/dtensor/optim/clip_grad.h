// Gradient clipping. torch.nn.utils.clip_grad_norm_, clip_grad_value_, get_total_norm. Gradients
// may lie on any meshes. Each element counts once. All gradients with the same mesh and sharded
// axes share one small collective.
#pragma once

#include <optional>

#include "dtrun/dtensor/autograd/tensor.h"

namespace dtrun::dtensor::optim {

struct ClipGradNormOptions {
  double norm_type = 2;  ///< above 0; infinity: the largest magnitude
  bool error_if_nonfinite = false;
  /// The axis of a Pipeline: the norm is that of all stages.
  std::optional<DeviceMesh> stages = std::nullopt;
};

/// The norm of all elements of all tensors as one vector: 0-dim, local, with the first tensor's
/// dtype and device. 0 for no tensors. Collective over their meshes.
/// @param stages as of ClipGradNormOptions
Tensor get_total_norm(const Tensors& tensors, double norm_type = 2,
                      const std::optional<DeviceMesh>& stages = std::nullopt,
                      Tensor::Site site = Tensor::Site::current());

/// Scales all gradients so that their norm is at most `max_norm`.
/// @return the norm before @throws Error kInvalidArgument for a norm that is nan or infinite, where
/// the options say so; the gradients stay as they are then
Tensor clip_grad_norm_(const Tensors& parameters, double max_norm,
                       const ClipGradNormOptions& options = {},
                       Tensor::Site site = Tensor::Site::current());

/// Clamps each element to [-value, value].
void clip_grad_value_(const Tensors& parameters, double value);

}  // namespace dtrun::dtensor::optim
