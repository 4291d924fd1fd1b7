// What can go wrong inside an operation, as thrown to the engine, which knows names and tells the
// other members. Peers are group ranks.
#pragma once

#include <string>

#include "dtrun/collectives/fingerprint.h"

namespace dtrun::collectives::cpu {

/// The peer called something else than this rank.
struct Disagreement {
  int peer;
  Fingerprint theirs;
  Fingerprint ours;
  std::string detail;  ///< may be empty
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

/// In what two fingerprints differ: "op", "order", "dtype", "reduce op", "root", "counts".
std::string difference(const Fingerprint& a, const Fingerprint& b);

}  // namespace dtrun::collectives::cpu
