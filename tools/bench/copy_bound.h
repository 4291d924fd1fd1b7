// The bound that dtrun-bench tells: in what time the ranks could copy the bytes that a call must
// move, if they did nothing else (docs/benchmarks.md, "What the bound is"). Measured: each rank
// copies what the rank before it has just written, as collectives do, to memory of its own. Ranks
// of several machines and GPUs copy what they have written themselves.
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

/// Bytes a second.
struct CopyBandwidth {
  double of_all =
      0;  ///< of all ranks together, which copy at once; where they have one clock, from
          ///< the first one's begin to the last one's end, else while the slowest copies
  double of_one = 0;  ///< of a rank that copies while the others wait
};

/// Collective. Medians, of copies of that many bytes (kMostCopiedBytes at the most). Cores may
/// exchange lines at another speed a second later: it is to be asked beside the call that it
/// bounds.
/// @return on rank 0; zeros elsewhere, and where a rank had no memory for it
CopyBandwidth copy_bandwidth(Contender& contender, std::size_t bytes);

/// Microseconds; 0: not known. No rank writes another's memory: what one must move by itself
/// takes as long as it takes that one.
double copy_bound(const Call& call, int ranks, const CopyBandwidth& bandwidth);

/// Collective. The same, measured. @return 0 where there is none, and on all ranks but 0
double measured_copy_bound(Contender& contender, const Call& call);

}  // namespace dtrun::bench
