// What can go wrong inside an operation, as thrown to the group, which knows names and tells the
// other members; and the one text for ranks whose calls differ. Peers are group ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "dtrun/base/error.h"
#include "dtrun/collectives/fingerprint.h"

namespace dtrun::collectives {

/// One of two sent so many bytes where the other expected another number.
struct UnequalBytes {
  std::uint64_t sent;
  std::uint64_t expected;
  bool peer_sent = true;
};

/// The peer called something else than this rank.
struct Disagreement {
  int peer;
  Fingerprint theirs;
  Fingerprint ours;
  std::optional<UnequalBytes> bytes = std::nullopt;
};

/// The peer called something else some calls ago, where neither had to wait for the other.
struct EarlierDisagreement {
  int peer;
};

/// The peer has left the group, and this operation needs it.
struct LeftError {
  int peer;
};

/// The connection to the peer has ended; the watcher will know why in a moment.
struct BrokenConnection {
  int peer;
};

/// What one rank of the job, by its global rank, called.
struct RankCall {
  int rank;
  const Fingerprint& fingerprint;
};

/// kDisagreement: both calls, the lower rank's first whoever noticed it, and in what they differ.
base::Error disagreement_error(std::string_view group, RankCall theirs, RankCall ours,
                               const std::optional<UnequalBytes>& bytes = std::nullopt);
/// kDisagreement: rank `ours.rank` waits in its call for a rank that is past that call, which it
/// has made so long ago that it is no longer known. Ranks are global.
base::Error passed_by_error(std::string_view group, RankCall ours, int passed_by);

}  // namespace dtrun::collectives
