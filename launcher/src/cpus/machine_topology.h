// MachineTopology: how the CPUs that this process may use and its GPUs lie, as hwloc knows it.
// hwloc is opened when somebody asks, through the module libdtrun-hwloc.so: the launcher starts
// without it. HWLOC_SYNTHETIC and HWLOC_XMLFILE describe another machine.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace dtrun::launcher {

struct Cpu {
  int id = 0;
  int core = 0;     ///< the lowest id of its hardware threads
  int cache = 0;    ///< the lowest id of those that share its last-level cache
  int node = 0;     ///< NUMA
  int package = 0;  ///< socket
  friend bool operator==(const Cpu&, const Cpu&) = default;
};

struct MachineTopology {
  std::vector<Cpu> cpus;                         ///< by id
  std::vector<std::optional<int>> device_nodes;  ///< NUMA nodes; nullopt: not known
};

/// @param allowed CPU ids; those that the machine does not have are left out
/// @param devices PCI addresses, "0000:3b:00.0"
/// @throws Error kUnavailable without the module or hwloc; kSystem where hwloc cannot read it, or
/// knows none of the allowed CPUs
MachineTopology read_machine(const std::vector<int>& allowed,
                             const std::vector<std::string>& devices);

/// What the module holds: fills `machine`. @return empty, or why it could not be read
using ReadWithHwloc = std::string (*)(const std::vector<int>& allowed,
                                      const std::vector<std::string>& devices,
                                      MachineTopology& machine);
inline constexpr const char* kReadWithHwloc = "dtrun_read_with_hwloc";

}  // namespace dtrun::launcher
