// What a failure costs, and when the head starts all workers again.
#include "rounds/restart_policy.h"

#include <gmock/gmock.h>

#include "rendezvous/round_head_test.h"

namespace dtrun::rendezvous::rounds {
namespace {

using RestartPolicyTest = RoundHeadTest;

TEST_F(RestartPolicyTest, WhatHappensToANodeAfterItsWorkerFailedDoesNotReplaceTheFirstCause) {
  for (const bool is_lost : {false, true}) {
    begin(1, 2, 1);
    join(1, "a");
    join(2, "b");
    start();
    say(2, Failed{0, failure(2)});
    JobFailure why;
    why.text = "dtrun was stopped";
    if (is_lost)
      lose(2);
    else
      say(2, Leaving{why});
    say(1, Stopped{0});
    if (!is_lost) say(2, Stopped{0});
    pass(seconds(31));
    EXPECT_EQ(head_.restarts, 1);
    EXPECT_EQ(head_.failure, failure(2));
  }
}

// Of a job that runs: its worker fails, and all stop.
JobFailure exit_code(int rank, int code) {
  JobFailure result = failure(rank);
  result.signal = 0;
  result.code = code;
  return result;
}

TEST_F(RestartPolicyTest, ARestartWaitsForItsPauseWhichDoubles) {
  begin(1, 1, 3);
  head_.settings.backoff = seconds(2);
  head_.settings.most_backoff = seconds(5);
  join(1, "a");
  start();
  for (const int pause : {2, 4, 5}) {
    say(1, Failed{head_.round, failure(0)});
    stop_all();
    EXPECT_EQ(head_deadline(head_) > now_, true);
    pass(seconds(pause) - milliseconds(50));
    EXPECT_EQ(head_.phase, HeadPhase::kGathering);
    pass(milliseconds(100));
    start();
  }
  EXPECT_EQ(head_.restarts, 3);
}

TEST_F(RestartPolicyTest, WhoComesInAPauseIsToldToWait) {
  begin(1, 2, 3);
  head_.settings.backoff = seconds(100);
  join(1, "a");
  pass(seconds(31));
  start();
  say(1, Failed{0, failure(0)});
  stop_all();
  join(2, "b");
  EXPECT_EQ(last<Standing>(2)->kind, Standing::Kind::kWaiting);
  pass(seconds(101));
  start();
  EXPECT_EQ(last<Start>(2)->group_world_size, 2);
}

TEST_F(RestartPolicyTest, AnExitCodeThatIsFinalEndsTheJobAtOnce) {
  begin(2, 2, 3);
  head_.settings.final_codes = {93};
  join(1, "a");
  join(2, "b");
  start();
  say(2, Failed{0, exit_code(2, 92)});
  stop_all();
  start();
  say(2, Failed{1, exit_code(2, 93)});
  EXPECT_EQ(last<Close>(1)->failure, exit_code(2, 93));
}

class AlikeFailuresTest : public RestartPolicyTest {
 protected:
  AlikeFailuresTest() {
    begin(2, 2, 10);
    head_.settings.alike_window = seconds(10);
    join(1, "a");
    join(2, "b");
    start();
  }
  /// One of the round that is on; the next one begins where it may.
  void fail(JobFailure why, Moment after = milliseconds(5)) {
    pass(after);
    say(2, Failed{head_.round, std::move(why)});
    if (head_.phase == HeadPhase::kClosed) return;
    stop_all();
    start();
  }
};

TEST_F(AlikeFailuresTest, TwoInARowEndTheJobWhicheverRankIsTheFirst) {
  fail(exit_code(2, 5));
  fail(exit_code(3, 5));
  ASSERT_NE(last<Close>(1), nullptr);
  EXPECT_EQ(last<Close>(1)->failure, exit_code(3, 5));
  EXPECT_EQ(head_.restarts, 1);
}

TEST_F(AlikeFailuresTest, WhatIsNotTheSameOrNotSoonOrNotInARowIsTriedAgain) {
  fail(exit_code(2, 5));
  fail(exit_code(2, 6));
  fail(failure(2));
  fail(exit_code(2, 6));
  fail(exit_code(2, 6), seconds(10));
  fail(exit_code(2, 6));
  lose(2);
  stop_all();
  join(2, "b");
  pass(seconds(1));
  start();
  fail(exit_code(2, 6));
  EXPECT_NE(head_.phase, HeadPhase::kClosed);
  EXPECT_EQ(head_.restarts, 8);
  fail(exit_code(2, 6));
  EXPECT_EQ(head_.phase, HeadPhase::kClosed);
}

TEST_F(AlikeFailuresTest, AProgramThatCannotBeStartedIsComparedByTheReason) {
  JobFailure why;
  why.node_rank = 1;
  for (const char* const text : {"no such file", "text file busy", "text file busy"}) {
    EXPECT_NE(head_.phase, HeadPhase::kClosed);
    why.text = text;
    fail(why);
  }
  EXPECT_EQ(head_.phase, HeadPhase::kClosed);
}

TEST_F(RestartPolicyTest, RestartsMayBeCountedForEachNodeByItself) {
  begin(2, 2, 1);
  head_.settings.restart_scope = RestartScope::kAgent;
  join(1, "a");
  join(2, "b");
  start();
  for (const MemberId failing : {1, 2}) {
    say(failing, Failed{head_.round, failure(0)});
    stop_all();
    start();
  }
  EXPECT_EQ(last<Start>(1)->restart_count, 1);
  EXPECT_EQ(last<Start>(2)->restart_count, 1);
  say(1, Failed{2, failure(0)});
  EXPECT_NE(last<Close>(2), nullptr);
}

TEST_F(RestartPolicyTest, WhatANodeHasSpentIsNotForgottenWithItsConnection) {
  begin(2, 2, 2);
  head_.settings.restart_scope = RestartScope::kAgent;
  head_.settings.backoff = seconds(10);
  Hello second = hello("b");
  second.agent = 77;
  join(1, "a");
  event(Said{2, second});
  start();
  second.last_round = 0;
  second.last_group_rank = 1;
  say(2, Failed{0, failure(0)});
  stop_all();  // it is charged, and would be told with the next start
  lose(2, LossKind::kReset);
  event(Said{3, second});
  pass(seconds(10));
  start();
  EXPECT_EQ(last<Start>(1)->restart_count, 0);
  EXPECT_EQ(last<Start>(3)->restart_count, 1);
  // Charged while it is away.
  say(3, Failed{1, failure(0)});
  say(3, Stopped{1});
  lose(3, LossKind::kReset);
  say(1, Stopped{1});
  second.last_round = 1;
  event(Said{4, second});
  pass(seconds(20));
  start();
  EXPECT_EQ(last<Start>(1)->restart_count, 0);
  EXPECT_EQ(last<Start>(4)->restart_count, 2);
}

TEST_F(RestartPolicyTest, HowWorkersEndedIsCollectedOfTheirNodeAndThePresentRoundOnly) {
  begin(2, 2, 0);
  join(1, "a");
  join(2, "b");
  WorkerEnd end;
  const auto collected = [&](MemberId member) {
    const std::vector<HeadAction> actions = step(head_, Said{member, end}, now_);
    return actions.size() == 1 && std::holds_alternative<Collect>(actions[0]);
  };
  end.round = 0;
  EXPECT_FALSE(collected(1)) << "before it has begun";
  start();
  end.round = 7;
  EXPECT_FALSE(collected(1));
  end.round = 0;
  EXPECT_TRUE(collected(1));
  EXPECT_FALSE(collected(2)) << "of a rank of another node";
  end.rank = head_.members.at(2).base_rank;
  EXPECT_TRUE(collected(2));
  end.rank += head_.members.at(2).hello.local_ranks;
  EXPECT_FALSE(collected(2)) << "of a rank that there is not";
}

TEST_F(RestartPolicyTest, NoMoreEndsAreCollectedThanANodeShouldTell) {
  begin(1, 1, 0);
  join(1, "a");
  start();
  WorkerEnd end;
  end.round = 0;
  std::size_t collected = 0;
  for (std::size_t i = 0; i < kMostWorkerEnds + 9; ++i)
    collected += step(head_, Said{1, end}, now_).size();
  EXPECT_EQ(collected, kMostWorkerEnds);
}

TEST(BackoffTest, ItDoublesUpToTheMost) {
  RoundSettings settings;
  EXPECT_EQ(backoff_before(settings, 7), Moment::zero());
  settings.backoff = seconds(1);
  settings.most_backoff = seconds(60);
  EXPECT_EQ(backoff_before(settings, 1), seconds(1));
  EXPECT_EQ(backoff_before(settings, 6), seconds(32));
  EXPECT_EQ(backoff_before(settings, 7), seconds(60));
  EXPECT_EQ(backoff_before(settings, 2000000000), seconds(60));
}

}  // namespace
}  // namespace dtrun::rendezvous::rounds
