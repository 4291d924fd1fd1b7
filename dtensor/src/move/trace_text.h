// Traces as text: Chrome's trace event format. Pure.
#pragma once

#include <string>
#include <vector>

#include "dtrun/dtensor/move/trace.h"

namespace dtrun::dtensor {

/// The events of one rank, separated by commas, without the list around them.
std::string trace_lines(const std::vector<TraceEvent>& events, int rank);
/// The time, of all that the communications take, in which something was computed, and all of it.
/// What is computed within a wait or a blocking call does not count.
struct Overlap {
  double hidden = 0;
  double all = 0;
};
Overlap overlap_of(const std::vector<TraceEvent>& events);

}  // namespace dtrun::dtensor
