// Parcel: the parts of a gather, scatter or all_to_all that a rank lays beside its post: how long
// each of them is. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "dtrun/collectives/backend.h"
#include "payload_ring.h"
#include "post.h"

namespace dtrun::collectives::cpu {

/// Of the parts that lie beside one post. So many find room for all but one of the calls that a
/// rank may be ahead; messages have more room.
inline constexpr std::size_t kMostParcelBytes = kLeastAreaBytes / kAhead;
static_assert(kMostParcelBytes < Post::kInMessages);

/// Of a gather, scatter or all_to_all: how long each part is that this rank gives to others.
/// Post::kInMessages where they are not equally long, or too long together to lie beside the post.
/// @param kind the call's, where it is known before @param most bytes beside a post
inline std::uint16_t parcel_of(const CollectiveView& collective, OpKind kind, int rank,
                               std::size_t item_bytes, std::size_t most) {
  const bool is_gather = kind == OpKind::gather;
  std::size_t parts = 0;
  std::int64_t count = 0;
  for (std::size_t i = 0; i < collective.inputs.size(); ++i) {
    const bool stays = is_gather ? rank == collective.root() : static_cast<int>(i) == rank;
    if (stays) continue;
    if (parts++ > 0 && collective.inputs[i].count != count) return Post::kInMessages;
    count = collective.inputs[i].count;
  }
  const std::size_t bytes = static_cast<std::size_t>(count) * item_bytes;
  const bool fit = bytes * parts <= std::min(kMostParcelBytes, most);
  return fit ? static_cast<std::uint16_t>(bytes) : Post::kInMessages;
}

}  // namespace dtrun::collectives::cpu
