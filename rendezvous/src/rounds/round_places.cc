#include "rounds/round_places.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "rounds/natural_order.h"
#include "rounds/planted_bug.h"

namespace dtrun::rendezvous::rounds {
namespace {

constexpr int kLast = std::numeric_limits<int>::max();

int order_number(const Candidate& candidate) {
  return candidate.node_rank == kNoNodeRank ? kLast : candidate.node_rank;
}

bool comes_before(const Candidate& a, const Candidate& b) {
  if (order_number(a) != order_number(b)) return order_number(a) < order_number(b);
  if (a.host != b.host) {
    if (planted(PlantedBug::kSortLexicographic)) return a.host < b.host;
    if (naturally_before(a.host, b.host)) return true;
    if (naturally_before(b.host, a.host)) return false;
  }
  return a.id < b.id;
}

}  // namespace

std::vector<Candidate> in_places(std::vector<Candidate> candidates) {
  std::sort(candidates.begin(), candidates.end(), comes_before);
  std::vector<std::optional<Candidate>> places(candidates.size());
  std::vector<Candidate> rest;
  const auto claim = [&](int Candidate::*wanted) {
    rest.clear();
    for (Candidate& candidate : candidates) {
      const int place = candidate.*wanted;
      const bool exists = place >= 0 && static_cast<std::size_t>(place) < places.size();
      if (exists && !places[static_cast<std::size_t>(place)])
        places[static_cast<std::size_t>(place)] = std::move(candidate);
      else
        rest.push_back(std::move(candidate));
    }
    candidates.swap(rest);
  };
  claim(&Candidate::node_rank);
  claim(&Candidate::last_group_rank);

  std::vector<Candidate> result;
  auto next = candidates.begin();
  for (std::optional<Candidate>& place : places)
    result.push_back(std::move(place ? *place : *next++));
  return result;
}

}  // namespace dtrun::rendezvous::rounds
