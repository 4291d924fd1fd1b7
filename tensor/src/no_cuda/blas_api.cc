// cuBLAS in a build without CUDA. Nothing gets here: there are no tensors to multiply.
#include "cuda/blas_api.h"

#include "dtrun/base/error.h"

namespace dtrun::tensors::cuda {
namespace {

constexpr BlasApi kNoBlas{
    .require =
        [] {
          throw base::Error(base::ErrorCode::kUnavailable, "cannot multiply matrices with cuBLAS",
                            "built without CUDA",
                            "build where a CUDA toolkit is found, or the cpu");
        },
    .create = [](BlasHandle*, StreamHandle) { return 1; },
    .multiply = [](BlasHandle, const Gemm&) { return 1; },
    .status_text = [](int) { return "built without CUDA"; },
};

}  // namespace

const BlasApi& library_blas() {
  return kNoBlas;
}

}  // namespace dtrun::tensors::cuda
