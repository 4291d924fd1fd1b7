// Optimizer steps over lists of tensors on one CUDA device: few kernels for any number of tensors.
// Enqueued on the device's current stream.
#pragma once

#include "dtrun/tensor/ops/optimizer.h"

namespace dtrun::tensors::cuda {

// Of the lists of ops/optimizer.h the tensors `which`, of one device and one of the dtypes f32 and
// f64; the lists have been checked.
struct ChosenTensors {
  std::vector<std::size_t> which;
  DType dtype;
  Device device;
};
void step_adam(const ChosenTensors& chosen, const TensorList& parameters,
               const TensorList& gradients, const TensorList& moments,
               const TensorList& second_moments, const AdamStep& options);
/// @param momenta none where the options have no momentum
void step_sgd(const ChosenTensors& chosen, const TensorList& parameters,
              const TensorList& gradients, const TensorList& momenta, const SgdStep& options);

}  // namespace dtrun::tensors::cuda
