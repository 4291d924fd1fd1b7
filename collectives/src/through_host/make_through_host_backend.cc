// Where a staged backend begins, in a build that has CUDA.
#include "make_backend.h"
#include "through_host/through_host_backend.h"

namespace dtrun::collectives {

using base::Error;
using base::ErrorCode;

std::optional<Error> staged_obstacle() {
  if (real_device_api()->device_count() > 0) return std::nullopt;
  return Error(ErrorCode::kUnavailable, "backend 'staged' needs a GPU: this machine has none",
               "no driver, or no device that this process may use (CUDA_VISIBLE_DEVICES)",
               "start the ranks where GPUs are");
}

std::unique_ptr<Backend> make_staged_backend(const GroupOptions& options) {
  std::shared_ptr<DeviceApi> device = real_device_api();
  auto pool = std::make_shared<through_host::PinnedPool>(device);
  return std::make_unique<through_host::ThroughHostBackend>(make_cpu_backend(options),
                                                            std::move(device), std::move(pool));
}

}  // namespace dtrun::collectives
