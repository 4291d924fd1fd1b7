#include "dtrun/rendezvous/round_head.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rendezvous/round_head_test.h"
#include "rounds/natural_order.h"
#include "rounds/round_places.h"

namespace dtrun::rendezvous::rounds {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(RoundHeadTest, ARoundOfFixedSizeBeginsWhenAllAreHere) {
  begin(2, 2);
  join(1, "node10");
  EXPECT_EQ(head_.phase, HeadPhase::kGathering);
  join(2, "node2");
  ASSERT_EQ(head_.phase, HeadPhase::kPreparing);
  EXPECT_EQ(last<Prepare>(2)->round, 0);
  EXPECT_EQ(last<Prepare>(1), nullptr);
  start();
  const Start* first = last<Start>(2);
  const Start* second = last<Start>(1);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->group_rank, 0);
  EXPECT_EQ(first->base_rank, 0);
  EXPECT_EQ(second->group_rank, 1);
  EXPECT_EQ(second->base_rank, 2);
  EXPECT_EQ(second->world_size, 4);
  EXPECT_EQ(second->master_address, "10.0.0.1");
  EXPECT_EQ(second->master_port, 4711);
}

// As after some days of a flood of connections.
TEST_F(RoundHeadTest, ConnectionsAreToldApartBeyondFourThousandMillion) {
  constexpr MemberId kLate = MemberId{1} << 32;
  begin(2, 2);
  join(1, "a");
  join(kLate + 1, "b");
  ASSERT_EQ(head_.phase, HeadPhase::kPreparing);
  start();
  ASSERT_TRUE(last<Start>(1) && last<Start>(kLate + 1));
  EXPECT_EQ(last<Start>(kLate + 1)->group_rank, 1);
}

TEST_F(RoundHeadTest, TheJobEndsWellWhenAllAreDone) {
  begin(2, 2);
  join(1, "a");
  join(2, "b");
  start();
  say(1, Done{0});
  EXPECT_EQ(head_.phase, HeadPhase::kRunning);
  say(2, Done{0});
  ASSERT_EQ(head_.phase, HeadPhase::kClosed);
  EXPECT_EQ(last<Close>(1)->outcome, Close::Outcome::kSucceeded);
  EXPECT_FALSE(ended_);
  lose(1);
  lose(2);
  EXPECT_TRUE(ended_);
}

TEST_F(RoundHeadTest, ALastCallIsWaitedForOnceEnoughAreHere) {
  begin(2, 4);
  join(1, "a");
  pass(seconds(100));
  join(2, "b");
  pass(seconds(29));
  EXPECT_EQ(head_.phase, HeadPhase::kGathering);
  pass(seconds(2));
  EXPECT_EQ(head_.phase, HeadPhase::kPreparing);
}

TEST_F(RoundHeadTest, TheLastCallIsToldToThoseWhoAreHereAndThoseWhoCome) {
  begin(2, 4);
  join(1, "a");
  EXPECT_EQ(last<Standing>(1), nullptr);
  join(2, "b");
  join(3, "c");
  for (const MemberId id : {1, 2, 3}) {
    ASSERT_TRUE(last<Standing>(id)) << id;
    EXPECT_EQ(last<Standing>(id)->kind, Standing::Kind::kLastCall);
  }
}

TEST_F(RoundHeadTest, TheLastCallIsOverWhenTooFewAreLeft) {
  begin(2, 4);
  join(1, "a");
  join(2, "b");
  pass(seconds(29));
  lose(2);
  pass(seconds(10));
  EXPECT_EQ(head_.phase, HeadPhase::kGathering);
  join(3, "c");
  pass(seconds(29));
  EXPECT_EQ(head_.phase, HeadPhase::kGathering);
  pass(seconds(2));
  EXPECT_EQ(head_.phase, HeadPhase::kPreparing);
}

TEST_F(RoundHeadTest, TooFewWithinTheJoinTimeoutEndTheJobNamingWhoIsHere) {
  begin(3, 3);
  join(1, "a");
  join(2, "b");
  pass(seconds(601));
  ASSERT_EQ(head_.phase, HeadPhase::kClosed);
  EXPECT_THAT(last<Close>(1)->failure.text, HasSubstr("2 of 3 nodes have joined"));
  EXPECT_THAT(last<Close>(1)->failure.text, HasSubstr("(a, b)"));
}

TEST_F(RoundHeadTest, AFailureCostsARestartAndStartsWithTheSameRanksAtOnce) {
  begin(1, 4, 1);
  join(1, "a");
  join(2, "b");
  pass(seconds(31));
  start();
  say(2, Failed{0, failure(3)});
  EXPECT_EQ(last<Stop>(1)->cause, failure(3));
  say(1, Stopped{0});
  EXPECT_EQ(head_.phase, HeadPhase::kDraining);
  say(2, Stopped{0});
  ASSERT_EQ(head_.phase, HeadPhase::kPreparing);
  start();
  EXPECT_EQ(last<Start>(1)->round, 1);
  EXPECT_EQ(last<Start>(1)->restart_count, 1);
  EXPECT_EQ(last<Start>(2)->group_rank, 1);
}

TEST_F(RoundHeadTest, AFailureWithoutARestartLeftEndsTheJob) {
  begin(2, 2, 0);
  join(1, "a");
  join(2, "b");
  start();
  say(2, Failed{0, failure(3)});
  ASSERT_EQ(head_.phase, HeadPhase::kClosed);
  EXPECT_EQ(last<Close>(1)->failure, failure(3));
}

TEST_F(RoundHeadTest, AWorkerThatFailsBecauseANodeIsLostCostsNothingWhereNodesComeAndGo) {
  begin(1, 3, 0);
  join(1, "a");
  join(2, "b");
  join(3, "c");
  start();
  say(1, Failed{0, failure(0)});
  lose(3);
  say(1, Stopped{0});
  say(2, Stopped{0});
  pass(seconds(1));
  EXPECT_EQ(head_.phase, HeadPhase::kGathering);
  pass(seconds(31));
  start();
  EXPECT_EQ(last<Start>(2)->restart_count, 0);
  EXPECT_EQ(last<Start>(2)->group_world_size, 2);
}

TEST_F(RoundHeadTest, ALostNodeOfAFixedJobEndsItOrCostsARestart) {
  begin(2, 2, 1);
  join(1, "a");
  join(2, "b");
  start();
  lose(2);
  say(1, Stopped{0});
  pass(seconds(1));
  EXPECT_EQ(head_.restarts, 1);
  join(3, "c");
  start();
  lose(3);
  ASSERT_EQ(head_.phase, HeadPhase::kClosed);
  EXPECT_THAT(last<Close>(1)->failure.text, HasSubstr("node 1 (c) is gone: its end"));
}

TEST_F(RoundHeadTest, SurvivorsKeepTheirRanksAndASpareTakesTheFreeOne) {
  begin(1, 3);
  join(1, "a");
  join(2, "b");
  join(3, "c");
  start();
  join(4, "0-before-all");
  EXPECT_EQ(last<Standing>(4)->kind, Standing::Kind::kSpare);
  lose(1);
  stop_all();
  EXPECT_EQ(head_.phase, HeadPhase::kDraining);  // the dead one's workers may need a moment
  pass(seconds(1));
  start();
  EXPECT_THAT(places(), (testing::UnorderedElementsAre(testing::Pair("b", 1), testing::Pair("c", 2),
                                                       testing::Pair("0-before-all", 0))));
}

TEST_F(RoundHeadTest, NobodyTakesThePlaceOfASilentNodeBeforeItMustHaveEnded) {
  begin(1, 2);
  join(1, "a");
  join(2, "b");
  start();
  join(3, "spare");
  pass(seconds(3));
  lose(2, LossKind::kSilent);
  say(1, Stopped{0});
  pass(seconds(14));
  EXPECT_EQ(head_.phase, HeadPhase::kDraining);
  pass(seconds(2));
  EXPECT_EQ(head_.phase, HeadPhase::kPreparing);
}

TEST_F(RoundHeadTest, ASilentMemberIsLostAfterTheWindow) {
  begin(1, 2);
  join(1, "a");
  join(2, "b");
  start();
  silent_[2] = true;
  pass(seconds(14));
  EXPECT_EQ(head_.phase, HeadPhase::kRunning);
  pass(seconds(6));
  EXPECT_THAT(hung_up_, ElementsAre(2));
  EXPECT_THAT(last<Stop>(1)->cause.text, HasSubstr("nothing was heard of it for 15 s"));
}

TEST_F(RoundHeadTest, NobodyIsEvictedForTheHeadsOwnPause) {
  begin(1, 2);
  join(1, "a");
  join(2, "b");
  start();
  pass(seconds(4));
  now_ += seconds(60);
  event(Tick{});
  EXPECT_TRUE(hung_up_.empty());
  pass(seconds(60));
  EXPECT_EQ(head_.phase, HeadPhase::kRunning);
}

TEST_F(RoundHeadTest, NewcomersWaitForOneAnotherWhileTheRoundRuns) {
  begin(1, 4);
  join(1, "a");
  pass(seconds(31));
  start();
  join(2, "b");
  EXPECT_EQ(last<Standing>(2)->kind, Standing::Kind::kWaiting);
  pass(seconds(20));
  join(3, "c");
  EXPECT_EQ(head_.phase, HeadPhase::kRunning);
  pass(seconds(11));
  ASSERT_EQ(head_.phase, HeadPhase::kDraining);
  stop_all();
  start();
  EXPECT_EQ(last<Start>(3)->group_world_size, 3);
  EXPECT_EQ(last<Start>(3)->restart_count, 0);
}

TEST_F(RoundHeadTest, NewcomersThatFillTheJobAreNotKeptWaiting) {
  begin(1, 2);
  join(1, "a");
  pass(seconds(31));
  start();
  join(2, "b");
  EXPECT_EQ(head_.phase, HeadPhase::kDraining);
}

TEST_F(RoundHeadTest, AWorkerThatFailsWhileTheRoundIsStoppedForNewcomersCostsNothing) {
  begin(1, 2);
  join(1, "a");
  pass(seconds(31));
  start();
  join(2, "b");
  say(1, Failed{0, failure(0)});
  say(1, Stopped{0});
  EXPECT_EQ(head_.phase, HeadPhase::kPreparing);
  EXPECT_EQ(head_.restarts, 0);
}

TEST_F(RoundHeadTest, NoNewRoundOpensOnceSomebodyIsDone) {
  begin(1, 3, 5);
  join(1, "a");
  join(2, "b");
  pass(seconds(31));
  start();
  say(1, Done{0});
  join(3, "c");
  EXPECT_THAT(last<Refused>(3)->text, HasSubstr("job 'job' is ending"));
  say(2, Failed{0, failure(2)});
  ASSERT_EQ(head_.phase, HeadPhase::kClosed);
  EXPECT_EQ(last<Close>(1)->outcome, Close::Outcome::kFailed);
}

TEST_F(RoundHeadTest, ARoundThatIsDoneWhileItIsStoppedForNewcomersIsTheEnd) {
  begin(1, 2);
  join(1, "a");
  pass(seconds(31));
  start();
  join(2, "b");
  ASSERT_EQ(head_.phase, HeadPhase::kDraining);
  say(1, Done{0});
  EXPECT_EQ(head_.phase, HeadPhase::kClosed);
  EXPECT_EQ(last<Close>(2)->outcome, Close::Outcome::kSucceeded);
}

TEST_F(RoundHeadTest, ALeavingNodeCostsNothingWhereNodesComeAndGo) {
  begin(1, 2, 0);
  join(1, "a");
  join(2, "b");
  start();
  JobFailure why;
  why.text = "dtrun was stopped";
  say(2, Leaving{why});
  lose(2);
  say(1, Stopped{0});
  pass(seconds(31));
  start();
  EXPECT_EQ(last<Start>(1)->group_world_size, 1);
}

TEST_F(RoundHeadTest, ALeavingNodeEndsAFixedJob) {
  begin(2, 2, 3);
  join(1, "a");
  join(2, "b");
  start();
  JobFailure why;
  why.text = "dtrun was stopped";
  say(2, Leaving{why});
  EXPECT_EQ(last<Close>(1)->failure, why);
}

TEST_F(RoundHeadTest, TheHostsLeaveEndsTheJob) {
  begin(1, 2);
  head_.own = 1;
  join(1, "a");
  join(2, "b");
  start();
  say(1, Leaving{failure(-1)});
  EXPECT_NE(last<Close>(2), nullptr);
}

TEST_F(RoundHeadTest, WordsOfOtherRoundsChangeNothing) {
  begin(1, 2, 3);
  join(1, "a");
  join(2, "b");
  start();
  say(2, Failed{0, failure(2)});
  stop_all();
  start();
  ASSERT_EQ(head_.round, 1);
  say(1, Done{0});
  say(2, Failed{0, failure(2)});
  say(1, Stopped{0});
  say(1, StoreReady{0, "x", 1});
  EXPECT_EQ(head_.phase, HeadPhase::kRunning);
  EXPECT_EQ(head_.done, 0);
  EXPECT_EQ(head_.busy, 2);
}

TEST_F(RoundHeadTest, AStoreThatItsNodeCannotOpenEndsTheJob) {
  begin(1, 1);
  join(1, "a");
  say(1, Failed{0, failure(-1)});
  EXPECT_EQ(head_.phase, HeadPhase::kClosed);
}

TEST_F(RoundHeadTest, WhoIsToOpenTheStoreAndIsLostIsReplaced) {
  begin(2, 3);
  join(1, "a");
  join(2, "b");
  join(3, "c");
  ASSERT_EQ(head_.phase, HeadPhase::kPreparing);
  lose(1);
  pass(seconds(31));
  ASSERT_EQ(head_.phase, HeadPhase::kPreparing);
  EXPECT_EQ(last<Prepare>(2)->round, 1);
  say(2, StoreReady{0, "", 1});
  EXPECT_EQ(head_.phase, HeadPhase::kPreparing);
  start();
}

TEST_F(RoundHeadTest, AnAgentThatComesBackReplacesItself) {
  begin(1, 2);
  join(1, "a");
  Hello again = hello("b");
  again.agent = 77;
  event(Said{2, again});
  start();
  again.last_round = 0;
  again.last_group_rank = 1;
  event(Said{3, again});
  EXPECT_THAT(hung_up_, ElementsAre(2));
  say(1, Stopped{0});
  pass(seconds(1));
  start();
  EXPECT_EQ(last<Start>(3)->group_rank, 1);
}

// A reset may come from a box on the way; whoever says Hello has no live workers.
TEST_F(RoundHeadTest, WhoComesBackAfterAResetKeepsItsPlaceAndNobodyWaits) {
  begin(1, 4);
  Hello second = hello("b"), third = hello("c");
  second.agent = 77;
  third.agent = 78;
  join(1, "a");
  event(Said{2, second});
  event(Said{3, third});
  pass(seconds(31));
  start();
  lose(2, LossKind::kReset);
  lose(3, LossKind::kSilent);
  EXPECT_THAT(last<Stop>(1)->cause.text, HasSubstr("is gone"));
  say(1, Stopped{0});
  for (Hello* back : {&second, &third}) back->last_round = 0;
  second.last_group_rank = 1;
  third.last_group_rank = 2;
  event(Said{4, second});
  EXPECT_EQ(head_.phase, HeadPhase::kDraining) << "the other may live";
  event(Said{5, third});
  ASSERT_EQ(head_.phase, HeadPhase::kPreparing) << "all of the last round are there again";
  start();
  EXPECT_EQ(last<Start>(4)->group_rank, 1);
  EXPECT_EQ(last<Start>(5)->group_rank, 2);
  EXPECT_EQ(last<Start>(1)->restart_count, 0);
}

// By the second one it may have been told to start.
TEST_F(RoundHeadTest, AHelloThatWasOvertakenByALaterOneIsNotHeard) {
  begin(1, 2);
  Hello agent = hello("a");
  agent.agent = 77;
  agent.connection = 1;
  const Hello late = agent;
  agent.connection = 2;
  event(Said{1, agent});
  pass(seconds(31));
  start();
  event(Said{2, late});
  EXPECT_THAT(hung_up_, ElementsAre(2));
  EXPECT_EQ(head_.phase, HeadPhase::kRunning);
  lose(1, LossKind::kReset);
  event(Said{3, late});
  EXPECT_THAT(hung_up_, ElementsAre(2, 3));
  EXPECT_GT(fence_of(head_), now_ + seconds(10)) << "it may have live workers";
}

TEST_F(RoundHeadTest, WhoIsDoneAndComesByAnotherConnectionIsDone) {
  begin(2, 2, 1);
  Hello first = hello("a");
  first.agent = 76;
  event(Said{1, first});
  join(2, "b");
  start();
  // Its Done was lost with the connection, of whose end nothing is known here yet.
  first.last_round = first.done_round = 0;
  first.last_group_rank = 0;
  event(Said{3, first});
  EXPECT_THAT(hung_up_, ElementsAre(1));
  EXPECT_EQ(head_.phase, HeadPhase::kRunning);
  EXPECT_EQ(head_.done, 1);
  say(2, Done{0});
  EXPECT_EQ(last<Close>(3)->outcome, Close::Outcome::kSucceeded);
}

TEST_F(RoundHeadTest, WhoIsDoneAndComesBackWhileTheRoundIsStoppedIsStopped) {
  begin(1, 3);
  Hello second = hello("b");
  second.agent = 77;
  join(1, "a");
  event(Said{2, second});
  pass(seconds(31));
  start();
  say(1, Failed{0, failure(0)});
  second.last_round = second.done_round = 0;
  second.last_group_rank = 1;
  event(Said{3, second});
  EXPECT_TRUE(last<Accepted>(3));
  EXPECT_TRUE(last<Stop>(3));
}

TEST_F(RoundHeadTest, WhoSaysTwiceWhoItIsMayLiveOn) {
  begin(1, 2);
  join(1, "a");
  join(2, "b");
  start();
  join(2, "b");
  EXPECT_THAT(hung_up_, ElementsAre(2));
  say(1, Stopped{0});
  join(3, "c");
  pass(seconds(14));
  EXPECT_EQ(head_.phase, HeadPhase::kDraining);
  pass(seconds(2));
  EXPECT_EQ(head_.phase, HeadPhase::kPreparing);
}

TEST_F(RoundHeadTest, NothingIsKeptOfThoseWhoComeAndGo) {
  begin(1, 4, 3);
  head_.settings.restart_scope = RestartScope::kAgent;
  join(1, "a");
  pass(seconds(31));
  start();
  Hello stranger = hello("s");
  stranger.last_round = 0;
  stranger.restarts = 2;
  for (MemberId id = 10; id < 1000; ++id) {
    stranger.agent = static_cast<std::uint64_t>(id);
    event(Said{id, stranger});
    lose(id);
  }
  EXPECT_EQ(head_.phase, HeadPhase::kRunning);
  EXPECT_LE(head_.lost_agents.size(), 4U);
  EXPECT_EQ(head_.spent_by_agent.size(), 0U);
  EXPECT_EQ(head_.connections.size(), 0U);
}

// Whatever is lost first: the failure's cost is added to what was spent before.
TEST_F(RoundHeadTest, WhatAnAgentHasSpentIsKnownWhenItComesBack) {
  begin(1, 2, 3);
  head_.settings.restart_scope = RestartScope::kAgent;
  Hello second = hello("b");
  second.agent = 77;
  second.restarts = 1;
  join(1, "a");
  event(Said{2, second});
  start();
  say(2, Failed{0, failure(2)});
  lose(2);
  say(1, Stopped{0});
  pass(seconds(1));
  second.last_round = 0;
  second.last_group_rank = 1;
  event(Said{3, second});
  start();
  EXPECT_EQ(last<Start>(3)->restart_count, 2);
}

TEST_F(RoundHeadTest, WorkersThatEndWithoutAReasonHaveFailed) {
  begin(2, 2);
  join(1, "a");
  join(2, "b");
  start();
  say(2, Stopped{0});
  ASSERT_EQ(head_.phase, HeadPhase::kClosed);
  EXPECT_THAT(last<Close>(1)->failure.text,
              HasSubstr("the workers of node 1 (b) have ended without a reason"));
}

TEST_F(RoundHeadTest, AClosedHeadIsNeverLate) {
  begin(2, 2);
  head_.settings.close_timeout = seconds(1);
  join(1, "a");
  Hello other = hello("b");
  other.max_nodes = 3;
  event(Said{2, other});
  ASSERT_EQ(head_.phase, HeadPhase::kClosed);
  for (int ticks = 0; !ended_; ++ticks) {
    ASSERT_LT(ticks, 20);
    now_ = head_deadline(head_);
    event(Tick{});
    ASSERT_TRUE(ended_ || head_deadline(head_) > now_);
  }
}

TEST_F(RoundHeadTest, AHeadThatTakesOverWaitsUntilTheOldRoundMustHaveEnded) {
  begin(1, 2);
  take_over(head_, 7, now_);
  join(1, "a");
  join(2, "b");
  pass(seconds(15));
  EXPECT_EQ(head_.phase, HeadPhase::kGathering);
  pass(seconds(1));
  ASSERT_EQ(head_.phase, HeadPhase::kPreparing);
  start();
  EXPECT_EQ(last<Start>(1)->round, 8);
  EXPECT_EQ(last<Start>(1)->restart_count, 0);
}

TEST_F(RoundHeadTest, WhatARecordDoesNotTellItsMembersTellAHeadThatTakesOver) {
  begin(2, 2, 2);
  take_over(head_, kNoRound, now_);
  Hello old = hello("a");
  old.last_round = 4;
  old.last_group_rank = 1;
  old.restarts = 1;
  event(Said{1, old});
  join(2, "b");
  EXPECT_EQ(head_.phase, HeadPhase::kGathering);
  pass(seconds(16));
  start();
  EXPECT_EQ(last<Start>(1)->round, 5);
  EXPECT_EQ(last<Start>(1)->group_rank, 1);
  EXPECT_EQ(last<Start>(1)->restart_count, 2);  // the head's node was one of a fixed number
}

TEST_F(RoundHeadTest, AHeadThatTakesOverAFixedJobWithoutARestartLeftEndsIt) {
  begin(2, 2, 0);
  take_over(head_, 0, now_);
  join(1, "a");
  ASSERT_EQ(head_.phase, HeadPhase::kClosed);
  EXPECT_THAT(last<Close>(1)->failure.text, HasSubstr("hosted the rendezvous is gone"));
  EXPECT_FALSE(ended_);
  join(2, "b");
  EXPECT_THAT(last<Refused>(2)->text, HasSubstr("no restart is left"));
}

TEST_F(RoundHeadTest, StrangersAreSentAwayByName) {
  begin(2, 2);
  join(1, "a");
  Hello other = hello("b");
  other.run_id = "another";
  event(Said{2, other});
  EXPECT_THAT(last<Refused>(2)->text,
              HasSubstr("it belongs to job 'another', and this is job 'job'"));
  join(3, "b");
  EXPECT_EQ(head_.phase, HeadPhase::kPreparing);
  start();
  join(4, "c");
  EXPECT_THAT(last<Refused>(4)->text, HasSubstr("is full"));
}

TEST_F(RoundHeadTest, WhoComesWithATakenNumberToAJobThatHasBegunIsToldThat) {
  begin(2, 2);
  join(1, "a", 0);
  join(2, "b", 1);
  start();
  join(3, "c", 1);
  EXPECT_THAT(last<Refused>(3)->text,
              HasSubstr("--node_rank=1 of job 'job' is taken already, by b"));
}

TEST_F(RoundHeadTest, AContradictionEndsTheJobThatOneLineStarted) {
  begin(2, 2);
  join(1, "a");
  Hello other = hello("b");
  other.max_nodes = 3;
  event(Said{2, other});
  EXPECT_THAT(last<Refused>(2)->text, HasSubstr("--nnodes=2:3, node 0 with --nnodes=2"));
  EXPECT_EQ(head_.phase, HeadPhase::kClosed);
}

TEST_F(RoundHeadTest, RanksAreCountedWithinTheirRole) {
  begin(3, 3);
  for (const auto& [id, role] : std::map<MemberId, std::string>{{1, "a"}, {2, "b"}, {3, "a"}}) {
    Hello with_role = hello("h");
    with_role.role = role;
    event(Said{id, with_role});
  }
  start();
  EXPECT_EQ(last<Start>(3)->base_rank, 4);
  EXPECT_EQ(last<Start>(3)->role_base_rank, 2);
  EXPECT_EQ(last<Start>(3)->role_world_size, 4);
  EXPECT_EQ(last<Start>(2)->role_base_rank, 0);
  EXPECT_EQ(last<Start>(2)->role_world_size, 2);
}

TEST_F(RoundHeadTest, GivenNodeRanksAreHonoured) {
  begin(3, 3);
  join(1, "a", 2);
  join(2, "b", 0);
  join(3, "c", 0);
  EXPECT_THAT(last<Refused>(3)->text, HasSubstr("--node_rank=0 is taken already, by b"));
}

TEST(RoundPlaces, AreClaimedBeforeTheyAreFilled) {
  const std::vector<Candidate> placed = in_places({{1, "node10", kNoNodeRank, kNoNodeRank},
                                                   {2, "node2", kNoNodeRank, kNoNodeRank},
                                                   {3, "node3", kNoNodeRank, 0},
                                                   {4, "node4", kNoNodeRank, 9}});
  std::vector<MemberId> order;
  for (const Candidate& candidate : placed) order.push_back(candidate.id);
  EXPECT_THAT(order, ElementsAre(3, 2, 4, 1));
}

TEST(NaturalOrder, CountsAsPeopleDo) {
  EXPECT_TRUE(naturally_before("node2", "node10"));
  EXPECT_FALSE(naturally_before("node10", "node2"));
  EXPECT_TRUE(naturally_before("a", "b"));
  EXPECT_TRUE(naturally_before("rack1-node9", "rack2-node1"));
  EXPECT_FALSE(naturally_before("n07", "n7"));
  EXPECT_FALSE(naturally_before("n7", "n07"));
}

// Its socket is open a moment longer than it leads.
TEST_F(RoundHeadTest, WhoComesToAHeadThatHasSteppedDownIsToldNothingAndLooksForTheNext) {
  begin(1, 2);
  join(1, "node1");
  join(2, "node2");
  start();
  step_down(head_);
  heard_.clear();
  join(3, "node2");
  say(4, hello("node3"));
  EXPECT_TRUE(heard_.empty());
  EXPECT_EQ(hung_up_, (std::vector<MemberId>{3, 4}));
}

}  // namespace
}  // namespace dtrun::rendezvous::rounds
