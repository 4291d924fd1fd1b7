#include "cuda/context.h"
#include "dtrun/tensor/cuda.h"

namespace dtrun::tensors::cuda {

void launch(const KernelLaunch& launch, const Stream& stream) {
  const DeviceGuard guard(stream.device_index());
  check(context().api.launch_kernel(launch, stream.handle()), "start a kernel");
}

}  // namespace dtrun::tensors::cuda
