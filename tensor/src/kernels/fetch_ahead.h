// FetchAhead: in which order a loop over four runs of memory asks for the next four. The hardware
// does not look beyond a page. Intel's (Sapphire Rapids) keeps up with four runs at a time. AMD's
// (Zen 5) wants the lines in their order: sums of 64 MiB took a fifth longer with four.
#pragma once

#include <cstdint>

#include "kernels/vector_registers.h"

namespace dtrun::tensors {

/// Whether lines come soonest to a loop that reads one run after the other and asks for nothing: to
/// AMD's with AVX-512. A Zen 4 reads 4 MiB from the last cache in 41 us so, and in 53 to 60 where
/// lines are asked for far ahead.
inline bool reads_best_in_order() {
#if defined(__x86_64__)
  static const bool in_order =
      __builtin_cpu_is("amd") != 0 && vector_registers() == VectorRegisters::avx512;
  return in_order;
#else
  return false;
#endif
}

/// In elements.
struct FetchAhead {
  std::int64_t between;  ///< the four that are asked for at once
  std::int64_t on;       ///< from there to the next four
};

/// @param step from a run to the next
/// @param lanes that a loop takes of each run at a time
inline FetchAhead fetch_ahead(std::int64_t step, std::int64_t lanes) {
#if defined(__x86_64__)
  static const bool in_order = __builtin_cpu_is("amd") != 0;
  if (in_order) return {lanes, 4 * lanes};
#endif
  return {step, lanes};
}

}  // namespace dtrun::tensors
