// RoundPlaces: which participant of a round gets which group rank. Pure.
#pragma once

#include <string>
#include <vector>

#include "dtrun/rendezvous/round_head.h"

namespace dtrun::rendezvous::rounds {

/// A node that is to take part.
struct Candidate {
  MemberId id = 0;  ///< rises with arrival
  std::string host;
  int node_rank = kNoNodeRank;        ///< given by its operator
  int last_group_rank = kNoNodeRank;  ///< in the last round; kNoNodeRank: it was not in it
};

/// The candidates in the order of their group ranks, 0 first. Each gets the place that it claims,
/// by --node_rank or by its last one, where that exists and is free; the others fill the gaps by
/// --node_rank, then in the natural order of their hosts, then as they came.
std::vector<Candidate> in_places(std::vector<Candidate> candidates);

}  // namespace dtrun::rendezvous::rounds
