// Chunk: the part of a dim that one of several ranks has. torch.chunk's rule: n over p ranks gives
// chunks of ceil(n/p); chunk r is [min(n, r c), min(n, (r+1) c)). Pure.
#pragma once

#include <cstdint>

namespace dtrun::dtensor {

struct Chunk {
  std::int64_t offset = 0;
  std::int64_t size = 0;
};
/// Part `index` of n elements over `parts` (offset relative to those n; n where it is empty).
Chunk chunk_of(std::int64_t n, int parts, int index);

}  // namespace dtrun::dtensor
