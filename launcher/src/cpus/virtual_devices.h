// VirtualDevices: --virtual-local-rank: every rank has LOCAL_RANK=0 and sees one device, its own,
// so that programs need not choose theirs. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace dtrun::launcher {

/// CUDA_VISIBLE_DEVICES of each local rank: the entry of its number in the list that is in force,
/// or its number where there is none.
/// @throws Error kUsage where the list has too few entries
std::vector<std::string> virtual_devices(int local_ranks,
                                         const std::optional<std::string>& visible_devices);

}  // namespace dtrun::launcher
