// How many GPUs and CPUs this node has for a job. GPUs are counted without CUDA: NVML where its
// library is, else /proc.
#pragma once

#include <optional>
#include <string>

namespace dtrun::launcher {

inline constexpr const char* kVisibleDevices = "CUDA_VISIBLE_DEVICES";

/// @param visible CUDA_VISIBLE_DEVICES: unset means all, empty means none
int count_gpus(const std::optional<std::string>& visible);

/// How many of `present` GPUs the list lets through. As CUDA does, it is read up to the first entry
/// that does not exist.
int count_visible(int present, const std::string& visible);

/// CPUs that this process may run on.
int count_cpus();

}  // namespace dtrun::launcher
