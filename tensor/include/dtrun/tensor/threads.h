// How many threads the calling thread's operations on CPU tensors use. Belongs to the thread, since
// ranks may be threads of one process. No result depends on it.
#pragma once

namespace dtrun::tensors {

/// The calling thread included. OMP_NUM_THREADS, which dtrun sets; else the CPUs that this process
/// may use, not more than its cgroups' quota, shared with the ranks on this machine
/// (LOCAL_WORLD_SIZE).
int num_threads();
/// For the calling thread, from now on. @throws Error kInvalidArgument unless count is in [1, 1024]
void set_num_threads(int count);

}  // namespace dtrun::tensors
