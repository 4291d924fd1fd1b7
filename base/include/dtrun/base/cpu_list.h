// CPU lists: the kernel's notation of a set of CPUs, and those that this process may use.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dtrun::base {

/// The kernel's notation, "0-3,8", sorted and each once.
/// @throws Error kInvalidArgument
std::vector<int> parse_cpu_list(std::string_view text);
std::string format_cpu_list(const std::vector<int>& cpus);

/// The CPUs in sched_getaffinity's answer: this process' affinity, which a cgroup's cpuset bounds.
/// @throws Error kSystem
std::vector<int> allowed_cpus();

}  // namespace dtrun::base
