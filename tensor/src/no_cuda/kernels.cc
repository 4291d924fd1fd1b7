// The kernels of a build without CUDA: every symbol of cuda/kernels.h.
#include "cuda/kernels.h"

#include "dtrun/base/error.h"

namespace dtrun::tensors::cuda {
namespace {

[[noreturn]] void unavailable() {
  throw base::Error(base::ErrorCode::kUnavailable, "cannot run a kernel on a CUDA device",
                    "built without CUDA",
                    "configure with -DDTRUN_CUDA=ON where the CUDA toolkit is, or use the cpu");
}

}  // namespace

void convert(const LocalTensor&, const LocalTensor&) {
  unavailable();
}
void fill(const LocalTensor&, std::uint64_t) {
  unavailable();
}
void binary(BinaryOp, const LocalTensor&, const LocalTensor&, const LocalTensor&) {
  unavailable();
}
void clear_if_different(const LocalTensor&, const LocalTensor&, const LocalTensor&) {
  unavailable();
}
void sum_rows(const LocalTensor&, const LocalTensor&, std::int64_t) {
  unavailable();
}
void fill_normal(const LocalTensor&, const Shape&, const Shape&, RandomKey) {
  unavailable();
}
void fill_sequence(const LocalTensor&, double, double) {
  unavailable();
}
void multiply_integers(const LocalTensor&, const LocalTensor&, const LocalTensor&) {
  unavailable();
}
void enqueue_combine(CombineOp, DType, void*, const void*, std::int64_t, const Stream&) {
  unavailable();
}
void enqueue_divide(DType, void*, std::int64_t, std::int64_t, const Stream&) {
  unavailable();
}

}  // namespace dtrun::tensors::cuda
