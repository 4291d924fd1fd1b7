// DeviceGuard: makes a device the thread's current one for the guard's life.
#pragma once

#include "cuda/cuda_check.h"

namespace dtrun::tensors::cuda {

class DeviceGuard {
 public:
  explicit DeviceGuard(int device_index) {
    DT_CUDA(cudaGetDevice(&previous_));
    DT_CUDA(cudaSetDevice(device_index));
  }
  ~DeviceGuard() { cudaSetDevice(previous_); }  // it was current before: nothing to report
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int previous_ = 0;
};

}  // namespace dtrun::tensors::cuda
