// Copies and fills of strided elements on one device, by size and not by dtype.
#include <algorithm>
#include <cstdint>

#include "cuda/cuda_check.h"
#include "cuda/device_guard.h"
#include "cuda_memory.h"
#include "dtrun/base/error.h"

namespace dtrun::tensors::cuda {
namespace {

constexpr int kMaxDims = 12;
constexpr int kThreads = 256;
constexpr std::int64_t kMaxBlocks = 65535;

/// Travels to the kernel by value. Two strided operands over one shape, in elements.
struct Layout {
  std::int64_t count;
  int rank;
  std::int64_t sizes[kMaxDims];
  std::int64_t target_strides[kMaxDims];
  std::int64_t source_strides[kMaxDims];
};

Layout make_layout(const Shape& shape, const Strides& target, const Strides& source) {
  if (shape.size() > kMaxDims) {
    throw base::Error(base::ErrorCode::kUnavailable,
                      "a CUDA tensor of shape " + shape_to_string(shape),
                      "CUDA tensors have at most 12 dims", "view() with fewer dims");
  }
  Layout layout{numel(shape), static_cast<int>(shape.size()), {}, {}, {}};
  std::copy(shape.begin(), shape.end(), layout.sizes);
  std::copy(target.begin(), target.end(), layout.target_strides);
  std::copy(source.begin(), source.end(), layout.source_strides);
  return layout;
}

template <typename T>
__global__ void copy_kernel(Layout layout, T* target, const T* source) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       i < layout.count; i += step) {
    std::int64_t rest = i;
    std::int64_t to = 0;
    std::int64_t from = 0;
    for (int d = layout.rank - 1; d >= 0; --d) {
      const std::int64_t position = rest % layout.sizes[d];
      rest /= layout.sizes[d];
      to += position * layout.target_strides[d];
      from += position * layout.source_strides[d];
    }
    target[to] = source[from];
  }
}

template <typename T>
__global__ void fill_kernel(Layout layout, T* target, T value) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       i < layout.count; i += step) {
    std::int64_t rest = i;
    std::int64_t to = 0;
    for (int d = layout.rank - 1; d >= 0; --d) {
      to += rest % layout.sizes[d] * layout.target_strides[d];
      rest /= layout.sizes[d];
    }
    target[to] = value;
  }
}

unsigned blocks_for(std::int64_t count) {
  return static_cast<unsigned>(std::min((count + kThreads - 1) / kThreads, kMaxBlocks));
}

template <typename T>
void launch_copy(const Layout& layout, void* target, const void* source) {
  copy_kernel<<<blocks_for(layout.count), kThreads>>>(layout, static_cast<T*>(target),
                                                      static_cast<const T*>(source));
}

template <typename T>
void launch_fill(const Layout& layout, void* target, std::uint64_t bits) {
  fill_kernel<<<blocks_for(layout.count), kThreads>>>(layout, static_cast<T*>(target),
                                                      static_cast<T>(bits));
}

}  // namespace

void copy_strided(const Shape& shape, const StridedElements& target, const StridedElements& source,
                  std::size_t item_size, int device_index) {
  const Layout layout = make_layout(shape, target.strides, source.strides);
  if (layout.count == 0) return;
  const DeviceGuard guard(device_index);
  switch (item_size) {
    case 1:
      launch_copy<std::uint8_t>(layout, target.data, source.data);
      break;
    case 2:
      launch_copy<std::uint16_t>(layout, target.data, source.data);
      break;
    case 4:
      launch_copy<std::uint32_t>(layout, target.data, source.data);
      break;
    default:
      launch_copy<std::uint64_t>(layout, target.data, source.data);
  }
  DT_CUDA(cudaGetLastError());
  DT_CUDA(cudaDeviceSynchronize());
}

void fill_strided(const Shape& shape, const StridedElements& target, std::uint64_t bits,
                  std::size_t item_size, int device_index) {
  const Layout layout = make_layout(shape, target.strides, target.strides);
  if (layout.count == 0) return;
  const DeviceGuard guard(device_index);
  switch (item_size) {
    case 1:
      launch_fill<std::uint8_t>(layout, target.data, bits);
      break;
    case 2:
      launch_fill<std::uint16_t>(layout, target.data, bits);
      break;
    case 4:
      launch_fill<std::uint32_t>(layout, target.data, bits);
      break;
    default:
      launch_fill<std::uint64_t>(layout, target.data, bits);
  }
  DT_CUDA(cudaGetLastError());
  DT_CUDA(cudaDeviceSynchronize());
}

}  // namespace dtrun::tensors::cuda
