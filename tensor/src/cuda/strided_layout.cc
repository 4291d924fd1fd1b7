#include "cuda/strided_layout.h"

#include "dtrun/base/error.h"

namespace dtrun::tensors::cuda {

void refuse_dims(const Shape& shape) {
  throw base::Error(base::ErrorCode::kInvalidArgument,
                    "a strided CUDA tensor of shape " + shape_to_string(shape),
                    "kernels walk over at most 12 dims that are no run of elements",
                    "to() the cpu and contiguous() there first, or fewer dims");
}

}  // namespace dtrun::tensors::cuda
