// Promptness: bounds of time that hold on a machine which does ten other things as well.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

namespace dtrun::testing_support {

/// How long a test waits for what takes moments where nothing else runs. It tells what comes at
/// once from what comes by a time-out, of which none that these tests leave in place is shorter
/// than 15 s; how fast something is, the programs in bench/ measure.
constexpr std::chrono::seconds kPatience{10};

/// Of a promised time: `attempt`, which returns how long it took, is made until it keeps the
/// promise once, five times at the most. None may take longer than kPatience. Prints what each
/// took.
template <class Attempt>
void expect_promptness(std::chrono::duration<double> promise, const Attempt& attempt) {
  std::chrono::duration<double> best = std::chrono::hours(1);
  for (int i = 0; i < 5 && best >= promise; ++i) {
    const std::chrono::duration<double> took = attempt();
    if (testing::Test::HasFailure()) return;
    std::printf("attempt %d took %.3f s of the promised %.3f s\n", i + 1, took.count(),
                promise.count());
    EXPECT_LT(took.count(), std::chrono::duration<double>(kPatience).count());
    best = std::min(best, took);
  }
  EXPECT_LT(best.count(), promise.count()) << "the best of five times";
}

}  // namespace dtrun::testing_support
