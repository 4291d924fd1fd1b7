// How many threads the calling thread's operations on CPU tensors use. Belongs to the thread, since
// ranks may be threads of one process. No result depends on it.
#pragma once

#include <cstdint>
#include <functional>

namespace dtrun::tensors {

/// The calling thread included. OMP_NUM_THREADS, which dtrun sets; else the CPUs that this process
/// may use, not more than its cgroups' quota, shared with the ranks on this machine
/// (LOCAL_WORLD_SIZE).
int num_threads();
/// For the calling thread, from now on. @throws Error kInvalidArgument unless count is in [1, 1024]
void set_num_threads(int count);

/// body(i) for each i of [0, count), on the calling thread and its workers. Returns when all are
/// done. If some throw, the exception of the lowest i is rethrown; later ones may not have run.
void parallel_for_each(std::int64_t count, const std::function<void(std::int64_t)>& body);

}  // namespace dtrun::tensors
