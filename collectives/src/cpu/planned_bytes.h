// What a rank sends in a collective of the cpu backend, before anybody makes it: of the plan or the
// schedule that would be carried out. Pure.
#pragma once

#include <cstdint>

#include "algorithm.h"
#include "dtrun/collectives/planned_call.h"
#include "schedule.h"

namespace dtrun::collectives::cpu {

/// Where the call would be made.
struct PlannedPlace {
  int rank = 0;
  GroupPlace group;
  MachineLists machines;  ///< of the group's ranks
  Crowding crowding = Crowding::alone;
  WayLimits limits = kDefaultLimits;
};
/// @param machines a number for each rank of the group, equal ones share memory @param cores of
/// one machine
PlannedPlace planned_place(int rank, const std::vector<int>& machines, int cores);

/// Bytes, as TransportCounters count them: of a post or stage once for each reader, and between
/// machines with what is passed on. The buffers are thought to lie outside of shared memory.
std::uint64_t planned_bytes(const PlannedCall& call, const PlannedPlace& place);

}  // namespace dtrun::collectives::cpu
