// In small scopes every order of events is tried (docs/simulation.md). round_search does larger
// ones.
#include <gtest/gtest.h>

#include "planted.h"
#include "search.h"

namespace dtrun::simulation {
namespace {

constexpr SearchScope kCalm{.failures = 0, .crashes = 0, .losses = 0, .rejoins = 0};

TEST(RoundSearch, AllOrdersOfACalmJobEndWell) {
  const SearchResult result = search(kCalm);
  EXPECT_TRUE(result.complete) << result.rule << ": " << result.text;
  EXPECT_GT(result.ends, 0U);
  EXPECT_GE(result.depth, 40);
}

TEST(RoundSearch, FindsTheShortestWayToAPlantedBug) {
  const Planting planting(rendezvous::rounds::PlantedBug::kDrainEndsEarly);
  const SearchResult result =
      search({.nodes = 2, .max_nodes = 2, .crashes = 0, .losses = 0, .rejoins = 0});
  EXPECT_EQ(result.rule, "one generation lives");
  EXPECT_FALSE(result.way.empty());
}

}  // namespace
}  // namespace dtrun::simulation
