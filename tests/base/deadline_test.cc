#include "dtrun/base/deadline.h"

#include <gtest/gtest.h>

namespace dtrun::base {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(DeadlineTest, NeverDoesNotExpireAndPollsForEver) {
  EXPECT_FALSE(Deadline::never().expired());
  EXPECT_EQ(Deadline::never().poll_timeout_ms(), -1);
  EXPECT_EQ(Deadline::never().remaining(), Deadline::Duration::max());
}

TEST(DeadlineTest, APastDeadlineHasNothingLeft) {
  const Deadline past = Deadline::after(seconds(-1));
  EXPECT_TRUE(past.expired());
  EXPECT_EQ(past.remaining(), Deadline::Duration::zero());
  EXPECT_EQ(past.poll_timeout_ms(), 0);
}

TEST(DeadlineTest, AHugeBudgetIsNeverAndDoesNotOverflow) {
  EXPECT_TRUE(Deadline::after(Deadline::Duration::max()).is_never());
}

TEST(DeadlineTest, PollTimeoutRoundsUpSoThatAWaitDoesNotSpin) {
  const int ms = Deadline::after(milliseconds(100)).poll_timeout_ms();
  EXPECT_GT(ms, 0);
  EXPECT_LE(ms, 100);
}

TEST(DeadlineTest, TheEarlierOfTwoIsTheOneThatExpiresFirst) {
  const Deadline soon = Deadline::after(seconds(1));
  const Deadline late = Deadline::after(seconds(5));
  EXPECT_EQ(soon.earlier(late).when(), soon.when());
  EXPECT_EQ(Deadline::never().earlier(soon).when(), soon.when());
}

TEST(DeadlineTest, DurationsReadAsPeopleWriteThem) {
  EXPECT_EQ(format_duration(seconds(30)), "30 s");
  EXPECT_EQ(format_duration(milliseconds(1500)), "1.5 s");
  EXPECT_EQ(format_duration(milliseconds(250)), "250 ms");
  EXPECT_EQ(format_duration(std::chrono::microseconds(12)), "12 us");
}

}  // namespace
}  // namespace dtrun::base
