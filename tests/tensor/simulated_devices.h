// SimulatedDevices: CUDA devices, two of them, for the life of the object: all kernels run on the
// host. For tests of what stands above the tensor layer. One at a time in a process.
#pragma once

#include <memory>

namespace dtrun::tensors::cuda {

class SimulatedDevices {
 public:
  SimulatedDevices();
  ~SimulatedDevices();
  SimulatedDevices(const SimulatedDevices&) = delete;
  SimulatedDevices& operator=(const SimulatedDevices&) = delete;

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

}  // namespace dtrun::tensors::cuda
