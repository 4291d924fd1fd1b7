// cuda/rows.h of a build without CUDA.
#include "cuda/rows.h"

#include "no_cuda/absent.h"

namespace dtrun::tensors::cuda {

void softmax_rows(SoftmaxForm, const LocalTensor&, const LocalTensor&, int) {
  throw_absent();
}
void softmax_rows_backward(SoftmaxForm, const LocalTensor&, const LocalTensor&, const LocalTensor&,
                           int) {
  throw_absent();
}
void norm_rows_forward(NormForm, const LocalTensor&, const LocalTensor&, const NormTensors&,
                       double) {
  throw_absent();
}
void norm_rows_moments(NormForm, const LocalTensor&, const NormTensors&, double) {
  throw_absent();
}
void norm_rows_backward(NormForm, const LocalTensor&, const LocalTensor&, const LocalTensor&,
                        const NormTensors&) {
  throw_absent();
}
std::int64_t norm_chunks(std::int64_t) {
  throw_absent();
}
void norm_rows_sums(const NormSums&, const LocalTensor&, const LocalTensor&, const NormTensors&) {
  throw_absent();
}
void cross_entropy_losses(const CrossEntropy&, const LocalTensor&, const LocalTensor&,
                          std::int64_t) {
  throw_absent();
}
void cross_entropy_gradients(const LocalTensor&, const LocalTensor&, const LocalTensor&,
                             const LocalTensor&, const LocalTensor&, std::int64_t, std::int64_t) {
  throw_absent();
}

}  // namespace dtrun::tensors::cuda
