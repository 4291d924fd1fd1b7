// Binding: which CPUs and which memory each local rank gets (--numa-binding). Pure, but for
// read_memory_rights(), which asks this machine.
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

/// Whether this process may bind memory, and to which nodes.
struct MemoryRights {
  std::set<int> nodes;  ///< that its cpuset allows; empty: not known
  std::string refusal;  ///< why memory cannot be bound at all, as in a container; empty: it can be
};

MemoryRights read_memory_rights();

/// plan_binding() within these rights. Where memory cannot be bound, the CPUs are bound alone, with
/// a warning.
/// @throws Error as plan_binding()
std::vector<RankBinding> bind_ranks(const MachineTopology& machine, const MemoryRights& memory,
                                    BindingKind kind, int local_ranks,
                                    std::vector<std::string>& warnings);

}  // namespace dtrun::launcher
