// Autogroup: the kernel's scheduling of sessions (sched_autogroup_enabled, see sched(7)). Where it
// is on, the CPUs are shared among sessions first, and among the processes of each then: ranks in
// one session get together what any other session gets.
#pragma once

namespace dtrun::launcher {

/// Whether ranks need sessions of their own to get as much of the CPUs as other processes do.
bool sessions_share_the_cpus();

}  // namespace dtrun::launcher
