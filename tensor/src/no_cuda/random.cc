// cuda/random.h of a build without CUDA.
#include "cuda/random.h"

#include "no_cuda/absent.h"

namespace dtrun::tensors::cuda {

void fill_random(const LocalTensor&, const RandomBlock&, const RandomNumbers&) {
  throw_absent();
}

}  // namespace dtrun::tensors::cuda
