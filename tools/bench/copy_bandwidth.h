// The bound that dtrun-bench tells: how fast the ranks copy memory when all of them copy at once,
// and do nothing else. Each copies what the rank before it has just written, as collectives do, to
// memory of its own. Ranks of several machines and GPUs copy what they have written themselves.
#pragma once

#include <cstddef>

#include "bench/contender.h"

namespace dtrun::bench {

/// More than a machine's caches hold: what is larger is copied as fast.
inline constexpr std::size_t kMostCopiedBytes = 64 << 20;

/// Below a mebibyte latency rules, and a share of the bound says nothing. Equal parts of whole
/// elements may come to a little less than was asked for.
inline bool has_bound(const Call& call, int ranks) {
  constexpr std::size_t kLeastBytes = 1 << 20;
  Call next = call;
  ++next.count;
  return ranks > 1 && bytes_moved(call, ranks) > 0 && size_in_bytes(next, ranks) > kLeastBytes;
}

/// Collective. Of all ranks together, each copying that many bytes (kMostCopiedBytes at the most),
/// while the slowest copies: the median. Cores may exchange lines at another speed a second later:
/// it is to be asked beside the call that it bounds. @return bytes a second on rank 0; 0 elsewhere,
/// and where a rank had no memory for it
double copy_bandwidth(Contender& contender, std::size_t bytes);

}  // namespace dtrun::bench
