// DirectShape: the plan of a collective whose members share memory: who shows how many bytes to
// whom, and by which algorithm. Pure, and computed from what all members know, so that all choose
// the same.
#pragma once

#include <algorithm>
#include <cstddef>

#include "dtrun/collectives/backend.h"
#include "post.h"

namespace dtrun::collectives::cpu {

/// rings: messages, as between any two ranks. post: each rank posts all its bytes at once. stage:
/// the bytes go step by step through a block of fixed size.
enum class DirectWay { rings, post, stage };

/// Above this many bytes in all, stages are faster than posts.
inline constexpr std::size_t kAllPostsBytes = 128 << 10;
/// Half a stage is divided among the members; smaller pieces than this are not worth a step.
inline constexpr int kMostOnStage = 32;

/// Borrows the call's fingerprint and buffers.
struct DirectShape {
  DirectShape(const CollectiveView& the_collective, int the_rank, int the_size)
      : collective(the_collective),
        rank(the_rank),
        size(the_size),
        shown_bytes(most_bytes()),
        way(choose()) {}

  const CollectiveView collective;
  const int rank;
  const int size;
  const std::size_t shown_bytes;  ///< the most that one member shows to all
  const DirectWay way;

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

 private:
  std::size_t most_bytes() const {
    std::size_t bytes = 0;
    switch (kind()) {
      case OpKind::all_reduce:
      case OpKind::reduce:
        return input().bytes();
      case OpKind::broadcast:
        return shared().bytes();
      case OpKind::all_gather:
      case OpKind::split:
        for (const Buffer& buffer : collective.outputs) bytes = std::max(bytes, buffer.bytes());
        return bytes;
      case OpKind::reduce_scatter:
        for (const Buffer& buffer : collective.inputs) bytes += buffer.bytes();
        return bytes;
      default:
        return 0;
    }
  }

  DirectWay choose() const {
    switch (kind()) {
      case OpKind::all_reduce:
      case OpKind::broadcast:
      case OpKind::reduce:
      case OpKind::all_gather:
      case OpKind::split:
      case OpKind::reduce_scatter:
      case OpKind::barrier:
        break;
      default:
        // Counts differ by rank and are not known to all, so the members could choose differently.
        return DirectWay::rings;
    }
    if (shown_bytes <= kPostBytes && shown_bytes * static_cast<std::size_t>(size) <= kAllPostsBytes)
      return DirectWay::post;
    return size <= kMostOnStage ? DirectWay::stage : DirectWay::rings;
  }
};

}  // namespace dtrun::collectives::cpu
