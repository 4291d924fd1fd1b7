// CloneChild: clone(2) for a child that borrows this process's memory and table of descriptors
// until it has executed something else (or unshared the table), as vfork's does, on a stack of its
// own.
#pragma once

#include <sys/types.h>

namespace dtrun::base {

/// @param function never returns; runs on borrowed memory: system calls only
/// @param stack_top aligned to 64 bytes
/// @param pidfd written
/// @param cgroup a folder of the cgroup2 file system that the child is born into; -1: this
/// process's own
/// @return as clone(2): -1 and errno
pid_t clone_child(int (*function)(void*), void* stack, unsigned long stack_bytes, void* argument,
                  int* pidfd, int cgroup);

/// Whether a child can be born into the cgroup, and lives: some sandboxes refuse clone3, and up to
/// 6.18 at least the kernel takes a birth for one that began before a kill when either cgroup, the
/// parent's or the child's, has ever been killed (cgroup.kill) and the other one has not.
bool can_clone_into_cgroup(int cgroup);

}  // namespace dtrun::base
