// Whole small jobs over real sockets: a head and its agents.
#include "dtrun/rendezvous/membership.h"

#include <gtest/gtest.h>

#include "rendezvous/resetting_relay.h"
#include "rendezvous/served_head.h"
#include "rendezvous/served_store.h"
#include "support/own_port.h"
#include "support/scripted_server.h"
#include "support/thrown_error.h"

namespace dtrun::rendezvous {
namespace {

using rounds::Finish;
using testing_support::contains;

TEST(MembershipTest, AJobStartsAndEndsOnAllItsNodes) {
  const auto job = job_of(3, 3);
  ServedHead head(job);
  TestAgents agents(job);
  TestAgent& second = agents.add("node10", head.place());
  TestAgent& first = agents.add("node2", head.place());
  TestAgent& third = agents.add("node20", head.place(), {.local_ranks = 3});
  ASSERT_TRUE(agents.until_round(0, {&first, &second, &third}));
  EXPECT_EQ(first.stores, 1);
  EXPECT_EQ(second.starts[0].group_rank, 1);
  EXPECT_EQ(third.starts[0].base_rank, 4);
  EXPECT_EQ(third.starts[0].world_size, 7);
  EXPECT_EQ(third.starts[0].master_port, 1001);
  // The store is on the head's machine, and all are on one.
  EXPECT_EQ(third.starts[0].master_address, "n0");
  first.succeed();
  second.succeed();
  third.succeed();
  ASSERT_TRUE(agents.until_finished({&first, &second, &third}));
  EXPECT_EQ(first.finished->kind, Finish::Kind::kSucceeded);
  EXPECT_TRUE(head.ended());
}

TEST(MembershipTest, AFailureStopsAllAndRestartsThem) {
  const auto job = job_of(2, 2, 1);
  ServedHead head(job);
  TestAgents agents(job);
  TestAgent& a = agents.add("a", head.place());
  TestAgent& b = agents.add("b", head.place());
  ASSERT_TRUE(agents.until_round(0, {&a, &b}));
  b.fail(3);
  ASSERT_TRUE(agents.until_round(1, {&a, &b}));
  EXPECT_EQ(a.stops.size(), 1u);
  EXPECT_EQ(a.starts[1].restart_count, 1);
  EXPECT_EQ(b.starts[1].group_rank, 1);
  EXPECT_EQ(a.starts[1].master_port, 1002) << "a round has a store of its own";
  a.fail(4);
  ASSERT_TRUE(agents.until_finished({&a, &b}));
  EXPECT_EQ(b.finished->kind, Finish::Kind::kFailed);
  EXPECT_EQ(b.finished->failure.code, 4);
  EXPECT_TRUE(head.ended());
}

TEST(MembershipTest, AgentsJoinAndLeaveAndStandBy) {
  const auto job = job_of(1, 2);
  ServedHead head(job);
  TestAgents agents(job);
  const TestAgentOptions elastic{.after_loss = rounds::AfterLoss::kRejoin};
  TestAgent& a = agents.add("a", head.place(), elastic);
  ASSERT_TRUE(agents.until_round(0, {&a}));
  EXPECT_EQ(a.starts[0].world_size, 2);
  TestAgent& b = agents.add("b", head.place(), elastic);
  ASSERT_TRUE(agents.until_round(1, {&a, &b}));
  TestAgent& spare = agents.add("c", head.place(), elastic);
  ASSERT_TRUE(agents.until([&] { return !spare.notes.empty(); }));
  EXPECT_TRUE(contains(spare.notes[0], "spare")) << spare.notes[0];
  b.die();
  ASSERT_TRUE(agents.until_round(2, {&a, &spare}));
  EXPECT_EQ(spare.starts[0].group_rank, 1);
  EXPECT_EQ(a.starts[2].restart_count, 0);
  spare.interrupt();
  ASSERT_TRUE(agents.until_round(3, {&a}));
  EXPECT_EQ(spare.finished->kind, Finish::Kind::kStopped);
  EXPECT_EQ(a.starts[3].world_size, 2);
  a.succeed();
  ASSERT_TRUE(agents.until_finished({&a}));
  EXPECT_TRUE(head.ended());
}

TEST(MembershipTest, AResetCostsARoundAndNoWaiting) {
  auto job = job_of(1, 3);
  // Were it waited for, the test would last for minutes.
  job.silence_window = job.keep_alive_interval = std::chrono::minutes(10);
  ServedHead head(job);
  ResettingRelay relay(head.port());
  TestAgents agents(job);
  TestAgent& a = agents.add("a", head.place(), {.after_loss = rounds::AfterLoss::kMakeRoom});
  TestAgent& b = agents.add("b", {"127.0.0.1", relay.port(), {}},
                            {.after_loss = rounds::AfterLoss::kMakeRoom});
  ASSERT_TRUE(
      agents.until([&] { return a.round() >= 0 && a.starts.back().group_world_size == 2; }));
  ASSERT_TRUE(agents.until_round(a.round(), {&b}));
  const int round = a.round(), place = b.starts.back().group_rank;
  relay.reset();
  ASSERT_TRUE(agents.until_round(round + 1, {&a, &b}));
  EXPECT_EQ(b.starts.back().group_rank, place);
  EXPECT_EQ(b.starts.back().group_world_size, 2);
  EXPECT_EQ(b.starts.back().restart_count, 0);
  EXPECT_EQ(b.stops.back().urgency, rounds::StopUrgency::kNow);
  EXPECT_TRUE(contains(a.stops.back().cause.text, "is gone: Connection reset by peer"))
      << a.stops.back().cause.text;
  a.succeed();
  b.succeed();
  ASSERT_TRUE(agents.until_finished({&a, &b}));
  EXPECT_EQ(b.finished->kind, Finish::Kind::kSucceeded);
}

// Its own part was a success.
TEST(MembershipTest, WhoIsDoneAndIsCutOffByAResetHearsHowTheJobHasEnded) {
  using rounds::AfterLoss;
  for (const auto& [after_loss, code] :
       {std::pair(AfterLoss::kEnd, 3), {AfterLoss::kEnd, 0}, {AfterLoss::kMakeRoom, 3}}) {
    const auto job = job_of(2, 2, after_loss == AfterLoss::kEnd ? 0 : 1);
    ServedHead head(job);
    ResettingRelay relay(head.port());
    TestAgents agents(job);
    TestAgent& a = agents.add("a", head.place(), {.after_loss = after_loss});
    TestAgent& b = agents.add("b", {"127.0.0.1", relay.port(), {}}, {.after_loss = after_loss});
    ASSERT_TRUE(agents.until_round(0, {&a, &b}));
    b.succeed();
    while (head.ask([](HeadService& h) { return h.state().done; }) == 0) std::this_thread::yield();
    relay.reset();
    code == 0 ? a.succeed() : a.fail(code);
    ASSERT_TRUE(agents.until_finished({&a, &b}));
    EXPECT_EQ(b.finished->kind, code == 0 ? Finish::Kind::kSucceeded : Finish::Kind::kFailed);
    EXPECT_EQ(b.finished->failure.code, code) << b.finished->failure.describe();
    EXPECT_TRUE(head.ended());
  }
}

TEST(MembershipTest, WhoIsDoneIsDoneForTheNextHeadToo) {
  const auto job = job_of(1, 2);
  std::optional<ServedHead> head(std::in_place, job);
  TestAgents agents(job);
  TestAgent& a = agents.add("a", head->place(), {.after_loss = rounds::AfterLoss::kRejoin});
  TestAgent& b = agents.add("b", head->place(), {.after_loss = rounds::AfterLoss::kRejoin});
  ASSERT_TRUE(
      agents.until([&] { return a.round() >= 0 && a.starts.back().group_world_size == 2; }));
  ASSERT_TRUE(agents.until_round(a.round(), {&b}));
  a.succeed();
  ASSERT_TRUE(
      agents.until([&] { return head->ask([](HeadService& h) { return h.state().done; }) == 1; }));
  rounds::HeadState successor = rounds::make_head(job, "job", rounds::read_clock());
  rounds::take_over(successor, a.round(), rounds::read_clock());
  ServedHead next(successor);
  head.reset();
  a.membership().move(next.place(), "n1:29500");
  b.membership().move(next.place(), "n1:29500");
  ASSERT_TRUE(agents.until_finished({&a, &b}));
  for (const TestAgent* agent : {&a, &b}) {
    ASSERT_EQ(agent->finished->kind, Finish::Kind::kFailed);
    EXPECT_TRUE(contains(agent->finished->failure.text, "1 of 2 nodes were done in round"))
        << agent->finished->failure.text;
  }
}

// It stands still: its machine acknowledges, and it says nothing.
TEST(MembershipTest, WhoIsEvictedIsToldWhy) {
  auto job = job_of(1, 2);
  job.keep_alive_interval = std::chrono::milliseconds(20);
  job.silence_window = std::chrono::milliseconds(600);
  ServedHead head(job);
  base::EventLoop still;
  TestAgent a(still, "a", job, {.after_loss = rounds::AfterLoss::kMakeRoom});
  a.begin(head.place());
  ASSERT_TRUE(run_until(still, [&] { return !a.starts.empty(); }));
  while (head.ask([](HeadService& h) { return h.state().members.size(); }) > 0)
    std::this_thread::yield();
  ASSERT_TRUE(run_until(still, [&] { return a.finished.has_value(); }));
  EXPECT_EQ(a.finished->kind, Finish::Kind::kFailed);
  EXPECT_TRUE(contains(a.finished->failure.describe(), "node 0 (a) was given up by the head: "))
      << a.finished->failure.describe();
  EXPECT_TRUE(contains(a.finished->failure.describe(), "nothing was heard of it for 600 ms"))
      << a.finished->failure.describe();
}

TEST(MembershipTest, TheHostsOwnAgentNeedsNoSocketAddressAndNoProof) {
  const auto job = job_of(2, 2);
  HeadServiceOptions options;
  options.proof = Token("a token of this very job", "the test");
  ServedHead head(job, options);
  TestAgents agents(job);
  TestAgent& own = agents.add(
      "a", {"127.0.0.1", head.port(), head.ask([](HeadService& h) { return h.own_agent(); })});
  TestAgent& other = agents.add("b", head.place(), {.proof = options.proof});
  ASSERT_TRUE(agents.until_round(0, {&own, &other}));
  EXPECT_EQ(other.starts[0].master_address, "n0");
  own.succeed();
  other.succeed();
  ASSERT_TRUE(agents.until_finished({&own, &other}));
  EXPECT_TRUE(head.ended());
}

TEST(MembershipTest, AnAgentWaitsForItsHead) {
  const auto job = job_of(1, 1);
  TestAgents agents(job);
  const testing_support::OwnPort port;  // at which nobody listens
  TestAgent& a = agents.add("a", {"127.0.0.1", port.number(), {}},
                            {.join_timeout = std::chrono::milliseconds(100)});
  ASSERT_TRUE(agents.until_finished({&a}));
  ASSERT_EQ(a.finished->kind, Finish::Kind::kError);
  EXPECT_TRUE(contains(a.finished->error->what(), "cannot reach n0:29500"))
      << a.finished->error->what();
  EXPECT_TRUE(contains(a.finished->error->what(), "Connection refused"))
      << a.finished->error->what();
}

TEST(MembershipTest, ANameThatDoesNotResolveIsTold) {
  const auto job = job_of(1, 1);
  TestAgents agents(job);
  TestAgent& a = agents.add("a", {"no-such-host.invalid", 1, {}},
                            {.join_timeout = std::chrono::milliseconds(100)});
  ASSERT_TRUE(agents.until_finished({&a}));
  EXPECT_TRUE(contains(a.finished->error->what(), "no-such-host.invalid"))
      << a.finished->error->what();
}

TEST(MembershipTest, WhatIsNoHeadIsToldAtOnce) {
  const auto job = job_of(1, 1);
  const ServedStore store;  // closes on agents
  TestAgents agents(job);
  TestAgent& a = agents.add("a", {"127.0.0.1", store.port(), {}},
                            {.read_timeout = std::chrono::milliseconds(100)});
  base::UniqueFd silent = base::listen_tcp("127.0.0.1", 0);
  TestAgent& b = agents.add("b", {"127.0.0.1", base::local_port(silent.get()), {}},
                            {.read_timeout = std::chrono::milliseconds(100)});
  ASSERT_TRUE(agents.until_finished({&a, &b}));
  for (const TestAgent* agent : {&a, &b}) {
    ASSERT_EQ(agent->finished->kind, Finish::Kind::kError);
    EXPECT_TRUE(contains(agent->finished->error->what(), "is no dtrun"))
        << agent->finished->error->what();
  }
}

// One that is older refuses, in words that all versions read; one that is newer may only answer.
TEST(MembershipTest, AHeadOfAnotherVersionIsNamedWithBothVersions) {
  const auto job = job_of(1, 1);
  const std::string text =
      "this node's dtrun speaks version 5 of the agents' protocol, the head's speaks 4";
  std::string refusal = bytes("54 00*3 02 4f 00*3") + text;
  testing_support::ScriptedServer older(
      [&](int, int fd) { testing_support::ScriptedServer::write(fd, refusal); });
  testing_support::ScriptedServer newer(
      [&](int, int fd) { testing_support::ScriptedServer::write(fd, bytes("d7 08 00")); });
  TestAgents agents(job);
  TestAgent& a = agents.add("a", {"127.0.0.1", *older.endpoint().port, {}});
  TestAgent& b = agents.add("b", {"127.0.0.1", *newer.endpoint().port, {}});
  ASSERT_TRUE(agents.until_finished({&a, &b}));
  EXPECT_TRUE(contains(a.finished->error->what(), text)) << a.finished->error->what();
  EXPECT_TRUE(contains(b.finished->error->what(),
                       "the head's dtrun speaks version 8 of the agents' protocol, this node's "
                       "speaks 7"))
      << b.finished->error->what();
  for (const TestAgent* agent : {&a, &b})
    EXPECT_TRUE(contains(agent->finished->error->what(), "start all nodes with the same dtrun"))
        << agent->finished->error->what();
}

TEST(MembershipTest, AnotherJobIsRefusedByName) {
  const auto job = job_of(1, 1);
  ServedHead head(job);
  TestAgents agents(job);
  TestAgent& a = agents.add("a", head.place(), {.run_id = "other"});
  ASSERT_TRUE(agents.until_finished({&a}));
  EXPECT_TRUE(contains(a.finished->error->what(), "'other'")) << a.finished->error->what();
  EXPECT_TRUE(contains(a.finished->error->what(), "'job'")) << a.finished->error->what();
}

TEST(MembershipTest, ATokenIsDemandedFromAllOrNone) {
  const auto job = job_of(1, 1);
  const Token token("a token of this very job", "the test");
  HeadServiceOptions options;
  options.proof = token;
  ServedHead head(job, options), open_head(job);
  TestAgents agents(job);
  TestAgent& none = agents.add("a", head.place());
  TestAgent& wrong =
      agents.add("b", head.place(), {.proof = Token("the token of another job", "the test")});
  TestAgent& needless = agents.add("c", open_head.place(), {.proof = token});
  ASSERT_TRUE(agents.until_finished({&none, &wrong, &needless}));
  EXPECT_TRUE(
      contains(none.finished->error->what(), "this job demands a token (--rdzv_conf token_file=)"))
      << none.finished->error->what();
  EXPECT_TRUE(contains(wrong.finished->error->what(), "is not the head's"))
      << wrong.finished->error->what();
  EXPECT_TRUE(contains(needless.finished->error->what(), "the head has none"))
      << needless.finished->error->what();
  TestAgent& right = agents.add("d", head.place(), {.proof = token});
  ASSERT_TRUE(agents.until_round(0, {&right}));
}

TEST(MembershipTest, TheEndOfTheHeadEndsTheJobOrIsSurvived) {
  const auto job = job_of(1, 2);
  std::optional<ServedHead> head(std::in_place, job);
  TestAgents agents(job);
  TestAgent& fixed = agents.add("a", head->place());
  TestAgent& elastic = agents.add("b", head->place(), {.after_loss = rounds::AfterLoss::kRejoin});
  ASSERT_TRUE(agents.until_round(0, {&fixed, &elastic}));
  rounds::HeadState successor = rounds::make_head(job, "job", rounds::read_clock());
  successor.round = elastic.round();
  ServedHead next(successor);
  head.reset();
  ASSERT_TRUE(agents.until_finished({&fixed}));
  EXPECT_EQ(fixed.finished->kind, Finish::Kind::kFailed);
  EXPECT_TRUE(contains(fixed.finished->failure.text, "is gone")) << fixed.finished->failure.text;
  elastic.membership().move(next.place(), "n1:29500");
  ASSERT_TRUE(agents.until([&] { return elastic.starts.size() >= 2; }));
  EXPECT_EQ(elastic.stops.back().urgency, rounds::StopUrgency::kNow);
}

}  // namespace
}  // namespace dtrun::rendezvous
