#include "cuda/cuda_check.h"

#include <fmt/core.h>

#include "dtrun/base/error.h"

namespace dtrun::tensors::cuda {
namespace {

bool means_no_device(cudaError_t status) {
  return status == cudaErrorNoDevice || status == cudaErrorInsufficientDriver ||
         status == cudaErrorInvalidDevice || status == cudaErrorDevicesUnavailable ||
         status == cudaErrorSystemDriverMismatch || status == cudaErrorStubLibrary;
}

}  // namespace

void check(cudaError_t status, const char* action) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // or the next, unrelated call reports it again
  const std::string reason =
      fmt::format("{} ({})", cudaGetErrorString(status), cudaGetErrorName(status));
  if (means_no_device(status)) {
    throw base::Error(base::ErrorCode::kUnavailable, "cannot use CUDA here", reason,
                      "a machine with an NVIDIA driver and that device, or the cpu");
  }
  throw base::Error(base::ErrorCode::kSystem, fmt::format("cannot run {}", action), reason);
}

}  // namespace dtrun::tensors::cuda
