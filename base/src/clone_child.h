// CloneChild: clone(2) for a child that borrows this process's memory and table of descriptors
// until it has executed something else (or unshared the table), on a stack of its own, while this
// process goes on.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace dtrun::base {

/// What the child is given of this process. All but the cgroup must stay until `borrowing` is 0.
struct BorrowedPlace {
  void* stack;  ///< its lowest byte; both ends aligned to 64 bytes
  std::size_t stack_bytes;
  int* pidfd;                             ///< written before clone_child() returns
  std::atomic<std::uint32_t>* borrowing;  ///< cleared, and woken as a futex, when the child has
                                          ///< exec'd or ended
  int cgroup;  ///< folder of the cgroup2 file system that the child is born into; -1: our own
};

/// @param function never returns; runs on borrowed memory, at the same time as this process: raw
/// system calls only
/// @return as clone(2): -1 and errno
pid_t clone_child(int (*function)(void*), void* argument, const BorrowedPlace& place);

/// Whether a child can be born into the cgroup, and lives: some sandboxes refuse clone3, and up to
/// 6.18 at least the kernel takes a birth for one that began before a kill when either cgroup, the
/// parent's or the child's, has ever been killed (cgroup.kill) and the other one has not.
bool can_clone_into_cgroup(int cgroup);

}  // namespace dtrun::base
