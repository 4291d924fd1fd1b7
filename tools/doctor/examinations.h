// The examinations of dtrun-doctor. Each looks at this machine as this process sees it: its limits,
// namespaces and environment. None changes anything, and none waits for another machine but for the
// resolver of host names.
#pragma once

#include "doctor/finding.h"

namespace dtrun::doctor {

/// Open files, processes, locked memory, /dev/shm, temporary files, memory, cgroups, core files.
Findings examine_limits();
/// The host's name and addresses, ports, the listen queue.
/// @param port that jobs of several nodes meet at
Findings examine_network(int port);
/// CPUs and threads, GPUs with their driver and NCCL, huge pages, the clock.
Findings examine_hardware();
/// dtrun itself, Slurm, PMI, and programs that show stacks.
Findings examine_software();

}  // namespace dtrun::doctor
