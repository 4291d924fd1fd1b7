// The bound that dtrun-bench tells: how fast the ranks copy memory when all of them copy at once,
// and do nothing else. Each copies a tensor that it has just written to another one of its own.
#pragma once

#include <cstddef>

#include "bench/contender.h"

namespace dtrun::bench {

/// More than a machine's caches hold: what is larger is copied as fast.
inline constexpr std::size_t kMostCopiedBytes = 64 << 20;

/// Collective. Of all ranks together, each copying that many bytes (kMostCopiedBytes at the most),
/// while the slowest copies: the median. @return bytes a second on rank 0; 0 elsewhere
double copy_bandwidth(Contender& contender, std::size_t bytes);

}  // namespace dtrun::bench
