// Chunk: the elements of a reduction's buffer that one rank combines. Pure.
#pragma once

#include <algorithm>
#include <cstdint>

namespace dtrun::collectives {

struct Chunk {
  std::int64_t begin;
  std::int64_t end;
  std::int64_t size() const { return end - begin; }
};

/// The first count % ranks owners have one element more than the others.
constexpr Chunk chunk_of(std::int64_t count, int ranks, int owner) {
  const std::int64_t base = count / ranks;
  const std::int64_t extra = count % ranks;
  const std::int64_t begin = owner * base + std::min<std::int64_t>(owner, extra);
  return {begin, begin + base + (owner < extra ? 1 : 0)};
}

}  // namespace dtrun::collectives
