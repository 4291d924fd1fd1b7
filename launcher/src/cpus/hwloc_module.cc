// The module libdtrun-hwloc.so: reads the machine's topology with hwloc.
#include <hwloc.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "cpus/machine_topology.h"

namespace dtrun::launcher {
namespace {

using Topology = std::unique_ptr<hwloc_topology, void (*)(hwloc_topology_t)>;

// CPUs that a cgroup forbids are read, too: a core has the same name in every container.
Topology loaded() {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) return {nullptr, hwloc_topology_destroy};
  Topology result(topology, hwloc_topology_destroy);
  hwloc_topology_set_flags(
      topology, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED | HWLOC_TOPOLOGY_FLAG_IMPORT_SUPPORT);
  hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  if (hwloc_topology_load(topology) != 0) result.reset();
  return result;
}

int lowest_cpu_of(hwloc_obj_t object) {
  return hwloc_bitmap_first(object->cpuset);
}

/// The outermost cache around a CPU; null: none is known.
hwloc_obj_t last_cache(hwloc_obj_t cpu) {
  hwloc_obj_t last = nullptr;
  for (hwloc_obj_t object = cpu->parent; object != nullptr; object = object->parent)
    if (hwloc_obj_type_is_dcache(object->type) != 0) last = object;
  return last;
}

Cpu described(hwloc_topology_t topology, hwloc_obj_t cpu) {
  const int id = static_cast<int>(cpu->os_index);
  Cpu one{.id = id, .core = id, .cache = id};
  if (const hwloc_obj_t core = hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_CORE, cpu))
    one.core = lowest_cpu_of(core);
  if (const hwloc_obj_t cache = last_cache(cpu)) one.cache = lowest_cpu_of(cache);
  if (const hwloc_obj_t package = hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_PACKAGE, cpu))
    one.package = static_cast<int>(package->os_index);
  if (const int node = hwloc_bitmap_first(cpu->nodeset); node >= 0) one.node = node;
  return one;
}

std::optional<int> node_of_device(hwloc_topology_t topology, const std::string& address) {
  const hwloc_obj_t device = hwloc_get_pcidev_by_busidstring(topology, address.c_str());
  if (device == nullptr) return std::nullopt;
  const hwloc_obj_t place = hwloc_get_non_io_ancestor_obj(topology, device);
  // A device that is attached to the whole machine is equally near to all nodes.
  if (place == nullptr || hwloc_bitmap_weight(place->nodeset) != 1) return std::nullopt;
  return hwloc_bitmap_first(place->nodeset);
}

}  // namespace

// NOLINTNEXTLINE: both sides are compiled together
extern "C" std::string dtrun_read_with_hwloc(const std::vector<int>& allowed,
                                             const std::vector<std::string>& devices,
                                             MachineTopology& machine) {
  const Topology topology = loaded();
  if (!topology) return std::strerror(errno);
  for (const int id : allowed) {
    const hwloc_obj_t cpu = hwloc_get_pu_obj_by_os_index(topology.get(), static_cast<unsigned>(id));
    if (cpu != nullptr) machine.cpus.push_back(described(topology.get(), cpu));
  }
  for (const std::string& address : devices)
    machine.device_nodes.push_back(node_of_device(topology.get(), address));
  return "";
}

}  // namespace dtrun::launcher
