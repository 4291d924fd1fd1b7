// PeerMemory: the memory of another rank of this machine, read by one copy (process_vm_readv, as
// the MPI libraries' CMA), without its help and without shared memory between. Whether the kernel
// allows it is tried out: with kernel.yama.ptrace_scope, in some containers and for another user's
// processes it does not. Thread-safe.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "commons.h"

namespace dtrun::collectives::cpu {

class PeerMemory {
 public:
  /// Puts into this rank's cell what the others try with. Before they can see its rings.
  static void show(Cell& own);
  /// @return null: that rank's memory cannot be read from here
  static std::unique_ptr<PeerMemory> open(const Commons& commons, int world_rank);
  /// Whether these bytes of this process can be read by others: mapped devices cannot.
  static bool is_readable(std::span<const std::byte> own);

  /// @return false: the process has ended. @throws Error kSystem
  bool read(std::span<std::byte> target, std::uint64_t address) const;

 private:
  explicit PeerMemory(pid_t pid) : pid_(pid) {}

  const pid_t pid_;
};

}  // namespace dtrun::collectives::cpu
