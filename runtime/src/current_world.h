// The calling thread's world in dist::, shared by dist's files.
#pragma once

#include "dtrun/collectives/process_group.h"
#include "dtrun/runtime/worker.h"

namespace dtrun::dist {

/// The group that a call means: none given is the world. One that this rank is no member of stays
/// what it is: using it throws. @throws Error kUsage before init and after destroy
const collectives::ProcessGroup& chosen(const collectives::ProcessGroup& group);

/// The group rank of a global rank; -1: not in the group.
int find_in(const collectives::ProcessGroup& group, int global_rank);
base::Error not_in_group(const collectives::ProcessGroup& group, int global_rank);

/// What the main thread's end does for a world that is still open: for a process that ends without
/// running destructors. Also leaves it.
void leave_world_at_exit();

/// Leaves the world, where there is one, without a word: for a rank that has failed.
void drop_world();

}  // namespace dtrun::dist
