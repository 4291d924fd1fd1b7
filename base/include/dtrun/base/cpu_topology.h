// CpuTopology: which CPUs this process may use, and how they lie: core, last-level cache, NUMA
// node, package. Values; read once.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dtrun::base {

/// The kernel's notation, "0-3,8", sorted and each once.
/// @throws Error kInvalidArgument
std::vector<int> parse_cpu_list(std::string_view text);
std::string format_cpu_list(const std::vector<int>& cpus);

struct Cpu {
  int id = 0;
  int core = 0;     ///< the lowest id of its hardware threads
  int cache = 0;    ///< the lowest id of those that share its last-level cache
  int node = 0;     ///< NUMA
  int package = 0;  ///< socket
  friend bool operator==(const Cpu&, const Cpu&) = default;
};

struct CpuTopology {
  std::vector<Cpu> cpus;  ///< by id

  /// Of the CPUs that this process may use (its affinity, which a cgroup's cpuset bounds).
  /// @throws Error kSystem
  static CpuTopology of_this_process();
  /// @param root "/sys/devices/system", or a tree like it
  /// @param allowed CPU ids; a CPU counts as alone in whatever the tree does not say about it
  static CpuTopology read(const std::string& root, const std::vector<int>& allowed);
};

/// The CPUs in sched_getaffinity's answer. @throws Error kSystem
std::vector<int> allowed_cpus();

}  // namespace dtrun::base
