// What the tensor layer asks of CUDA: memory, copies, fills. Implemented in cuda/ where the toolkit
// was found, and in no_cuda/, where each throws kUnavailable, where not. Calls return when the work
// is done. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dtrun/tensor/device.h"
#include "dtrun/tensor/shape.h"

namespace dtrun::tensors::cuda {

void* allocate(std::size_t bytes, int device_index);
/// Never throws: it runs in destructors.
void release(void* data, int device_index) noexcept;
/// Between any two places of which at least one is a CUDA device.
void copy(void* target, Device target_device, const void* source, Device source_device,
          std::size_t bytes);

/// Elements in one device's memory; strides in elements.
struct StridedElements {
  void* data;
  Strides strides;
};
/// Copies elements of item_size bytes (1, 2, 4 or 8) within one device.
void copy_strided(const Shape& shape, const StridedElements& target, const StridedElements& source,
                  std::size_t item_size, int device_index);
/// Sets every element to the first item_size bytes of `bits`.
void fill_strided(const Shape& shape, const StridedElements& target, std::uint64_t bits,
                  std::size_t item_size, int device_index);

}  // namespace dtrun::tensors::cuda
