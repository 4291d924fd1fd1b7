// Every planted bug is found by the simulator, from the seed that found it first
// (docs/simulation.md).
#include <gtest/gtest.h>

#include <string_view>
#include <utility>

#include "planted.h"
#include "simulate.h"

namespace dtrun::simulation {
namespace {

constexpr std::pair<std::string_view, std::uint64_t> kFoundBy[] = {
    {"beats-do-not-count", 1},
    {"nobody-is-evicted", 98},
    {"no-pause-compensation", 103},
    {"twin-stays", 16},
    {"close-not-final", 9},
    {"spare-counted-twice", 120},
    {"rounds-from-zero", 53},
    {"stale-store-ready", 16},
    {"stale-stopped", 4900},
    {"stale-done", 75},
    {"stale-failed", 35},
    {"silent-loss-not-fenced", 668},
    {"no-death-grace", 1915},
    {"min-off-by-one", 4},
    {"max-off-by-one", 14},
    {"last-call-not-cancelled", 20},
    {"lost-wake-up-at-max", 1},
    {"leaving-is-chosen", 4167},
    {"old-claims", 50},
    {"rank-reuse", 2},
    {"round-after-done", 546},
    {"done-is-forgotten", 1657},
    {"stop-not-sent-to-one", 18},
    {"drain-ends-early", 14},
    {"newcomer-ends-drain", 14},
    {"join-is-charged", 14},
    {"elastic-loss-is-charged", 14},
    {"budget-not-checked", 37},
    {"budget-charged-twice", 24},
    {"spares-are-not-told", 2},
    {"deadline-in-the-past", 530},
    {"sort-lexicographic", 10},
    {"stale-prepare", 53},
    {"stale-start", 75},
    {"stale-stop", 2474},
    {"stop-ignored-when-done", 1749},
    {"rejoin-with-live-workers", 14},
    {"grace-after-loss", 763},
    {"rejoin-for-ever", 36},
    {"end-with-live-workers", 6},
    {"stopped-is-not-said", 24},
};

TEST(PlantedBugs, AreFound) {
  for (const auto& [name, first] : kFoundBy) {
    const PlantedBugName* planted = nullptr;
    for (const PlantedBugName& bug : planted_bugs())
      if (bug.name == name) planted = &bug;
    ASSERT_NE(planted, nullptr) << name;
    const Planting planting(planted->bug);
    bool is_found = false;
    for (std::uint64_t seed = first; seed < first + 3000 && !is_found; ++seed)
      is_found = !simulate(seed).is_clean();
    EXPECT_TRUE(is_found) << name << ": " << planted->meaning;
  }
}

TEST(PlantedBugs, AreGoneWhenTheirPlantingIs) {
  { const Planting planting(planted_bugs().front().bug); }
  for (const auto& [name, seed] : kFoundBy) EXPECT_TRUE(simulate(seed).is_clean()) << name;
}

}  // namespace
}  // namespace dtrun::simulation
