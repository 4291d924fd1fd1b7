// round_schedule: the schedules of small collectives in groups that do not share memory throughout.
// What a machine has goes from machine to machine as one message, together with what it has heard
// from others: so a rank sends a message for each round and not one to each rank.
//
// The rounds are those of a dissemination (Hensgen, Finkel, Manber; for an all_gather Bruck) and of
// a binomial tree, with four in place of two: a round takes the network's latency, and three
// messages that leave one after the other take less. Reductions collect all ranks' elements and
// combine them in rank order, so they have the same bits as by messages.
#pragma once

#include <vector>

#include "schedule.h"

namespace dtrun::collectives {

/// Of an all_reduce, reduce, all_gather, split, broadcast or barrier, on two machines at least.
Schedule round_schedule(const CollectiveShape& shape);

/// The ranks without which this rank's part of such a collective cannot end, whether it hears from
/// them or from others that have.
std::vector<int> ranks_needed(OpKind kind, const MachineLists& machines, int rank, int root);

}  // namespace dtrun::collectives
