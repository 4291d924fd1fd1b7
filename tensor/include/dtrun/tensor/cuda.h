// What of CUDA is here. Never fails: a build without CUDA, or a machine without its driver, has no
// devices.
#pragma once

namespace dtrun::tensors::cuda {

/// CUDA support is compiled in.
bool is_built();
/// Devices that this process can use; 0 without driver or build.
int device_count();

}  // namespace dtrun::tensors::cuda
