// LifeSign: a lock that a rank keeps on its byte of the commons for as long as it is in the world,
// on a file description of its own. The kernel takes it away with the process, with exec and with
// the world that kept it. Peers look at it as often as they like, without a descriptor or a word
// between them. A child that the rank has forked keeps it up; the process itself then tells.
#pragma once

#include <optional>

#include "commons.h"
#include "dtrun/base/unique_fd.h"

namespace dtrun::collectives::cpu {

class LifeSign {
 public:
  /// nullopt: another process is this rank. @throws Error kSystem
  static std::optional<LifeSign> give(const Commons& commons, int world_rank);
  /// For ranks that gave one before the others asked.
  static bool is_seen(const Commons& commons, int world_rank);

 private:
  explicit LifeSign(base::UniqueFd description) : description_(std::move(description)) {}

  base::UniqueFd description_;
};

/// The inode of this process' pid namespace; 0: unknown.
std::uint64_t own_pid_namespace();

/// A pidfd of that rank's process; none where it is this one, or not to be seen from here.
base::UniqueFd process_of(const Commons& commons, int world_rank);

}  // namespace dtrun::collectives::cpu
