#include "tensor/simulated_devices.h"

#include "cuda/context.h"
#include "tensor/simulated_cuda.h"

namespace dtrun::tensors::cuda {

struct SimulatedDevices::Context {
  SimulatedCuda simulation;
  CudaContext context{SimulatedCuda::api(), SimulatedCuda::blas()};
  ContextGuard guard{context};
};

SimulatedDevices::SimulatedDevices() : context_(std::make_unique<Context>()) {}
SimulatedDevices::~SimulatedDevices() = default;

const CudaApi& SimulatedDevices::api() {
  return SimulatedCuda::api();
}

}  // namespace dtrun::tensors::cuda
