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
    {"nobody-is-evicted", 221},
    {"no-pause-compensation", 27},
    {"twin-stays", 16},
    {"close-not-final", 9},
    {"spare-counted-twice", 120},
    {"rounds-from-zero", 1116},
    {"stale-store-ready", 172},
    {"stale-stopped", 4923},
    {"stale-done", 52},
    {"stale-failed", 281},
    {"silent-loss-not-fenced", 668},
    {"no-death-grace", 674},
    {"anybody-ends-absence", 53},
    {"min-off-by-one", 4},
    {"max-off-by-one", 53},
    {"last-call-not-cancelled", 31},
    {"lost-wake-up-at-max", 1},
    {"leaving-is-chosen", 9299},
    {"old-claims", 333},
    {"rank-reuse", 2},
    {"round-after-done", 34},
    {"done-is-unknown-to-the-next", 135},
    {"done-is-not-said-again", 135},
    {"done-is-forgotten", 627},
    {"done-needs-no-word", 29},
    {"stop-not-sent-to-one", 18},
    {"drain-ends-early", 16},
    {"newcomer-ends-drain", 35},
    {"join-is-charged", 15},
    {"elastic-loss-is-charged", 15},
    {"budget-not-checked", 18},
    {"all-pay-for-one", 24},
    {"pause-is-not-kept", 15},
    {"final-is-tried-again", 513},
    {"alike-is-tried-again", 1031},
    {"budget-charged-twice", 15},
    {"spares-are-not-told", 2},
    {"deadline-in-the-past", 34},
    {"sort-lexicographic", 10},
    {"stale-prepare", 103},
    {"stale-start", 27},
    {"stale-stop", 24},
    {"stop-ignored-when-done", 2441},
    {"rejoin-with-live-workers", 23},
    {"grace-after-loss", 682},
    {"grace-when-leaving", 164309},
    {"rejoin-for-ever", 53},
    {"end-with-live-workers", 9},
    {"stopped-is-not-said", 15},
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
