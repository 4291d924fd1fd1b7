// CudaDevices: where the GPUs are that a program started here would see, in the order in which CUDA
// numbers them. That order is CUDA's own (the fastest first, unless CUDA_DEVICE_ORDER says
// otherwise), and CUDA_VISIBLE_DEVICES picks among them by number or by name: the driver is asked.
#pragma once

#include <string>
#include <vector>

namespace dtrun::launcher {

/// PCI addresses, "0000:3b:00.0". None without a driver, or without devices. Opens the driver,
/// which takes a tenth of a second and more, so it is called only if binding is asked for.
std::vector<std::string> visible_cuda_devices();

}  // namespace dtrun::launcher
