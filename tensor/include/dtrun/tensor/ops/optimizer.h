// One step of an optimizer over a list of parameters, in one pass over their elements: the formulas
// and the order of their roundings are PyTorch's. All tensors are contiguous, of f32 or f64; lists
// are parallel to each other, and a parameter's tensors are on its device: the CPU for all, or CUDA
// devices.
#pragma once

#include <vector>

#include "dtrun/tensor/tensor.h"

namespace dtrun::tensors {

using TensorList = std::vector<LocalTensor>;

/// torch.optim.AdamW, and Adam. Source: Loshchilov, Hutter: Decoupled weight decay regularization
/// (2019); Kingma, Ba: Adam (2015).
struct AdamStep {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
  std::int64_t step = 1;  ///< the first one is 1
  enum class Decay : std::uint8_t { decoupled, of_gradient } decay = Decay::decoupled;
};
/// Writes the parameters and both moments. @throws Error kInvalidArgument naming the list and the
/// tensor that does not fit; nothing is written then
void adam_step_(const TensorList& parameters, const TensorList& gradients,
                const TensorList& moments, const TensorList& second_moments,
                const AdamStep& options);

/// torch.optim.SGD.
struct SgdStep {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
  bool is_first = false;  ///< the momenta become the gradients
};
/// Writes the parameters and the momenta. @param momenta none where momentum is 0
/// @throws Error kInvalidArgument naming the list and the tensor that does not fit
void sgd_step_(const TensorList& parameters, const TensorList& gradients, const TensorList& momenta,
               const SgdStep& options);

}  // namespace dtrun::tensors
