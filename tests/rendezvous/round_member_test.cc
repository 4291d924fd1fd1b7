#include "dtrun/rendezvous/round_member.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

namespace dtrun::rendezvous::rounds {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;

class RoundMemberTest : public testing::Test {
 protected:
  RoundMemberTest() {
    member_.settings.hello.host = "h1";
    member_.settings.head_name = "n0:29500";
  }

  void event(const MemberEvent& what) { keep(step(member_, what, now_)); }
  void hear(HeadMessage message) { event(Received{std::move(message)}); }
  void keep(std::vector<MemberAction> actions) { actions_ = std::move(actions); }

  void join() {
    keep(begin(member_, now_));
    event(Connected{});
    hear(Accepted{seconds(5), seconds(15)});
  }
  void run(int round = 0) {
    Start start;
    start.round = round;
    start.group_rank = 1;
    hear(start);
  }

  // The only one of its kind among what the last event led to; null: there is none.
  template <typename Action>
  const Action* action() const {
    const Action* found = nullptr;
    for (const MemberAction& one : actions_)
      if (const auto* match = std::get_if<Action>(&one)) found = match;
    return found;
  }
  template <typename Message>
  const Message* said() const {
    for (const MemberAction& one : actions_)
      if (const auto* say = std::get_if<Say>(&one))
        if (const auto* match = std::get_if<Message>(&say->message)) return match;
    return nullptr;
  }

  Moment now_ = seconds(50);
  MemberState member_;
  std::vector<MemberAction> actions_;
};

TEST_F(RoundMemberTest, SaysHelloAndBeats) {
  keep(begin(member_, now_));
  EXPECT_TRUE(action<Connect>());
  event(Connected{});
  EXPECT_TRUE(said<Hello>());
  hear(Accepted{seconds(5), seconds(15)});
  EXPECT_EQ(member_deadline(member_), now_ + seconds(5));
  now_ += seconds(5);
  event(MemberTick{});
  EXPECT_TRUE(said<Beat>());
}

TEST_F(RoundMemberTest, NeverSaysThatWorkersAreGoneWhichSigkillDoesNotEnd) {
  const MemberState before = member_;
  for (const bool stopped : {false, true}) {
    member_ = before;
    join();
    run();
    event(WorkersStuck{7, {}});  // another round's
    EXPECT_TRUE(actions_.empty());
    if (stopped) hear(Stop{0, {}});
    JobFailure failure;
    failure.text = "stuck";
    event(WorkersStuck{0, failure});
    EXPECT_EQ(said<Leaving>()->why, failure);
    EXPECT_FALSE(said<Stopped>());
    EXPECT_EQ(action<Finish>()->kind, Finish::Kind::kFailed);
    EXPECT_EQ(action<Finish>()->failure, failure);
  }
  member_ = before;
  join();
  run();
  hear(Close{});
  EXPECT_FALSE(action<Finish>());
  event(WorkersStuck{0, {}});
  EXPECT_FALSE(said<Stopped>());
  EXPECT_EQ(action<Finish>()->kind, Finish::Kind::kSucceeded);
}

TEST_F(RoundMemberTest, RunsARoundToItsEnd) {
  join();
  hear(Prepare{0});
  ASSERT_TRUE(action<OpenStore>());
  event(StoreOpened{0, "", 4711});
  EXPECT_EQ(said<StoreReady>()->port, 4711);
  run();
  EXPECT_EQ(action<StartWorkers>()->start.group_rank, 1);
  event(WorkersGone{0, WorkersGone::How::kAllSucceeded});
  EXPECT_EQ(said<Done>()->round, 0);
  hear(Close{});
  ASSERT_TRUE(action<Finish>());
  EXPECT_EQ(action<Finish>()->kind, Finish::Kind::kSucceeded);
}

TEST_F(RoundMemberTest, TellsAFailureAndThenThatNothingIsLeft) {
  join();
  run();
  JobFailure failure;
  failure.rank = 3;
  event(WorkersFailed{0, failure});
  EXPECT_EQ(said<Failed>()->failure.rank, 3);
  hear(Stop{0, failure});
  EXPECT_FALSE(action<StopWorkers>());
  event(WorkersGone{0});
  EXPECT_EQ(said<Stopped>()->round, 0);
  run(1);
  EXPECT_EQ(action<StartWorkers>()->start.round, 1);
}

TEST_F(RoundMemberTest, StopsItsWorkersWhenTold) {
  join();
  run();
  hear(Stop{0, {}});
  EXPECT_EQ(action<StopWorkers>()->urgency, StopUrgency::kClean);
  event(WorkersGone{0});
  EXPECT_TRUE(said<Stopped>());
  hear(Stop{0, {}});
  EXPECT_TRUE(said<Stopped>());
}

TEST_F(RoundMemberTest, WordsOfOtherRoundsChangeNothing) {
  join();
  run(4);
  hear(Stop{3, {}});
  EXPECT_FALSE(action<StopWorkers>());
  event(WorkersFailed{3, {}});
  EXPECT_FALSE(said<Failed>());
  event(WorkersGone{3});
  EXPECT_EQ(member_.phase, MemberPhase::kRunning);
  hear(Stop{4, {}});
  event(WorkersGone{4});
  run(4);
  EXPECT_FALSE(action<StartWorkers>());
}

TEST_F(RoundMemberTest, ALostHeadEndsAFixedJobOnceItsWorkersAreGone) {
  join();
  run();
  event(Disconnected{"reset"});
  ASSERT_TRUE(action<StopWorkers>());
  EXPECT_THAT(action<StopWorkers>()->cause.text, HasSubstr("node 0 (n0:29500) is gone: reset"));
  EXPECT_FALSE(action<Finish>());
  event(WorkersGone{0});
  EXPECT_EQ(action<Finish>()->kind, Finish::Kind::kFailed);
}

TEST_F(RoundMemberTest, ALostHeadIsLookedForAgainWhereNodesComeAndGo) {
  member_.settings.after_loss = AfterLoss::kRejoin;
  join();
  run();
  event(Disconnected{"reset"});
  EXPECT_EQ(action<StopWorkers>()->urgency, StopUrgency::kNow);
  EXPECT_FALSE(action<Connect>());
  event(WorkersGone{0});
  EXPECT_TRUE(action<Connect>());
  event(Connected{});
  EXPECT_EQ(said<Hello>()->last_round, 0);
  EXPECT_EQ(said<Hello>()->last_group_rank, 1);
}

TEST_F(RoundMemberTest, AHeadThatNobodyAnswersForIsGone) {
  member_.settings.after_loss = AfterLoss::kRejoin;
  join();
  run();
  event(Disconnected{"reset"});
  event(WorkersGone{0});
  now_ += seconds(14);
  event(Unreachable{"connection refused"});
  EXPECT_TRUE(action<Connect>());
  now_ += seconds(2);
  event(Unreachable{"connection refused"});
  ASSERT_TRUE(action<Finish>());
  EXPECT_THAT(action<Finish>()->failure.text,
              HasSubstr("is gone: nobody answers there for 16 s: connection refused"));
}

TEST_F(RoundMemberTest, WhatDoesNotAnswerIsNoDtrun) {
  keep(begin(member_, now_));
  event(Connected{});
  now_ += seconds(60);
  event(MemberTick{});
  ASSERT_TRUE(action<Finish>());
  EXPECT_THAT(action<Finish>()->error->what(), HasSubstr("is no dtrun that this job could join"));
  EXPECT_THAT(action<Finish>()->error->what(), HasSubstr("did not answer in 60 s"));
}

TEST_F(RoundMemberTest, WhatHangsUpBeforeItAnswersIsNoDtrun) {
  keep(begin(member_, now_));
  event(Connected{});
  event(Disconnected{"it closed the connection"});
  EXPECT_EQ(action<Finish>()->kind, Finish::Kind::kError);
}

TEST_F(RoundMemberTest, JoiningIsGivenUpAfterItsTimeout) {
  keep(begin(member_, now_));
  now_ += seconds(600);
  event(Unreachable{"refused"});
  EXPECT_THAT(action<Finish>()->error->what(), HasSubstr("cannot reach n0:29500 for 600 s"));
}

TEST_F(RoundMemberTest, AJobThatDoesNotBeginIsGivenUpButNotByASpare) {
  join();
  now_ += seconds(601);
  event(MemberTick{});
  EXPECT_THAT(action<Finish>()->error->what(), HasSubstr("has not started the job for 600 s"));

  member_ = MemberState{};
  join();
  hear(Standing{Standing::Kind::kLastCall, 5});
  EXPECT_THAT(action<MemberNote>()->text, HasSubstr("enough nodes are here"));
  hear(Standing{Standing::Kind::kSpare, 5});
  EXPECT_THAT(action<MemberNote>()->text, HasSubstr("spare"));
  now_ += seconds(6000);
  event(MemberTick{});
  EXPECT_FALSE(action<Finish>());
}

TEST_F(RoundMemberTest, RefusalNamesTheReason) {
  keep(begin(member_, now_));
  event(Connected{});
  hear(Refused{"it belongs to another job"});
  EXPECT_THAT(action<Finish>()->error->what(), HasSubstr("it belongs to another job"));
}

TEST_F(RoundMemberTest, TheOperatorsStopIsToldAtOnceAndEndsWithItsWorkers) {
  join();
  run();
  event(OperatorStop{SIGINT});
  EXPECT_THAT(said<Leaving>()->why.text, HasSubstr("dtrun on node 1 (h1) was stopped by SIGINT"));
  EXPECT_EQ(action<StopWorkers>()->signal, SIGINT);
  event(OperatorStop{SIGINT});
  EXPECT_FALSE(said<Leaving>());
  EXPECT_EQ(action<StopWorkers>()->urgency, StopUrgency::kNow);
  event(WorkersGone{0});
  EXPECT_EQ(action<Finish>()->kind, Finish::Kind::kStopped);
}

TEST_F(RoundMemberTest, TheOperatorsStopBeforeTheStartIsTheEnd) {
  keep(begin(member_, now_));
  event(OperatorStop{SIGTERM});
  EXPECT_EQ(action<Finish>()->kind, Finish::Kind::kStopped);
}

TEST_F(RoundMemberTest, DoneIsDoneThoughTheHeadIsLost) {
  join();
  run();
  event(WorkersGone{0, WorkersGone::How::kAllSucceeded});
  event(Disconnected{"reset"});
  EXPECT_EQ(action<Finish>()->kind, Finish::Kind::kSucceeded);
}

TEST_F(RoundMemberTest, AnotherHeadIsJoinedOnceItsWorkersAreGone) {
  member_.settings.after_loss = AfterLoss::kRejoin;
  join();
  run();
  event(HeadMoved{"n1:4000"});
  EXPECT_TRUE(action<Disconnect>());
  EXPECT_TRUE(action<StopWorkers>());
  event(WorkersGone{0});
  EXPECT_TRUE(action<Connect>());
  EXPECT_EQ(member_.settings.head_name, "n1:4000");
}

TEST_F(RoundMemberTest, AnotherHeadIsJoinedThoughTheFormerOneHasNotAnswered) {
  member_.settings.after_loss = AfterLoss::kRejoin;
  keep(begin(member_, now_));
  event(Connected{});
  event(HeadMoved{"n1:4000"});
  EXPECT_TRUE(action<Disconnect>());
  EXPECT_TRUE(action<Connect>());
  EXPECT_FALSE(action<Finish>());
  EXPECT_EQ(member_deadline(member_), Moment::max());
  event(Connected{});
  EXPECT_TRUE(said<Hello>());
}

TEST_F(RoundMemberTest, AnotherHeadIsWaitedForAsTheFirstOne) {
  member_.settings.after_loss = AfterLoss::kRejoin;
  join();
  event(Disconnected{"reset"});
  event(Connected{});
  hear(Accepted{seconds(5), seconds(15)});
  now_ += seconds(599);
  event(MemberTick{});
  EXPECT_FALSE(action<Finish>());
  now_ += seconds(2);
  event(MemberTick{});
  EXPECT_THAT(action<Finish>()->error->what(), HasSubstr("has not started the job for 600 s"));
}

TEST_F(RoundMemberTest, WhoseRanksOthersMayTakeEndsAtOnceWithoutTheHead) {
  member_.settings.after_loss = AfterLoss::kMakeRoom;
  join();
  run();
  event(Disconnected{"timed out"});
  ASSERT_TRUE(action<StopWorkers>());
  EXPECT_EQ(action<StopWorkers>()->urgency, StopUrgency::kNow);
  EXPECT_EQ(action<StopWorkers>()->signal, SIGKILL);
  event(WorkersGone{0});
  EXPECT_EQ(action<Finish>()->kind, Finish::Kind::kFailed);
  EXPECT_THAT(action<Finish>()->failure.text, HasSubstr("node 0 (n0:29500) is gone: timed out"));
}

TEST_F(RoundMemberTest, TheHeadsSilenceIsToldOnceAndEndsNothing) {
  join();
  run();
  now_ += seconds(30);
  event(MemberTick{});
  ASSERT_TRUE(action<MemberNote>());
  EXPECT_THAT(action<MemberNote>()->text,
              HasSubstr("nothing was heard of node 0 (n0:29500) for 30 s"));
  now_ += seconds(30);
  event(MemberTick{});
  EXPECT_FALSE(action<MemberNote>());
  hear(Echo{});
  EXPECT_THAT(action<MemberNote>()->text, HasSubstr("is heard again after 60 s"));
  EXPECT_EQ(member_.phase, MemberPhase::kRunning);
}

TEST_F(RoundMemberTest, AStoreThatCannotBeOpenedIsTold) {
  join();
  hear(Prepare{0});
  event(StoreFailed{0, "no port is left"});
  EXPECT_THAT(said<Failed>()->failure.text, HasSubstr("no port is left"));
}

}  // namespace
}  // namespace dtrun::rendezvous::rounds
