// How those whose part is done hear how the job has ended, though they lose their connection.
#include "rendezvous/round_head_test.h"

namespace dtrun::rendezvous::rounds {
namespace {

class FarewellTest : public RoundHeadTest {
 protected:
  // Two nodes, of which the second one is done.
  void begin_with_one_done() {
    heard_.clear();
    ended_ = false;
    begin(2, 2);
    second_ = hello("b");
    second_.agent = 77;
    join(1, "a");
    event(Said{2, second_});
    start();
    say(2, Done{0});
  }
  // That one, by connection 3.
  void come_back() {
    second_.last_round = second_.done_round = 0;
    second_.last_group_rank = 1;
    event(Said{3, second_});
  }

  Hello second_;
};

TEST_F(FarewellTest, WhoIsDoneAndWasLostMayComeBackForTheVerdict) {
  begin_with_one_done();
  lose(2, LossKind::kReset);
  EXPECT_EQ(head_.phase, HeadPhase::kRunning);
  come_back();
  ASSERT_TRUE(last<Accepted>(3));
  say(1, Done{0});
  EXPECT_EQ(last<Close>(3)->outcome, Close::Outcome::kSucceeded);
}

// What it has done stays done: it may be lost once more, or be stopped by its operator.
TEST_F(FarewellTest, WhoCameBackIsWaitedForAgainAndMayLeave) {
  for (const bool leaves : {false, true}) {
    begin_with_one_done();
    lose(2, LossKind::kReset);
    come_back();
    if (leaves) say(3, Leaving{});
    EXPECT_EQ(head_.phase, HeadPhase::kRunning);
    lose(3, leaves ? LossKind::kGone : LossKind::kReset);
    EXPECT_EQ(head_.phase, HeadPhase::kRunning);
    say(1, Done{0});
    EXPECT_EQ(head_.verdict.outcome, Close::Outcome::kSucceeded);
    lose(1);
    EXPECT_EQ(ended_, leaves);
  }
}

// Whose connection is reset just as the job fails would take it for a success, or for lost.
TEST_F(FarewellTest, WhoWasDoneAndWasLostIsWaitedForToBeTold) {
  for (const bool closed_first : {false, true}) {
    begin_with_one_done();
    if (!closed_first) lose(2, LossKind::kReset);
    say(1, Failed{0, failure(0)});
    ASSERT_EQ(head_.phase, HeadPhase::kClosed);
    if (closed_first) lose(2, LossKind::kReset);
    lose(1);
    EXPECT_FALSE(ended_) << "one has not heard it";
    pass(seconds(1));
    come_back();
    ASSERT_TRUE(last<Close>(3));
    EXPECT_EQ(last<Close>(3)->failure, failure(0));
    EXPECT_FALSE(ended_);
    lose(3);
    EXPECT_TRUE(ended_);
  }
}

TEST_F(FarewellTest, WhoWasDoneAndWasLostIsNotWaitedForForEver) {
  for (const LossKind kind : {LossKind::kReset, LossKind::kSilent, LossKind::kGone}) {
    begin_with_one_done();
    lose(2, kind);
    pass(seconds(10));
    say(1, Done{0});
    ASSERT_EQ(head_.verdict.outcome, Close::Outcome::kSucceeded);
    lose(1);
    EXPECT_EQ(ended_, kind == LossKind::kGone) << "the dead need not be told";
    pass(seconds(4));
    EXPECT_EQ(ended_, kind == LossKind::kGone);
    pass(seconds(2));
    EXPECT_TRUE(ended_) << "its own patience is over";
  }
}

TEST_F(FarewellTest, TheHostsOwnAgentThatGoesBeforeTheStartTakesTheJobAlong) {
  for (const bool has_joined : {false, true}) {
    begin(3, 3);
    heard_.clear();
    head_.own = 1;
    join(2, "b");
    if (has_joined) join(1, "a");
    lose(1);
    ASSERT_NE(last<Close>(2), nullptr);
    EXPECT_TRUE(
        last<Close>(2)->failure.text.starts_with("the dtrun that hosts the rendezvous has"));
    EXPECT_EQ(last<Close>(2)->failure.exit_code(), 69);
  }
}

}  // namespace
}  // namespace dtrun::rendezvous::rounds
