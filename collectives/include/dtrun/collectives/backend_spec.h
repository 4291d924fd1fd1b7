// BackendSpec: which backend serves which device type, read from what a user writes.
#pragma once

#include <string>

#include "dtrun/tensor/device.h"

namespace dtrun::collectives {

/// Names of backends; empty: tensors of that device type are refused.
struct BackendSpec {
  std::string cpu;
  std::string cuda;

  const std::string& of(tensors::DeviceType type) const {
    return type == tensors::DeviceType::cuda ? cuda : cpu;
  }
  /// "cpu", "cpu:gloo,cuda:nccl".
  std::string to_string() const;
};

/// "cpu:gloo,cuda:nccl" names one per device type. A single name serves the device types of its
/// own: "cpu", "gloo", "mpi" CPU tensors; "nccl", "staged" CUDA tensors; what the program has
/// registered, those it was registered for.
/// @throws Error kInvalidArgument for an unknown name, an unknown device or one named twice, with
/// the list of what is there
BackendSpec parse_backend_spec(const std::string& text);

}  // namespace dtrun::collectives
