#include "cpus/machine_topology.h"

#include "dtrun/base/cpu_list.h"
#include "dtrun/base/dynamic_library.h"
#include "dtrun/base/error.h"

namespace dtrun::launcher {

using base::Error;
using base::ErrorCode;

MachineTopology read_machine(const std::vector<int>& allowed,
                             const std::vector<std::string>& devices) {
  // Where the program was linked to look (DT_RUNPATH), or where the machine's libraries are.
  static const base::DynamicLibrary module({"libdtrun-hwloc.so"});
  ReadWithHwloc read = nullptr;
  if (!module.opened() || !module.find(kReadWithHwloc, read)) {
    throw Error(ErrorCode::kUnavailable, "the machine's topology cannot be read without hwloc",
                module.opened() ? "libdtrun-hwloc.so is of another version" : module.reason(),
                "install libhwloc15 and the dtrun that was built with it (libhwloc-dev), or leave "
                "out --numa-binding and --omp-threads=share");
  }
  MachineTopology machine;
  const std::string reason = read(allowed, devices, machine);
  if (!reason.empty()) {
    throw Error(ErrorCode::kSystem, "hwloc cannot read the machine's topology", reason,
                "lstopo says more; unset HWLOC_* where they are set");
  }
  // Without this check no rank would be bound to anything, and nobody would notice.
  if (machine.cpus.empty() && !allowed.empty()) {
    throw Error(ErrorCode::kSystem, "hwloc knows no CPU that this process may use",
                "these are CPUs " + base::format_cpu_list(allowed),
                "lstopo shows which ones it knows; unset HWLOC_* where they are set");
  }
  return machine;
}

}  // namespace dtrun::launcher
