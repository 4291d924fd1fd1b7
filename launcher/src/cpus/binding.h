// Binding: which CPUs and which memory each local rank gets (--numa-binding). plan_binding() is
// pure; bind_ranks() asks this machine.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "dtrun/base/cpu_topology.h"

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
/// @param device_nodes NUMA node of each local rank's device; empty, or nullopt: none is known
/// @throws Error kUnavailable when kExclusive leaves a rank without a core
std::vector<RankBinding> plan_binding(const base::CpuTopology& topology, BindingKind kind,
                                      int local_ranks,
                                      const std::vector<std::optional<int>>& device_nodes);

/// The kernel refuses a node that the cpuset of this process does not have: such a one is left out.
/// @return why; empty: nothing had to be done
std::string drop_forbidden_memory(const std::set<int>& allowed, RankBinding& binding);

/// How many cores the rank has: for OMP_NUM_THREADS.
int cores_of(const base::CpuTopology& topology, const RankBinding& binding);

/// The nodes of the devices that the ranks see: CUDA_VISIBLE_DEVICES picks among the machine's.
std::vector<std::optional<int>> visible_nodes(const std::vector<std::optional<int>>& machine,
                                              const std::optional<std::string>& visible_devices);

/// On this machine: its CPUs that this process may use, and its GPUs. Where memory cannot be bound
/// (a container without that right), the CPUs are bound alone, with a warning.
std::vector<RankBinding> bind_ranks(BindingKind kind, int local_ranks,
                                    const std::optional<std::string>& visible_devices,
                                    std::vector<std::string>& warnings);

}  // namespace dtrun::launcher
