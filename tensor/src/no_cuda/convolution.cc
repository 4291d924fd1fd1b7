// cuda/convolution.h of a build without CUDA.
#include "cuda/convolution.h"

#include "no_cuda/absent.h"

namespace dtrun::tensors::cuda {

void images_to_columns(const LocalTensor&, const LocalTensor&, const ColumnSizes&) {
  throw_absent();
}
void columns_to_images(const LocalTensor&, const LocalTensor&, const ColumnSizes&) {
  throw_absent();
}

}  // namespace dtrun::tensors::cuda
