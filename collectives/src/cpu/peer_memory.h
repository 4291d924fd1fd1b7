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

  /// @return 0; ESRCH: the process has ended, perhaps another one has its number; or why else not
  int read(std::span<std::byte> target, std::uint64_t address) const;
  pid_t pid() const { return pid_; }

 private:
  explicit PeerMemory(const Cell& cell)
      : pid_(cell.pid.load()), word_(cell.word.load()), word_address_(cell.word_address.load()) {}

  const pid_t pid_;
  /// What lies there as long as the process is the one that showed it.
  const std::uint64_t word_;
  const std::uint64_t word_address_;
};

}  // namespace dtrun::collectives::cpu
