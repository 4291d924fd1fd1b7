// What the tensor layer asks of CUDA's memory. The work goes to the current stream of the tensors'
// device.
#pragma once

#include <cstddef>

#include "dtrun/tensor/tensor.h"

namespace dtrun::tensors::cuda {

void* allocate(std::size_t bytes, int device_index);
/// Never throws: it runs in destructors.
void release(void* data, int device_index) noexcept;
/// Two contiguous tensors of one size, of which at least one is on a device. Returns when host
/// memory that takes part may be used again; between devices at once.
void copy_bytes(const LocalTensor& target, const LocalTensor& source);

}  // namespace dtrun::tensors::cuda
