// Backends of a program's own, by name. Process-wide; thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "dtrun/collectives/backend.h"
#include "dtrun/collectives/process_group.h"
#include "dtrun/tensor/device.h"

namespace dtrun::collectives {

/// Makes one rank's backend of a new group: on each of its ranks, which may meet in the options'
/// store. What it throws fails the making of the group, on this rank.
using BackendFactory = std::function<std::unique_ptr<Backend>(const GroupOptions& options)>;

/// From now on, and until the process ends, that name means what the factory makes, wherever the
/// name of a backend is written: "name", "cpu:name". Each rank that is to be in such a group
/// registers it before. @param device of the tensors that it takes
/// @throws Error kInvalidArgument for a name of dtrun's own or one that is registered already, for
/// one that is not made of a to z, 0 to 9, _ and -, and for an empty factory
void register_backend(const std::string& name, BackendFactory factory,
                      tensors::DeviceType device = tensors::DeviceType::cpu);

}  // namespace dtrun::collectives
