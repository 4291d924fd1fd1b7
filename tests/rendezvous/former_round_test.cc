// A head that follows another one: what it makes of who was done under that.
#include <gmock/gmock.h>

#include "rendezvous/round_head_test.h"

namespace dtrun::rendezvous::rounds {
namespace {

using testing::HasSubstr;

// What is done is not done again, by the next head either.
class FormerRoundTest : public RoundHeadTest {
 protected:
  // Of three nodes that were in round 7.
  Hello former(int group_rank, int done_round) {
    Hello result = hello("n" + std::to_string(group_rank));
    result.agent = static_cast<std::uint64_t>(group_rank) + 1;
    result.last_round = 7;
    result.last_group_rank = group_rank;
    result.last_group_size = 3;
    result.done_round = done_round;
    return result;
  }
};

TEST_F(FormerRoundTest, WhereAllWereDoneTheJobHasEndedWell) {
  begin(1, 3);
  take_over(head_, 7, now_);
  for (const int rank : {1, 0}) event(Said{rank, former(rank, 7)});
  pass(seconds(20));
  ASSERT_EQ(head_.phase, HeadPhase::kGathering) << "the third may be on its way";
  event(Said{2, former(2, 7)});
  ASSERT_EQ(head_.phase, HeadPhase::kClosed);
  for (const int rank : {0, 1, 2})
    EXPECT_EQ(last<Close>(rank)->outcome, Close::Outcome::kSucceeded) << rank;
}

TEST_F(FormerRoundTest, WhereSomeWereDoneAndOneWasNotTheJobEnds) {
  begin(1, 3);
  take_over(head_, 7, now_);
  event(Said{1, former(1, 7)});
  event(Said{2, former(2, kNoRound)});
  ASSERT_EQ(head_.phase, HeadPhase::kClosed);
  EXPECT_THAT(last<Close>(1)->failure.describe(),
              HasSubstr("1 of 3 nodes were done in round 7 when the node that hosted the "
                        "rendezvous was lost, and n2 was not"));
}

TEST_F(FormerRoundTest, WhereSomeWereDoneTheOthersAreWaitedForNotForEver) {
  begin(1, 3);
  take_over(head_, 7, now_);
  join(9, "newcomer");
  event(Said{1, former(1, 7)});
  lose(1);  // what it has said stands
  pass(seconds(30));
  EXPECT_EQ(head_.phase, HeadPhase::kGathering);
  pass(seconds(1));
  ASSERT_EQ(head_.phase, HeadPhase::kClosed);
  EXPECT_THAT(last<Close>(9)->failure.describe(), HasSubstr("the others have not come back"));
}

TEST_F(FormerRoundTest, WhoComesWhileTheStoreOpensIsHeard) {
  begin(1, 3);
  take_over(head_, 7, now_);
  event(Said{2, former(2, kNoRound)});
  pass(seconds(50));
  ASSERT_EQ(head_.phase, HeadPhase::kPreparing);
  event(Said{1, former(1, 7)});
  EXPECT_EQ(head_.phase, HeadPhase::kClosed);
}

TEST_F(FormerRoundTest, WhoContradictsItselfCountsForNobody) {
  begin(1, 3);
  take_over(head_, 7, now_);
  for (const int rank : {0, 1}) event(Said{rank, former(rank, 7)});
  Hello odd = former(2, 7);
  odd.last_group_rank = 3;
  event(Said{2, odd});
  EXPECT_EQ(head_.phase, HeadPhase::kGathering) << "there were ranks 0 to 2";
  odd.agent = 9;
  odd.last_group_rank = 2;
  odd.last_group_size = 4;
  event(Said{3, odd});
  EXPECT_EQ(head_.phase, HeadPhase::kGathering) << "they were three";
}

TEST_F(FormerRoundTest, ADoneBeforeALaterRoundIsOutOfDate) {
  begin(1, 2);
  take_over(head_, 8, now_);
  event(Said{1, former(1, 7)});
  event(Said{2, former(2, 7)});
  pass(seconds(16));
  start();
  EXPECT_EQ(last<Start>(1)->round, 9);
}

TEST_F(FormerRoundTest, WhoTookPartIsToldTheVerdictThoughItComesLate) {
  begin(1, 3);
  take_over(head_, 7, now_);
  event(Said{1, former(1, 7)});
  event(Said{2, former(2, kNoRound)});
  ASSERT_EQ(head_.phase, HeadPhase::kClosed);
  event(Said{3, former(0, kNoRound)});
  ASSERT_TRUE(last<Accepted>(3));
  EXPECT_EQ(last<Close>(3)->failure, last<Close>(1)->failure);
  join(4, "newcomer");
  EXPECT_TRUE(last<Refused>(4)) << "it was no part of it";
  for (const int id : {1, 2, 3}) lose(id);
  pass(seconds(6));
  EXPECT_TRUE(ended_);
}

// It would be one too few that is waited for.
TEST_F(FormerRoundTest, WhoComesTwiceToBeToldIsCountedOnce) {
  begin(1, 3);
  take_over(head_, 7, now_);
  event(Said{1, former(1, 7)});
  event(Said{2, former(2, kNoRound)});
  ASSERT_EQ(head_.phase, HeadPhase::kClosed);
  lose(2);
  event(Said{3, former(2, kNoRound)});
  for (const int id : {1, 3}) lose(id);
  pass(seconds(1));
  EXPECT_FALSE(ended_) << "the third has not been told";
  event(Said{4, former(0, kNoRound)});
  lose(4);
  EXPECT_TRUE(ended_);
}

// Known by one that comes while the store of an earlier one is being opened.
TEST_F(FormerRoundTest, ARoundThatIsBeingPreparedGivesWayToALaterOneOfTheLastHead) {
  for (const bool fixed : {false, true}) {
    heard_.clear();
    begin(fixed ? 2 : 1, 2, 1);
    take_over(head_, kNoRound, now_);
    Hello first = former(0, kNoRound), second = first, third = first;
    first.last_round = second.last_round = kNoRound;
    second.agent += 1;
    third.agent += 2;
    third.last_round = 5;
    event(Said{1, first});
    event(Said{2, second});
    ASSERT_EQ(head_.phase, HeadPhase::kPreparing);
    event(Said{3, third});
    EXPECT_EQ(head_.phase, HeadPhase::kGathering) << "its workers may live on other nodes";
    say(1, StoreReady{0, "", 1});
    EXPECT_FALSE(last<Start>(1));
    pass(head_.settings.silence_window + head_.settings.death_grace);
    ASSERT_EQ(head_.phase, HeadPhase::kPreparing);
    EXPECT_EQ(head_.round, 6);
    start();
    EXPECT_EQ(last<Start>(3)->restart_count, fixed ? 1 : 0) << "the last head's loss, once";
  }
}

TEST_F(FormerRoundTest, ASuccessIsThatOfThoseWhoWereDone) {
  begin(3, 3);
  take_over(head_, 7, now_);
  head_.settings.max_restarts = 1;
  for (const int rank : {0, 1, 2}) event(Said{rank, former(rank, 7)});
  ASSERT_EQ(head_.verdict.outcome, Close::Outcome::kSucceeded);
  Hello late = former(1, 7);
  event(Said{5, late});
  EXPECT_EQ(last<Close>(5)->outcome, Close::Outcome::kSucceeded);
  late.done_round = kNoRound;
  event(Said{6, late});
  EXPECT_THAT(last<Refused>(6)->text, HasSubstr("has ended well already"));
}

}  // namespace
}  // namespace dtrun::rendezvous::rounds
