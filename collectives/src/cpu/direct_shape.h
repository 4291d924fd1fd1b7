// DirectShape: a collective whose members share memory: who shows bytes to whom. Pure, and computed
// from what all members know.
#pragma once

#include <cstddef>

#include "algorithm.h"
#include "dtrun/collectives/backend.h"

namespace dtrun::collectives::cpu {

/// Borrows the call's fingerprint and buffers.
struct DirectShape {
  const CollectiveView collective;
  const int rank;
  const int size;
  const std::size_t shown_bytes;  ///< the most that one member shows to all
  const Way way;                  ///< post or stages

  OpKind kind() const { return collective.kind(); }
  const Buffer& input(int index = 0) const {
    return collective.inputs[static_cast<std::size_t>(index)];
  }
  const Buffer& output(int index = 0) const {
    return collective.outputs[static_cast<std::size_t>(index)];
  }
  /// Of a broadcast.
  const Buffer& shared() const { return is_root() ? input() : output(); }
  bool is_root() const { return rank == collective.root(); }

  /// Whether this rank shows bytes to others.
  bool shows() const {
    if (kind() == OpKind::broadcast) return is_root();
    if (kind() == OpKind::reduce) return !is_root();
    return kind() != OpKind::barrier;
  }
  /// Whether this rank needs that peer's bytes, or its arrival.
  bool needs(int peer) const {
    if (peer == rank) return false;
    if (kind() == OpKind::broadcast) return peer == collective.root();
    if (kind() == OpKind::reduce) return is_root();
    return true;
  }
};

}  // namespace dtrun::collectives::cpu
