// hierarchical_schedule: the schedules of large collectives in groups that do not share memory
// throughout. Ranks of one machine combine or spread among themselves, so that each byte crosses
// the network once per machine instead of once per rank. The buffers are cut into pieces that
// follow one another: while one piece is combined on the machines, the one before is on the
// network.
//
// As in hierarchical collectives of MPI and NCCL, but all ranks of a machine take their share of
// the network instead of one leader: element i has an owner on each machine, and the owners of one
// element exchange it. Machines may have unequal numbers of ranks. Where each rank counts as a
// machine of its own, it is reduce_scatter and all_gather among all (Rabenseifner), in pieces.
#pragma once

#include "schedule.h"

namespace dtrun::collectives {

/// Of an all_reduce, reduce, all_gather, reduce_scatter or broadcast, on two machines at least.
Schedule hierarchical_schedule(const CollectiveShape& shape);

}  // namespace dtrun::collectives
