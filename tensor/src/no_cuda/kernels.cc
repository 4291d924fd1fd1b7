// The kernels of a build without CUDA: every symbol of cuda/kernels.h.
#include "cuda/kernels.h"

#include "dtrun/base/error.h"
#include "no_cuda/absent.h"

namespace dtrun::tensors::cuda {

void throw_absent() {
  throw base::Error(base::ErrorCode::kUnavailable, "cannot run a kernel on a CUDA device",
                    "built without CUDA",
                    "configure with -DDTRUN_CUDA=ON where the CUDA toolkit is, or use the cpu");
}

void convert(const LocalTensor&, const LocalTensor&) {
  throw_absent();
}
void fill(const LocalTensor&, std::uint64_t) {
  throw_absent();
}
void clear_if_different(const LocalTensor&, const LocalTensor&, const LocalTensor&) {
  throw_absent();
}
void fill_sequence(const LocalTensor&, double, double, std::int64_t) {
  throw_absent();
}
void fill_line(const LocalTensor&, const Line&, std::int64_t) {
  throw_absent();
}
void clear_beside(const LocalTensor&, std::int64_t, Triangle) {
  throw_absent();
}
void multiply_integers(const LocalTensor&, const LocalTensor&, const LocalTensor&) {
  throw_absent();
}
void enqueue_combine(CombineOp, DType, void*, const void*, std::int64_t, const Stream&) {
  throw_absent();
}
void enqueue_divide(DType, void*, std::int64_t, std::int64_t, const Stream&) {
  throw_absent();
}

}  // namespace dtrun::tensors::cuda
