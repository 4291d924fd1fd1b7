#include "cpus/binding.h"

#include <fmt/core.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <set>

#include "dtrun/base/cpu_list.h"
#include "dtrun/base/error.h"

namespace dtrun::launcher {
namespace {

using base::Error;
using base::ErrorCode;

using Cpus = std::vector<Cpu>;

// The CPUs that share a number (of a core, a cache, a node), by that number.
std::map<int, Cpus> grouped(const Cpus& cpus, int Cpu::*by) {
  std::map<int, Cpus> groups;
  for (const Cpu& cpu : cpus) groups[cpu.*by].push_back(cpu);
  return groups;
}

std::vector<int> ids(const Cpus& cpus) {
  std::vector<int> result;
  for (const Cpu& cpu : cpus) result.push_back(cpu.id);
  std::sort(result.begin(), result.end());
  return result;
}

// The node of each rank: its device's where that has CPUs for us, else by blocks.
std::vector<int> nodes_of_ranks(const std::map<int, Cpus>& nodes, int local_ranks,
                                const std::vector<std::optional<int>>& devices) {
  std::vector<int> names;
  for (const auto& [node, cpus] : nodes) names.push_back(node);
  std::vector<int> result;
  for (int rank = 0; rank < local_ranks; ++rank) {
    const auto index = static_cast<std::size_t>(rank);
    const std::optional<int> device = index < devices.size() ? devices[index] : std::nullopt;
    const auto block =
        static_cast<std::size_t>(rank) * names.size() / static_cast<std::size_t>(local_ranks);
    result.push_back(device && nodes.contains(*device) ? *device : names[block]);
  }
  return result;
}

// The cores that the `index`th of `sharers` gets; the first ones get those that are left over.
Cpus share_of_cores(const Cpus& cpus, std::size_t index, std::size_t sharers) {
  const std::map<int, Cpus> cores = grouped(cpus, &Cpu::core);
  const std::size_t each = cores.size() / sharers, over = cores.size() % sharers;
  if (each == 0)
    throw Error(ErrorCode::kUnavailable,
                fmt::format("{} ranks share a NUMA node of {} cores, and each is to have one of "
                            "its own (--numa-binding=exclusive)",
                            sharers, cores.size()),
                "", "start fewer ranks, or bind them by node, socket or core-complex");
  const std::size_t first = index * each + std::min(index, over);
  const std::size_t count = each + (index < over ? 1 : 0);
  Cpus share;
  std::size_t at = 0;
  for (const auto& [core, threads] : cores) {
    if (at >= first && at < first + count)
      share.insert(share.end(), threads.begin(), threads.end());
    ++at;
  }
  return share;
}

Cpus cache_of(const Cpus& cpus, std::size_t index) {
  const std::map<int, Cpus> caches = grouped(cpus, &Cpu::cache);
  return std::next(caches.begin(), static_cast<std::ptrdiff_t>(index % caches.size()))->second;
}

Cpus cpus_of_packages(const MachineTopology& machine, const Cpus& node) {
  std::set<int> packages;
  for (const Cpu& cpu : node) packages.insert(cpu.package);
  Cpus result;
  for (const Cpu& cpu : machine.cpus)
    if (packages.contains(cpu.package)) result.push_back(cpu);
  return result;
}

// The memory nodes that the cpuset allows this process; empty if they cannot be found out.
std::set<int> allowed_memory_nodes() {
  constexpr unsigned long kMostNodes = 4096;
  constexpr unsigned long kBits = 8 * sizeof(unsigned long);
  std::vector<unsigned long> mask(kMostNodes / kBits);
  if (::syscall(SYS_get_mempolicy, nullptr, mask.data(), kMostNodes, nullptr,
                MPOL_F_MEMS_ALLOWED) != 0)
    return {};
  std::set<int> nodes;
  for (unsigned long node = 0; node < kMostNodes; ++node)
    if ((mask[node / kBits] >> node % kBits & 1) != 0) nodes.insert(static_cast<int>(node));
  return nodes;
}

}  // namespace

std::string drop_forbidden_memory(const std::set<int>& allowed, RankBinding& binding) {
  if (!binding.memory_node || allowed.empty() || allowed.contains(*binding.memory_node)) return "";
  const int node = *binding.memory_node;
  binding.memory_node.reset();
  return fmt::format(
      "its CPUs are of NUMA node {}, but the cpuset allows no memory there: memory is not bound",
      node);
}

std::vector<RankBinding> plan_binding(const MachineTopology& machine, BindingKind kind,
                                      int local_ranks) {
  std::vector<RankBinding> result(static_cast<std::size_t>(local_ranks));
  if (kind == BindingKind::kNone || machine.cpus.empty()) return result;
  const std::map<int, Cpus> nodes = grouped(machine.cpus, &Cpu::node);
  const std::vector<int> node_of = nodes_of_ranks(nodes, local_ranks, machine.device_nodes);
  std::map<int, std::size_t> seen;
  for (std::size_t rank = 0; rank < result.size(); ++rank) {
    const Cpus& node = nodes.at(node_of[rank]);
    const std::size_t index = seen[node_of[rank]]++;
    const auto sharers =
        static_cast<std::size_t>(std::count(node_of.begin(), node_of.end(), node_of[rank]));
    RankBinding& binding = result[rank];
    switch (kind) {
      case BindingKind::kNone:
        break;
      case BindingKind::kNode:
        binding.cpus = ids(node);
        break;
      case BindingKind::kSocket:
        binding.cpus = ids(cpus_of_packages(machine, node));
        break;
      case BindingKind::kExclusive:
        binding.cpus = ids(share_of_cores(node, index, sharers));
        break;
      case BindingKind::kCoreComplex:
        binding.cpus = ids(cache_of(node, index));
        break;
    }
    if (nodes.size() > 1) binding.memory_node = node_of[rank];
  }
  return result;
}

int cores_of(const MachineTopology& machine, const RankBinding& binding) {
  std::set<int> cores;
  for (const Cpu& cpu : machine.cpus)
    if (binding.cpus.empty() ||
        std::binary_search(binding.cpus.begin(), binding.cpus.end(), cpu.id))
      cores.insert(cpu.core);
  return static_cast<int>(cores.size());
}

std::string RankBinding::describe() const {
  std::string text = "CPUs " + base::format_cpu_list(cpus);
  if (memory_node) text += fmt::format(", memory of node {} first", *memory_node);
  return text;
}

MemoryRights read_memory_rights() {
  // The policy that a process has by default, so nothing changes.
  const bool may = ::syscall(SYS_set_mempolicy, MPOL_DEFAULT, nullptr, 0) == 0;
  MemoryRights rights{.nodes = {}, .refusal = may ? "" : std::strerror(errno)};
  rights.nodes = allowed_memory_nodes();
  return rights;
}

std::vector<RankBinding> bind_ranks(const MachineTopology& machine, const MemoryRights& memory,
                                    BindingKind kind, int local_ranks,
                                    std::vector<std::string>& warnings) {
  std::vector<RankBinding> bindings = plan_binding(machine, kind, local_ranks);
  for (std::size_t rank = 0; rank < bindings.size(); ++rank)
    if (const std::string warning = drop_forbidden_memory(memory.nodes, bindings[rank]);
        !warning.empty())
      warnings.push_back(fmt::format("dtrun: --numa-binding, local rank {}: {}", rank, warning));
  if (memory.refusal.empty() || !bindings.front().memory_node) return bindings;
  for (RankBinding& binding : bindings) binding.memory_node.reset();
  warnings.push_back(
      fmt::format("dtrun: --numa-binding binds CPUs only: memory cannot be bound here "
                  "(set_mempolicy: {})",
                  memory.refusal));
  return bindings;
}

}  // namespace dtrun::launcher
