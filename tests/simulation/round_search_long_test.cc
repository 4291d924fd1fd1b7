// The exhaustive search in the scopes that take minutes: two nodes with every fault there is, three
// with each pair of faults (docs/simulation.md has their sizes).
#include <gtest/gtest.h>

#include <string>

#include "search.h"

namespace dtrun::simulation {
namespace {

struct Faults {
  int failures, crashes, losses, rejoins, pauses;
};

void expect_all_end_well(int nodes, int least, const Faults& faults) {
  const SearchResult result = search({.nodes = nodes,
                                      .min_nodes = least,
                                      .max_nodes = nodes,
                                      .failures = faults.failures,
                                      .crashes = faults.crashes,
                                      .losses = faults.losses,
                                      .rejoins = faults.rejoins,
                                      .pauses = faults.pauses,
                                      .most_states = 100'000'000});
  EXPECT_TRUE(result.complete) << result.rule << ": " << result.text;
  for (const std::string& step : result.way) ADD_FAILURE() << step;
}

TEST(RoundSearchLong, TwoNodesWithAllFaults) {
  for (const int least : {1, 2}) expect_all_end_well(2, least, {1, 1, 1, 1, 1});
}

TEST(RoundSearchLong, ThreeNodesWithPairsOfFaults) {
  constexpr Faults kPairs[] = {{1, 1, 0, 1, 0}, {1, 0, 1, 0, 0}, {1, 0, 0, 0, 1},
                               {0, 1, 1, 1, 0}, {0, 2, 0, 1, 0}, {0, 1, 0, 0, 1},
                               {0, 0, 2, 0, 0}, {0, 0, 1, 0, 1}, {0, 0, 0, 0, 2}};
  for (const Faults& faults : kPairs) expect_all_end_well(3, 2, faults);
}

}  // namespace
}  // namespace dtrun::simulation
