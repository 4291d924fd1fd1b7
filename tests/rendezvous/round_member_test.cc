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

TEST_F(RoundMemberTest, OthersMayGoOnWithoutItUntilTheJobIsJudgedOrWhereThereIsOneRoundOnly) {
  member_.settings.hello.max_nodes = 2;
  const MemberState before = member_;
  for (const AfterLoss after : {AfterLoss::kEnd, AfterLoss::kMakeRoom, AfterLoss::kRejoin}) {
    const bool they_may = after != AfterLoss::kEnd;
    member_ = before;
    member_.settings.after_loss = after;
    join();
    run();
    EXPECT_EQ(others_may_go_on(member_), they_may);
    hear(Stop{0, {}});
    EXPECT_EQ(others_may_go_on(member_), they_may);
    const MemberState stopping = member_;
    event(OperatorStop{SIGTERM});
    EXPECT_EQ(others_may_go_on(member_), they_may);
    member_ = stopping;
    hear(Close{Close::Outcome::kFailed, {}});
    EXPECT_FALSE(others_may_go_on(member_));
  }
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

// The head may have taken its hello in.
TEST_F(RoundMemberTest, TheOperatorsStopIsToldToAHeadThatHasNotAnsweredYet) {
  keep(begin(member_, now_));
  event(Connected{});
  event(OperatorStop{SIGTERM});
  EXPECT_THAT(said<Leaving>()->why.text, HasSubstr("stopped by SIGTERM"));
  EXPECT_EQ(action<Finish>()->kind, Finish::Kind::kStopped);
}

// Whether the job has ended well only a head can say.
TEST_F(RoundMemberTest, WhoIsDoneAndLosesTheHeadAsksHowTheJobHasEnded) {
  const MemberState fresh = member_;
  for (const AfterLoss after : {AfterLoss::kEnd, AfterLoss::kMakeRoom, AfterLoss::kRejoin})
    for (const LossKind kind : {LossKind::kGone, LossKind::kSilent, LossKind::kReset}) {
      member_ = fresh;
      member_.settings.after_loss = after;
      join();
      run();
      event(WorkersGone{0, WorkersGone::How::kAllSucceeded});
      event(Disconnected{"its end", kind});
      EXPECT_FALSE(action<Finish>());
      ASSERT_TRUE(action<Connect>());
      event(Connected{});
      EXPECT_EQ(said<Hello>()->done_round, 0);
      hear(Accepted{seconds(5), seconds(15)});
      event(Disconnected{"once more", kind});
      EXPECT_TRUE(action<Connect>());
      event(Connected{});
      hear(Accepted{seconds(5), seconds(15)});
      Close failed;
      failed.outcome = Close::Outcome::kFailed;
      failed.failure.text = "rank 3 failed";
      hear(failed);
      EXPECT_EQ(action<Finish>()->failure, failed.failure);
    }
}

TEST_F(RoundMemberTest, DoneIsSaidToTheNextHead) {
  member_.settings.after_loss = AfterLoss::kRejoin;
  join();
  run(3);
  event(WorkersGone{3, WorkersGone::How::kAllSucceeded});
  event(HeadMoved{"n1:4000"});
  EXPECT_FALSE(action<Finish>());
  EXPECT_TRUE(action<Connect>());
  event(Connected{});
  EXPECT_EQ(said<Hello>()->done_round, 3);
  EXPECT_EQ(said<Hello>()->last_group_size, 1);
  hear(Accepted{seconds(5), seconds(15)});
  hear(Standing{});
  EXPECT_FALSE(action<MemberNote>()) << "it will be in no other round";
  hear(Close{});
  EXPECT_EQ(action<Finish>()->kind, Finish::Kind::kSucceeded);
}

TEST_F(RoundMemberTest, WhoIsDoneWhileTheHeadIsLostIsDone) {
  member_.settings.after_loss = AfterLoss::kRejoin;
  join();
  run();
  event(Disconnected{"reset"});
  event(WorkersGone{0, WorkersGone::How::kAllSucceeded});
  event(Connected{});
  EXPECT_EQ(said<Hello>()->done_round, 0);
}

TEST_F(RoundMemberTest, WhoIsDoneAndFindsNoHeadSaysWhatItCannotKnow) {
  member_.settings.after_loss = AfterLoss::kRejoin;
  join();
  run();
  event(WorkersGone{0, WorkersGone::How::kAllSucceeded});
  event(Disconnected{"reset"});
  now_ += seconds(16);
  event(Unreachable{"refused"});
  EXPECT_EQ(action<Finish>()->kind, Finish::Kind::kFailed);
  EXPECT_EQ(
      action<Finish>()->failure.text,
      "the head (n0:29500) is gone: nobody answers there for 16 s: refused; the ranks of node "
      "1 (h1) have ended well, and how the job has ended it cannot know");
}

TEST_F(RoundMemberTest, DoneIsForgottenWhereTheRoundIsStoppedOrAnotherBegins) {
  member_.settings.after_loss = AfterLoss::kRejoin;
  join();
  run();
  event(WorkersGone{0, WorkersGone::How::kAllSucceeded});
  hear(Stop{0, {}});
  EXPECT_EQ(said<Stopped>()->round, 0);
  EXPECT_EQ(member_.settings.hello.done_round, kNoRound);
  run(1);
  event(WorkersGone{1, WorkersGone::How::kAllSucceeded});
  event(HeadMoved{"n1:4000"});
  event(Connected{});
  hear(Accepted{seconds(5), seconds(15)});
  hear(Prepare{5});  // by a head that knows of a later one
  EXPECT_TRUE(action<OpenStore>());
  run(5);
  EXPECT_EQ(member_.phase, MemberPhase::kRunning);
  EXPECT_EQ(member_.settings.hello.done_round, kNoRound);
}

TEST_F(RoundMemberTest, AResetIsNoReasonToMakeRoom) {
  member_.settings.after_loss = AfterLoss::kMakeRoom;
  join();
  run();
  event(Disconnected{"reset", LossKind::kReset});
  ASSERT_TRUE(action<StopWorkers>());
  EXPECT_EQ(action<StopWorkers>()->urgency, StopUrgency::kNow);
  event(WorkersGone{0});
  EXPECT_TRUE(action<Connect>());
  event(Connected{});
  EXPECT_EQ(said<Hello>()->last_round, 0);
  hear(Accepted{seconds(5), seconds(15)});
  event(Disconnected{"reset again", LossKind::kReset});
  EXPECT_TRUE(action<Connect>());
  event(Connected{});
  event(Disconnected{"reset once more", LossKind::kReset});
  EXPECT_TRUE(action<Connect>());
  event(Connected{});
  hear(Accepted{seconds(5), seconds(15)});
  event(Disconnected{"closed"});
  EXPECT_THAT(action<Finish>()->failure.text, HasSubstr("is gone: closed"));
}

TEST_F(RoundMemberTest, AResetBeforeTheStartIsNoEnd) {
  join();
  event(Disconnected{"reset", LossKind::kReset});
  EXPECT_TRUE(action<Connect>());
}

// As by another program that listens where the head did.
TEST_F(RoundMemberTest, AMemberWhoseConnectionsAllEndDoesNotTryForEver) {
  member_.settings.join_timeout = seconds(600);
  keep(begin(member_, now_));
  for (const Moment time : {seconds(599), seconds(1)}) {
    event(Connected{});
    now_ += time;
    event(Disconnected{"reset", LossKind::kReset});
    EXPECT_EQ(action<Connect>() != nullptr, time == seconds(599));
  }
  EXPECT_THAT(action<Finish>()->error->summary(), HasSubstr("cannot reach n0:29500 for 600 s"));

  member_ = {};
  member_.settings.after_loss = AfterLoss::kRejoin;
  join();
  run();
  event(Disconnected{"closed"});
  event(WorkersGone{0});
  for (const Moment time : {seconds(14), seconds(1)}) {
    event(Connected{});
    now_ += time;
    event(Disconnected{"that is no dtrun"});
    EXPECT_EQ(action<Connect>() != nullptr, time == seconds(14));
  }
  EXPECT_THAT(action<Finish>()->failure.text, HasSubstr("nobody answers there for 15 s"));
}

TEST_F(RoundMemberTest, WhoIsEvictedKnowsWhy) {
  for (const AfterLoss after : {AfterLoss::kEnd, AfterLoss::kMakeRoom, AfterLoss::kRejoin}) {
    member_ = {};
    member_.settings.after_loss = after;
    join();
    run();
    hear(Evicted{"node 1 (h1) was given up by the head on n0: nothing was heard of it for 15 s"});
    EXPECT_TRUE(action<Disconnect>());
    ASSERT_TRUE(action<StopWorkers>());
    EXPECT_EQ(action<MemberNote>() != nullptr, after == AfterLoss::kRejoin);
    event(WorkersGone{0});
    EXPECT_EQ(action<Connect>() != nullptr, after == AfterLoss::kRejoin);
    if (after == AfterLoss::kRejoin) continue;
    EXPECT_EQ(action<Finish>()->kind, Finish::Kind::kFailed);
    EXPECT_THAT(action<Finish>()->failure.describe(), testing::StartsWith("node 1 (h1) was given"));
  }
}

TEST_F(RoundMemberTest, WhoIsEvictedBeforeTheStartKnowsWhy) {
  join();
  hear(Evicted{"h1 was given up by the head on n0: nothing was heard of it for 15 s"});
  EXPECT_THAT(action<Finish>()->error->what(), HasSubstr("h1 was given up by the head on n0"));
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

TEST_F(RoundMemberTest, ANodeWhoseRanksOthersMayTakeEndsAtOnceWithoutTheHead) {
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

// Closed is final, though the head dies before it has told all: what it has left is taken.
TEST_F(RoundMemberTest, WhoLosesTheHeadTakesTheVerdictThatItLeft) {
  member_.settings.after_loss = AfterLoss::kRejoin;
  member_.settings.hello.run_id = "job7";
  const MemberState fresh = member_;
  Close failed;
  failed.outcome = Close::Outcome::kFailed;
  failed.failure.text = "rank 3 failed";
  for (const bool left_first : {true, false}) {
    member_ = fresh;
    join();
    run();
    if (left_first) {
      event(VerdictLeft{failed});
      EXPECT_TRUE(actions_.empty()) << "the head is there to tell it";
    }
    event(Disconnected{"its end"});
    EXPECT_TRUE(action<StopWorkers>());
    if (!left_first) event(VerdictLeft{failed});
    event(WorkersGone{0});
    EXPECT_FALSE(action<Connect>()) << left_first;
    ASSERT_TRUE(action<Finish>()) << left_first;
    EXPECT_EQ(action<Finish>()->failure, failed.failure);
  }
  for (const bool done : {true, false}) {  // while it looks for another head
    member_ = fresh;
    join();
    run();
    if (done) event(WorkersGone{0, WorkersGone::How::kAllSucceeded});
    event(Disconnected{"its end"});
    if (!done) event(WorkersGone{0});
    ASSERT_TRUE(action<Connect>());
    event(VerdictLeft{Close{}});
    ASSERT_TRUE(action<Finish>());
    EXPECT_EQ(action<Finish>()->kind, done ? Finish::Kind::kSucceeded : Finish::Kind::kFailed);
    EXPECT_EQ(action<Finish>()->failure.text,
              done ? "" : "the job has ended well without node 1 (h1)");
  }
  member_ = fresh;
  keep(begin(member_, now_));
  event(VerdictLeft{failed});
  EXPECT_EQ(action<Finish>()->error->what(), std::string("job 'job7' is over\n  why: rank 3 failed"
                                                         "\n  try: start another one with another "
                                                         "--rdzv_id"));
}

// Nobody is elected in the place of a head that has judged.
TEST_F(RoundMemberTest, AHeadThatHasJudgedAndStandsStillIsNotWaitedFor) {
  for (const bool silent_first : {true, false}) {
    member_ = {};
    member_.settings.after_loss = AfterLoss::kRejoin;
    join();
    run();
    event(WorkersGone{0, WorkersGone::How::kAllSucceeded});
    if (!silent_first) event(VerdictLeft{Close{}});
    now_ += seconds(31);
    event(MemberTick{});
    if (silent_first) event(VerdictLeft{Close{}});
    EXPECT_TRUE(action<Disconnect>());
    ASSERT_TRUE(action<Finish>()) << silent_first;
    EXPECT_EQ(action<Finish>()->kind, Finish::Kind::kSucceeded);
  }
}

}  // namespace
}  // namespace dtrun::rendezvous::rounds
