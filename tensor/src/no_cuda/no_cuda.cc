// CUDA in a build without it: every symbol of cuda_memory.h and cuda.h.
#include <fmt/core.h>

#include "cuda_memory.h"
#include "dtrun/base/error.h"
#include "dtrun/tensor/cuda.h"

namespace dtrun::tensors::cuda {
namespace {

[[noreturn]] void unavailable(int device_index) {
  throw base::Error(base::ErrorCode::kUnavailable, fmt::format("cannot use cuda:{}", device_index),
                    "built without CUDA",
                    "configure with -DDTRUN_CUDA=ON where the CUDA toolkit is, or use the cpu");
}

}  // namespace

bool is_built() {
  return false;
}

int device_count() {
  return 0;
}

void* allocate(std::size_t, int device_index) {
  unavailable(device_index);
}

void release(void*, int) noexcept {}

void copy(void*, Device target_device, const void*, Device source_device, std::size_t) {
  unavailable(target_device.is_cpu() ? source_device.index : target_device.index);
}

void copy_strided(const Shape&, const StridedElements&, const StridedElements&, std::size_t,
                  int device_index) {
  unavailable(device_index);
}

void fill_strided(const Shape&, const StridedElements&, std::uint64_t, std::size_t,
                  int device_index) {
  unavailable(device_index);
}

}  // namespace dtrun::tensors::cuda
