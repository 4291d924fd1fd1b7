// The rules of the rounds hold in simulated worlds (docs/simulation.md). round_simulator plays
// more.
#include <gtest/gtest.h>

#include "simulate.h"

namespace dtrun::simulation {
namespace {

// Without a sanitizer some 1,500 seeds are played in a second.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kSeeds = 150;
#else
constexpr std::uint64_t kSeeds = 2000;
#endif

TEST(RoundSimulation, NoRuleIsBrokenInTheFirstSeeds) {
  Tally tally;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const Result result = simulate(seed);
    ASSERT_TRUE(result.is_clean())
        << "round_simulator --seed " << seed << " --trace: " << result.rule << ": " << result.text;
    tally.add(result.tally);
  }
  for (std::size_t i = 0; i < tally.faults.size(); ++i)
    EXPECT_GT(tally.faults[i], 0) << fault_name(static_cast<Fault>(i));
  EXPECT_GT(tally.rounds, 0);
  EXPECT_GT(tally.restarts, 0);
}

// 165411: an agent whose workers had ended well while it stood still said so in its Hello only.
TEST(RoundSimulation, NoRuleIsBrokenInSeedsInWhichOneWas) {
  for (const std::uint64_t seed : {165411}) {
    const Result result = simulate(seed);
    EXPECT_TRUE(result.is_clean()) << seed << ": " << result.rule << ": " << result.text;
  }
}

TEST(RoundSimulation, ASeedReplaysBitEqual) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed)
    EXPECT_EQ(simulate(seed).hash, simulate(seed).hash) << "seed " << seed;
}

TEST(RoundSimulation, SeedsDiffer) {
  EXPECT_NE(simulate(1).hash, simulate(2).hash);
}

TEST(RoundSimulation, ClocksOfAnyRateAndOriginTellTheirMoments) {
  RandomSource random(1);
  for (int i = 0; i < 10000; ++i) {
    Clock clock{.origin = random.between(-1000000, 1000000) * 1000000000,
                .parts_per_million = random.between(-10000, 10000),
                .slept = random.between(0, 100000000000)};
    const Moment truth(random.between(0, 100000) * 1000003);
    EXPECT_GE(clock.local(clock.truth(clock.local(truth))), clock.local(truth));
    EXPECT_LE(clock.truth(clock.local(truth)), truth);
  }
}

}  // namespace
}  // namespace dtrun::simulation
