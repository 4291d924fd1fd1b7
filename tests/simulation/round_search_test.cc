// In small scopes every order of events is tried (docs/simulation.md). round_search_long_test does
// larger ones, round_search those that one asks it for.
#include <gtest/gtest.h>

#include "planted.h"
#include "search.h"

namespace dtrun::simulation {
namespace {

constexpr SearchScope kCalm{.failures = 0, .crashes = 0, .losses = 0, .rejoins = 0};

void expect_all_end_well(const SearchScope& scope, std::uint64_t least_states) {
  const SearchResult result = search(scope);
  EXPECT_TRUE(result.complete) << result.rule << ": " << result.text;
  EXPECT_GT(result.ends, 0U);
  EXPECT_GE(result.states, least_states);
}

TEST(RoundSearch, AllOrdersOfACalmJobEndWell) {
  expect_all_end_well(kCalm, 3'000);
}

TEST(RoundSearch, AllOrdersOfThreeNodesEndWellWhenOneCrashesAndComesBack) {
  SearchScope scope = kCalm;
  scope.crashes = scope.rejoins = 1;
  expect_all_end_well(scope, 100'000);
}

TEST(RoundSearch, AllOrdersOfTwoNodesEndWellWithAFailureACrashALossAndAReturn) {
  expect_all_end_well({.nodes = 2, .max_nodes = 2}, 50'000);
}

TEST(RoundSearch, FindsTheShortestWayToAPlantedBug) {
  const Planting planting(rendezvous::rounds::PlantedBug::kDrainEndsEarly);
  const SearchResult result =
      search({.nodes = 2, .max_nodes = 2, .crashes = 0, .losses = 0, .rejoins = 0});
  EXPECT_EQ(result.rule, "one generation lives");
  EXPECT_FALSE(result.way.empty());
  EXPECT_LE(result.way.size(), 16U);
}

}  // namespace
}  // namespace dtrun::simulation
