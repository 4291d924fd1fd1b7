// Whether a PlannedCall can be one: its lists of buffers are those of its kind. Pure.
#pragma once

#include "dtrun/collectives/planned_call.h"

namespace dtrun::collectives {

/// @param rank this rank's place among the ranks of the group that would make it
/// @throws Error kInvalidArgument
void require_sound(const PlannedCall& call, int rank, int ranks);

}  // namespace dtrun::collectives
