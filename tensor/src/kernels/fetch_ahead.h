// FetchAhead: in which order a loop over four runs of memory asks for the next four. The hardware
// does not look beyond a page. Intel's (Sapphire Rapids) keeps up with four runs at a time. AMD's
// (Zen 5) wants the lines in their order: sums of 64 MiB took a fifth longer with four.
#pragma once

#include <cstdint>

namespace dtrun::tensors {

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
