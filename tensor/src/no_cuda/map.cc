// cuda/map.h of a build without CUDA.
#include "cuda/map.h"

#include "no_cuda/absent.h"

namespace dtrun::tensors::cuda {

void map(const MapCall&) {
  throw_absent();
}

}  // namespace dtrun::tensors::cuda
