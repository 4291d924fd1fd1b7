#include "dtrun/base/backoff.h"

#include <gtest/gtest.h>

#include <set>

namespace dtrun::base {
namespace {

using std::chrono::milliseconds;

TEST(BackoffTest, EachPauseIsAboutTwiceAsLongUpToABound) {
  for (std::uint32_t seed = 0; seed < 100; ++seed) {
    Backoff backoff(milliseconds(10), milliseconds(70), seed);
    for (const int about : {10, 20, 40, 70, 70}) {
      const Deadline::Duration pause = backoff.next();
      EXPECT_GE(pause, milliseconds(about) / 2);
      EXPECT_LE(pause, milliseconds(about) * 3 / 2);
    }
    backoff.reset();
    EXPECT_LE(backoff.next(), milliseconds(15));
  }
}

TEST(BackoffTest, ManyDoNotKnockInStep) {
  std::set<Deadline::Duration> pauses;
  for (std::uint32_t seed = 0; seed < 100; ++seed)
    pauses.insert(Backoff(milliseconds(10), milliseconds(70), seed).next());
  EXPECT_GT(pauses.size(), 90u);
}

TEST(BackoffTest, APauseEndsAtTheDeadline) {
  Backoff backoff(std::chrono::hours(1), std::chrono::hours(1));
  const Deadline deadline = Deadline::after(milliseconds(1));
  backoff.pause(deadline);
  EXPECT_TRUE(deadline.expired());
}

}  // namespace
}  // namespace dtrun::base
