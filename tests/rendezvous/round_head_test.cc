#include "dtrun/rendezvous/round_head.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "natural_order.h"
#include "round_places.h"

namespace dtrun::rendezvous::rounds {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;

// A head and the words that it says, on a clock that only the test moves.
class RoundHeadTest : public testing::Test {
 protected:
  void begin(int min_nodes, int max_nodes, int max_restarts = 0) {
    RoundSettings settings;
    settings.min_nodes = min_nodes;
    settings.max_nodes = max_nodes;
    settings.max_restarts = max_restarts;
    head_ = make_head(settings, "job", now_);
  }

  Hello hello(const std::string& host, int node_rank = kNoNodeRank) const {
    Hello result;
    result.run_id = "job";
    result.host = host;
    result.node_rank = node_rank;
    result.local_ranks = 2;
    result.min_nodes = head_.settings.min_nodes;
    result.max_nodes = head_.settings.max_nodes;
    return result;
  }

  void event(const HeadEvent& what) {
    for (HeadAction& action : step(head_, what, now_)) {
      if (auto* send = std::get_if<Send>(&action)) heard_[send->id].push_back(send->message);
      if (auto* hang_up = std::get_if<HangUp>(&action)) hung_up_.push_back(hang_up->id);
      if (std::holds_alternative<End>(action)) ended_ = true;
    }
  }
  void join(MemberId id, const std::string& host, int node_rank = kNoNodeRank) {
    event(Said{id, hello(host, node_rank)});
  }
  void say(MemberId id, AgentMessage message) { event(Said{id, std::move(message)}); }
  void lose(MemberId id, LossKind kind = LossKind::kGone) { event(Lost{id, kind, "its end"}); }
  // Time passes as in life: ticks come when they are due, and members beat.
  void pass(Moment time) {
    const Moment end = now_ + time;
    while (now_ < end) {
      now_ = std::min(end, std::max(now_ + milliseconds(1), head_deadline(head_)));
      for (const MemberId id : beating()) say(id, Beat{});
      event(Tick{});
    }
  }
  std::vector<MemberId> beating() const {
    std::vector<MemberId> result;
    for (const auto& [id, member] : head_.members)
      if (!silent_.contains(id)) result.push_back(id);
    return result;
  }

  // Answers whoever is asked for a store.
  void open_store() {
    for (const auto& [id, member] : head_.members)
      if (member.group_rank == 0) return say(id, StoreReady{head_.round, "10.0.0.1", 4711});
    FAIL() << "nobody is to open a store";
  }
  void start() {
    open_store();
    ASSERT_EQ(head_.phase, HeadPhase::kRunning);
  }
  void stop_all() {
    for (const MemberId id : beating())
      if (head_.members.contains(id) && head_.members.at(id).participant())
        say(id, Stopped{head_.round});
  }

  template <typename Message>
  const Message* last(MemberId id) {
    const std::vector<HeadMessage>& all = heard_[id];
    for (auto message = all.rbegin(); message != all.rend(); ++message)
      if (const auto* found = std::get_if<Message>(&*message)) return found;
    return nullptr;
  }
  std::map<std::string, int> places() const {
    std::map<std::string, int> result;
    for (const auto& [id, member] : head_.members) result[member.hello.host] = member.group_rank;
    return result;
  }

  Moment now_ = seconds(1000);
  HeadState head_;
  std::map<MemberId, std::vector<HeadMessage>> heard_;
  std::vector<MemberId> hung_up_;
  std::map<MemberId, bool> silent_;
  bool ended_ = false;
};

JobFailure failure(int rank) {
  JobFailure result;
  result.rank = rank;
  result.node_rank = 0;
  result.host = "h";
  result.signal = 9;
  return result;
}

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

}  // namespace
}  // namespace dtrun::rendezvous::rounds
