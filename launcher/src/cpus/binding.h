// Binding: which CPUs and which memory each local rank gets (--numa-binding). plan_binding() is
// pure; bind_ranks() asks this machine.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cpus/machine_topology.h"

namespace dtrun::launcher {

/// torchrun's values, and none.
enum class BindingKind {
  kNone,
  kNode,         ///< all CPUs of the rank's NUMA node
  kSocket,       ///< all CPUs of its package
  kExclusive,    ///< its share of the node's cores, nobody else's
  kCoreComplex,  ///< the CPUs of one last-level cache of the node
};

struct RankBinding {
  std::vector<int> cpus;           ///< empty: not bound
  std::optional<int> memory_node;  ///< preferred; others are used when it is full

  /// "CPUs 0-3,16-19, memory of node 0 first"
  std::string describe() const;
  friend bool operator==(const RankBinding&, const RankBinding&) = default;
};

/// A rank is near its device where it has one; the ranks of a job on CPUs alone are dealt out over
/// the nodes in blocks. Hardware threads of a core stay together.
/// A local rank's device is the one of its number in machine.device_nodes.
/// @throws Error kUnavailable when kExclusive leaves a rank without a core
std::vector<RankBinding> plan_binding(const MachineTopology& machine, BindingKind kind,
                                      int local_ranks);

/// The kernel refuses a node that the cpuset of this process does not have: such a one is left out.
/// @return why; empty: nothing had to be done
std::string drop_forbidden_memory(const std::set<int>& allowed, RankBinding& binding);

/// How many cores the rank has: for OMP_NUM_THREADS.
int cores_of(const MachineTopology& machine, const RankBinding& binding);

/// On this machine: its CPUs that this process may use, and its GPUs. Where memory cannot be bound
/// (a container without that right), the CPUs are bound alone, with a warning.
/// @throws Error as read_machine()
std::vector<RankBinding> bind_ranks(BindingKind kind, int local_ranks,
                                    std::vector<std::string>& warnings);

}  // namespace dtrun::launcher
