// DirectShape: the plan of a collective whose members share memory: who shows how many bytes to
// whom, and by which algorithm. Pure, and computed from what all members know, so that all choose
// the same.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

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
  DirectShape(const Fingerprint& the_fingerprint, int the_rank, int the_size,
              std::span<const Buffer> the_inputs, std::span<const Buffer> the_outputs)
      : fingerprint(the_fingerprint),
        rank(the_rank),
        size(the_size),
        inputs(the_inputs),
        outputs(the_outputs),
        shown_bytes(most_bytes()),
        way(choose()) {}

  const Fingerprint& fingerprint;
  const int rank;
  const int size;
  const std::span<const Buffer> inputs;
  const std::span<const Buffer> outputs;
  const std::size_t shown_bytes;  ///< the most that one member shows to all
  const DirectWay way;

  /// A collective without buffers is a barrier, whatever its kind: a split for another backend has
  /// no data.
  OpKind kind() const {
    return inputs.empty() && outputs.empty() ? OpKind::barrier : fingerprint.kind;
  }
  bool is_root() const { return rank == fingerprint.root; }

  /// Whether this rank shows bytes to others.
  bool shows() const {
    if (kind() == OpKind::broadcast) return is_root();
    if (kind() == OpKind::reduce) return !is_root();
    return kind() != OpKind::barrier;
  }
  /// Whether this rank needs that peer's bytes, or its arrival.
  bool needs(int peer) const {
    if (peer == rank) return false;
    if (kind() == OpKind::broadcast) return peer == fingerprint.root;
    if (kind() == OpKind::reduce) return is_root();
    return true;
  }

 private:
  std::size_t most_bytes() const {
    std::size_t bytes = 0;
    switch (kind()) {
      case OpKind::all_reduce:
      case OpKind::broadcast:
        return outputs[0].bytes();
      case OpKind::reduce:
        return inputs[0].bytes();
      case OpKind::all_gather:
      case OpKind::split:
        for (const Buffer& buffer : outputs) bytes = std::max(bytes, buffer.bytes());
        return bytes;
      case OpKind::reduce_scatter:
        for (const Buffer& buffer : inputs) bytes += buffer.bytes();
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
