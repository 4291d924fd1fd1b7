// LocalLink: how ranks on one machine give each other their heaps: file descriptors over abstract
// Unix sockets, which nobody outside the machine and network namespace can reach and of which
// nothing stays in the file system. The connection is kept: it ends when the peer dies, and carries
// control frames.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dtrun/base/deadline.h"
#include "dtrun/base/unique_fd.h"
#include "dtrun/rendezvous/store.h"
#include "heap.h"
#include "membership.h"
#include "rank_record.h"

namespace dtrun::collectives::cpu {

struct LocalLink {
  base::UniqueFd connection;
  PeerHeap heap;
  Offset root_block = 0;  ///< the peer's block of the first group
  pid_t pid = 0;          ///< as seen from here; 0: not visible
};

/// Boot id and network namespace: ranks with equal texts can reach each other's abstract sockets.
std::string locality_here();

struct LocalListener {
  base::UniqueFd fd;
  std::string name;
};
/// @throws Error kSystem
LocalListener listen_locally();

struct LinkOptions {
  const std::vector<Card>& cards;
  int rank;
  const LocalListener& listener;
  const Heap& heap;
  Offset root_block;
  RankRecord& record;  ///< learns of whose death this rank is a victim
  rendezvous::Store& store;
  base::Deadline deadline;
};
struct LocalLinks {
  /// Per rank: nothing where the peer is elsewhere or could not be reached.
  std::vector<std::optional<LocalLink>> links;
  /// Per rank that this one is linked to, and for itself: whom of the lower ranks it has reached,
  /// one character each: '1' or '0'.
  std::vector<std::string> reached;
};
/// Collective over all members that share the rank's locality. @throws Error kTimeout, kPeerFailed,
/// kSystem
LocalLinks link_local_peers(const LinkOptions& options);

}  // namespace dtrun::collectives::cpu
