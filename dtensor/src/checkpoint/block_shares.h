// Block shares: which rank reads the blocks that several ranks of a machine need parts of: pure,
// the same on all of them. A block must be read as a whole to be verified, so without that each of
// those ranks would read it.
#pragma once

#include <cstdint>
#include <vector>

#include "dtrun/dtensor/checkpoint/manifest.h"
#include "dtrun/dtensor/layout/box.h"

namespace dtrun::dtensor::dcp {

/// What a rank fills with elements of a saved tensor.
struct Wish {
  std::size_t tensor = 0;  ///< of Manifest::tensors
  Box box;
};

/// Blocks of a chunk that one rank reads for several, which are at least two.
struct SharedPart {
  std::size_t tensor = 0;  ///< of Manifest::tensors
  std::size_t chunk = 0;   ///< of its chunks
  std::uint64_t begin = 0,
                end = 0;  ///< of the chunk's bytes: whole blocks, the last may be smaller
  int reader = 0;
  std::vector<int> wanters;  ///< ascending, with the reader
};

/// What one part has at most, unless it is a block; where many ranks share, this much is theirs
/// together.
inline constexpr std::uint64_t kMostPartBytes = std::uint64_t{4} << 20;
inline constexpr std::uint64_t kMostBytesOfAll = std::uint64_t{32} << 20;
/// What a rank reads of its parts before it sends them: so much at the most of each.
std::uint64_t most_round_bytes(std::uint64_t ranks);

/// @param wishes by rank; of those that take no part: none @return in the order of the files' bytes
std::vector<SharedPart> shared_parts(const Manifest& manifest,
                                     const std::vector<std::vector<Wish>>& wishes);

}  // namespace dtrun::dtensor::dcp
