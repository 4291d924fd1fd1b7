// How many collectives a redistribution takes on axes of two ranks: PyTorch's planner, by its
// test_redistribute.py, and dtrun's. Tests of plans and of moves compare with them.
#pragma once

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "dtrun/dtensor/layout/layout.h"

namespace dtrun::dtensor {

struct KnownCount {
  const char* from;  ///< "S0 R": a placement for each axis
  const char* to;
  int of_pytorch;
  int here;

  std::vector<int> mesh() const {
    return std::vector<int>(std::ranges::count(std::string(from), ' ') + 1U, 2);
  }
  /// Whether a tensor of so many dims can lie so.
  bool fits(std::size_t dims) const {
    return dims > 2 || (std::string(from) + to).find("S2") == std::string::npos;
  }
};

inline constexpr KnownCount kKnownCounts[] = {
    {"S0", "S1", 1, 1},
    {"S1", "S0", 1, 1},
    {"S0 S1", "S0 S0", 1, 1},
    {"S0 S1", "S1 S0", 2, 1},
    {"S0 S0", "S1 S1", 2, 1},
    {"S0 S2", "S1 S0", 2, 2},
    {"S1 S1", "S1 S2", 1, 1},
    {"S0 S0 S0", "S1 S1 S1", 3, 1},
    {"S0 S1 S0", "S1 S0 S0", 3, 1},
    {"S0 S1 S2", "S2 S1 S0", 2, 1},
    {"S1 S0 S0", "R S0 S0", 1, 1},
    {"S1 R S0", "R S0 S0", 2, 2},
    {"S0 S0 S1", "S0 S1 S2", 2, 2},
};

/// PyTorch's test's. On each of them that can lie so, the counts are the same.
inline const std::vector<tensors::Shape> kShapesOfKnownCounts = {
    {8, 8}, {8, 8, 8}, {8, 5}, {5, 8}, {5, 5}};

/// "S0 R P".
inline Placements known_placements(const std::string& text) {
  Placements placements;
  std::istringstream words(text);
  for (std::string word; words >> word;)
    placements.push_back(word == "R" ? Placement(Replicate()) : Placement(Shard(word[1] - '0')));
  return placements;
}

}  // namespace dtrun::dtensor
