// When a server stays awake for the next request: only where it pays.
#include "wire/linger.h"

#include <gtest/gtest.h>

namespace dtrun::rendezvous {
namespace {

using std::chrono::microseconds;

class LingerTest : public testing::Test {
 protected:
  // A request comes after the server has slept for a time; whether it looks on right after it.
  bool stays_awake_after(microseconds pause) {
    now_ += pause;
    linger_.wake(now_);
    return linger_.goes_on(now_, now_);
  }
  // Nothing comes.
  void give_up() {
    const auto answered = now_;
    now_ += Linger::kLongest;
    EXPECT_FALSE(linger_.goes_on(answered, now_));
    linger_.rest(now_);
  }
  // How many requests that follow closely are served by one who sleeps between them.
  int count_skipped() {
    int skipped = 0;
    while (!stays_awake_after(microseconds(20))) {
      linger_.rest(now_);
      ++skipped;
    }
    return skipped;
  }

  Linger linger_;
  Linger::Time now_{std::chrono::hours(1)};
};

TEST_F(LingerTest, ItSleepsBetweenRequestsThatDoNotFollowClosely) {
  EXPECT_FALSE(stays_awake_after(std::chrono::seconds(1)));
  linger_.rest(now_);
  EXPECT_FALSE(stays_awake_after(Linger::kClose));
  linger_.rest(now_);
  EXPECT_TRUE(stays_awake_after(Linger::kClose - microseconds(1)));
}

TEST_F(LingerTest, EachTimeInVainCostsTwiceAsManyRequestsOfSleep) {
  linger_.rest(now_);
  EXPECT_EQ(count_skipped(), 0);
  for (int skipped = 1; skipped < Linger::kMostSkipped; skipped *= 2) {
    give_up();
    EXPECT_EQ(count_skipped(), skipped);
  }
  for (int i = 0; i < 2; ++i) {
    give_up();
    EXPECT_EQ(count_skipped(), Linger::kMostSkipped);
  }
  linger_.paid();
  give_up();
  EXPECT_EQ(count_skipped(), 1);
}

TEST_F(LingerTest, OthersHaveTheirTurnAfterAMillisecondAndThatIsNoTimeInVain) {
  linger_.rest(now_);
  ASSERT_TRUE(stays_awake_after(microseconds(20)));
  now_ += Linger::kLongestTurn + microseconds(1);
  EXPECT_FALSE(linger_.goes_on(now_, now_));
  linger_.rest(now_);
  EXPECT_EQ(count_skipped(), 0);
}

}  // namespace
}  // namespace dtrun::rendezvous
