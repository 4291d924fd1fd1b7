// Groups of ranks that need not exist, for planned meshes: their calls are refused by name.
#pragma once

#include <string>
#include <vector>

#include "dtrun/collectives/process_group.h"
#include "dtrun/tensor/device.h"

namespace dtrun::dtensor {

/// @param rank this process' place among `global_ranks`
collectives::ProcessGroup planned_group(std::vector<int> global_ranks, int rank, std::string name,
                                        tensors::DeviceType device_type);
bool is_planned(const collectives::ProcessGroup& group);

/// The group of those ranks of `parent`, of which this one is one. Made by its members, or, of a
/// planned group, planned. @throws Error as ProcessGroup::subgroup()
collectives::ProcessGroup group_of_members(const collectives::ProcessGroup& parent,
                                           const std::vector<int>& ranks, const std::string& name);

}  // namespace dtrun::dtensor
