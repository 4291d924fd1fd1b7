#include "cuda_memory.h"

#include "cuda/cuda_check.h"
#include "cuda/device_guard.h"
#include "dtrun/tensor/cuda.h"

namespace dtrun::tensors::cuda {

bool is_built() {
  return true;
}

int device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();  // no driver is an answer, not an error
  return 0;
}

void* allocate(std::size_t bytes, int device_index) {
  const DeviceGuard guard(device_index);
  void* data = nullptr;
  // cudaMalloc gives nullptr for 0 bytes; every tensor has an address.
  DT_CUDA(cudaMalloc(&data, bytes == 0 ? 1 : bytes));
  return data;
}

void release(void* data, int) noexcept {
  // The pointer tells the device. At exit the runtime may be gone, and the memory with it.
  if (cudaFree(data) != cudaSuccess) cudaGetLastError();
}

void copy(void* target, Device target_device, const void* source, Device source_device,
          std::size_t bytes) {
  const DeviceGuard guard(target_device.is_cpu() ? source_device.index : target_device.index);
  if (target_device.is_cpu()) {
    DT_CUDA(cudaMemcpy(target, source, bytes, cudaMemcpyDeviceToHost));
  } else if (source_device.is_cpu()) {
    DT_CUDA(cudaMemcpy(target, source, bytes, cudaMemcpyHostToDevice));
  } else {
    DT_CUDA(cudaMemcpyPeer(target, target_device.index, source, source_device.index, bytes));
  }
  DT_CUDA(cudaDeviceSynchronize());  // copies towards a device return early
}

}  // namespace dtrun::tensors::cuda
