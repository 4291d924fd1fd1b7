// SimulatedDevices: CUDA devices, two of them, for the life of the object: all kernels run on the
// host. For tests of what stands above the tensor layer. One at a time in a process.
#pragma once

#include <memory>

#include "dtrun/tensor/cuda_api.h"

namespace dtrun::tensors::cuda {

class SimulatedDevices {
 public:
  SimulatedDevices();
  ~SimulatedDevices();
  SimulatedDevices(const SimulatedDevices&) = delete;
  SimulatedDevices& operator=(const SimulatedDevices&) = delete;

  static const CudaApi& api();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

}  // namespace dtrun::tensors::cuda
