// DirectShape: what a collective is whose members share memory: who shows how many bytes to whom,
// and by which way. Pure; the same on all members, who must choose alike.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "dtrun/collectives/backend.h"
#include "post.h"

namespace dtrun::collectives::cpu {

/// rings: messages, as between any two ranks. post: all at once. stage: step by step.
enum class DirectWay { rings, post, stage };

/// Longer than this in all, posts lose against stages.
inline constexpr std::size_t kAllPostsBytes = 128 << 10;
/// A stage's half is cut into a piece per member, which must not become tiny.
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

  /// A collective without buffers is a meeting, whatever it is called: a split into a group of
  /// another backend.
  OpKind kind() const {
    return inputs.empty() && outputs.empty() ? OpKind::barrier : fingerprint.kind;
  }
  bool is_root() const { return rank == fingerprint.root; }

  /// This rank shows its bytes to others.
  bool shows() const {
    if (kind() == OpKind::broadcast) return is_root();
    if (kind() == OpKind::reduce) return !is_root();
    return kind() != OpKind::barrier;
  }
  /// This rank needs what that one shows, or that it has come.
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
        // The others' counts are not known to all members, who could not choose alike.
        return DirectWay::rings;
    }
    if (shown_bytes <= kPostBytes && shown_bytes * static_cast<std::size_t>(size) <= kAllPostsBytes)
      return DirectWay::post;
    return size <= kMostOnStage ? DirectWay::stage : DirectWay::rings;
  }
};

}  // namespace dtrun::collectives::cpu
