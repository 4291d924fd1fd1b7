// Binding: which CPUs and which memory each local rank gets (--numa-binding). Pure but for
// device_nodes().
#pragma once

#include <optional>
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
  friend bool operator==(const RankBinding&, const RankBinding&) = default;
};

/// A rank is near its device where it has one; the ranks of a job on CPUs alone are dealt out over
/// the nodes in blocks. Hardware threads of a core stay together.
/// @param device_nodes NUMA node of each local rank's device; empty, or nullopt: none is known
/// @throws Error kUnavailable when kExclusive leaves a rank without a core
std::vector<RankBinding> plan_binding(const base::CpuTopology& topology, BindingKind kind,
                                      int local_ranks,
                                      const std::vector<std::optional<int>>& device_nodes);

/// How many cores the rank has: for OMP_NUM_THREADS.
int cores_of(const base::CpuTopology& topology, const RankBinding& binding);

/// NUMA nodes of the machine's GPUs in the order of their PCI addresses.
std::vector<std::optional<int>> device_nodes();

}  // namespace dtrun::launcher
