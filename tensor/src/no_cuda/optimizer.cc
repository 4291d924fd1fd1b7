// cuda/optimizer.h of a build without CUDA.
#include "cuda/optimizer.h"

#include "no_cuda/absent.h"

namespace dtrun::tensors::cuda {

void step_adam(const ChosenTensors&, const TensorList&, const TensorList&, const TensorList&,
               const TensorList&, const AdamStep&) {
  throw_absent();
}
void step_sgd(const ChosenTensors&, const TensorList&, const TensorList&, const TensorList&,
              const SgdStep&) {
  throw_absent();
}

}  // namespace dtrun::tensors::cuda
