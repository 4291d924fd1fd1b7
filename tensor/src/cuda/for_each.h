// for_each: enqueues body(i) for every i in [0, count). Each kernel of the tensor layer is such a
// body, a struct that is copied to the device, so that a table without a device can run the same
// code on the host, where the tests are. For .cu files only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "dtrun/tensor/cuda_stream.h"

namespace dtrun::tensors::cuda {

inline constexpr unsigned kThreads = 256;

template <typename Body>
__global__ void __launch_bounds__(kThreads) for_each_kernel(Body body, std::int64_t count) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step) {
    body(i);
  }
}

template <typename Body>
void run_on_host(const void* body, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) (*static_cast<const Body*>(body))(i);
}

/// @throws Error
void launch(const KernelLaunch& launch, const Stream& stream);

template <typename Body>
void for_each(std::int64_t count, const Body& body, const Stream& stream) {
  static_assert(std::is_trivially_copyable_v<Body>);
  // Enough to fill any device many times over; each thread takes several elements beyond that.
  constexpr std::int64_t kMaxBlocks = 65536;
  if (count == 0) return;  // an empty grid is an error
  const std::int64_t blocks = std::min((count + kThreads - 1) / kThreads, kMaxBlocks);
  launch({.function = reinterpret_cast<const void*>(&for_each_kernel<Body>),
          .body = &body,
          .body_bytes = sizeof body,
          .count = count,
          .blocks = static_cast<unsigned>(blocks),
          .threads = kThreads,
          .run_on_host = &run_on_host<Body>},
         stream);
}

/// As many elements as one memory access takes.
template <typename T>
struct alignas(16) Pack {
  static constexpr std::int64_t kSize = 16 / sizeof(T);
  T items[kSize];
};

inline bool is_aligned(const void* data) {
  return reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
}

}  // namespace dtrun::tensors::cuda
