// RankPlaces: where each rank stands in a list of ranks, which has none twice. Made in as many steps
// as the list has ranks, and numbers between the least and the greatest of them; a look takes one.
// Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace dtrun::dtensor {

class RankPlaces {
 public:
  explicit RankPlaces(const std::vector<int>& ranks) {
    if (ranks.empty()) return;
    const auto [least, greatest] = std::ranges::minmax(ranks);
    least_ = least;
    places_.assign(static_cast<std::size_t>(greatest - least) + 1, -1);
    for (std::size_t place = 0; place < ranks.size(); ++place)
      places_[static_cast<std::size_t>(ranks[place] - least)] = static_cast<int>(place);
  }
  /// -1: it is not there.
  int of(int rank) const {
    const std::ptrdiff_t from_least = std::ptrdiff_t{rank} - least_;
    const bool is_between = from_least >= 0 && from_least < std::ssize(places_);
    return is_between ? places_[static_cast<std::size_t>(from_least)] : -1;
  }

 private:
  int least_ = 0;
  std::vector<int> places_;  ///< by rank, from the least one on
};

}  // namespace dtrun::dtensor
