// The pure decisions of the launcher: who is to blame, who is missing, which devices count.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <array>

#include "cpus/device_count.h"
#include "ranks/rank_watch.h"
#include "ranks/signal_sightings.h"
#include "verdict/core_file.h"
#include "verdict/elf_symbols.h"
#include "verdict/failure_table.h"
#include "verdict/job_outcome.h"
#include "verdict/stack_lines.h"

namespace dtrun::launcher {
namespace {

using rendezvous::RankState;
using testing::HasSubstr;

TEST(SignalSightings, EachStandsForOneOrderThatIsNotMuchLater) {
  using std::chrono::seconds;
  const SignalSightings::Time now{seconds(1000)};
  SignalSightings sightings;
  EXPECT_FALSE(sightings.take(SIGUSR1, now));
  sightings.add(SIGUSR1, now);
  EXPECT_FALSE(sightings.take(SIGUSR2, now));
  EXPECT_TRUE(sightings.take(SIGUSR1, now + seconds(1)));
  EXPECT_FALSE(sightings.take(SIGUSR1, now + seconds(1)));
  sightings.add(SIGUSR1, now);
  EXPECT_TRUE(sightings.has(SIGUSR1, now + seconds(1)));
  EXPECT_FALSE(sightings.has(SIGUSR2, now));
  EXPECT_FALSE(sightings.has(SIGUSR1, now + seconds(10)));
  EXPECT_FALSE(sightings.take(SIGUSR1, now + seconds(10)));
}

RankOutcome ended(int rank, int code, int signal, int order) {
  RankOutcome outcome;
  outcome.end.local_rank = rank;
  outcome.end.code = code;
  outcome.end.signal = signal;
  outcome.end.order = order;
  return outcome;
}

RankOutcome victim(RankOutcome outcome) {
  outcome.end.victim_of = 0;
  return outcome;
}

RankOutcome stopped(RankOutcome outcome) {
  outcome.end.stopped = 1;
  return outcome;
}

RankOutcome reported(RankOutcome outcome, std::int64_t timestamp) {
  outcome.report = rendezvous::FailureReport{"text", "", timestamp, 0};
  return outcome;
}

int root_of(std::vector<RankOutcome> ranks) {
  JobOutcome outcome;
  outcome.ranks = std::move(ranks);
  const RankOutcome* root = root_cause(outcome);
  return root != nullptr ? root->end.local_rank : -1;
}

TEST(RootCauseTest, NobodyFailedMeansNobodyIsToBlame) {
  EXPECT_EQ(root_of({ended(0, 0, 0, 0), ended(1, 0, 0, 1)}), -1);
}

TEST(RootCauseTest, TheFirstSeenIsTheRootAmongEquals) {
  EXPECT_EQ(root_of({ended(0, 1, 0, 1), ended(1, 1, 0, 0)}), 1);
}

TEST(RootCauseTest, ASignalComesBeforeAnExitCode) {
  EXPECT_EQ(root_of({ended(0, 1, 0, 0), ended(1, 0, SIGSEGV, 1)}), 1);
}

TEST(RootCauseTest, AVictimIsNeverTheRootWhileThereIsAnotherFailure) {
  EXPECT_EQ(root_of({victim(ended(0, 0, SIGABRT, 0)), ended(1, 1, 0, 1)}), 1);
  EXPECT_EQ(root_of({ended(0, 0, 0, 0), victim(ended(1, 1, 0, 1))}), 1);
}

TEST(RootCauseTest, WhoeverWasStoppedComesLast) {
  EXPECT_EQ(root_of({stopped(ended(0, 0, SIGTERM, 0)), victim(ended(1, 1, 0, 1))}), 1);
}

TEST(RootCauseTest, TheTimeInTheErrorFileComesBeforeTheOrderSeen) {
  EXPECT_EQ(root_of({reported(ended(0, 1, 0, 0), 200), reported(ended(1, 1, 0, 1), 100)}), 1);
  EXPECT_EQ(root_of({reported(ended(0, 1, 0, 0), 200), ended(1, 1, 0, 1)}), 0);
}

TEST(ExitCodeTest, FollowsTheRootOrTheReasonThatStoppedTheJob) {
  JobOutcome outcome;
  EXPECT_EQ(exit_code_of(outcome, {}), 0);
  outcome.group_end.lost_output_bytes = 3;
  outcome.group_end.output_error = EPIPE;
  EXPECT_EQ(exit_code_of(outcome, {}), 0);
  outcome.group_end.output_error = ENOSPC;
  EXPECT_EQ(exit_code_of(outcome, {}), 71);
  outcome.ranks = {ended(0, 0, SIGSEGV, 0)};
  EXPECT_EQ(exit_code_of(outcome, {}), 139);
  outcome.missing_rank = RankEnd{};
  outcome.ranks = {ended(0, 0, 0, 0)};
  EXPECT_EQ(exit_code_of(outcome, {}), 1);
  outcome.failed_elsewhere = rendezvous::rounds::JobFailure{2, 1, 85, 0, 7, "h", ""};
  EXPECT_EQ(exit_code_of(outcome, {}), 85);
  outcome.guard_died = true;
  EXPECT_EQ(exit_code_of(outcome, {}), 125);
  outcome.stop_signal = SIGTERM;
  EXPECT_EQ(exit_code_of(outcome, {}), 143);
}

TEST(ExitCodeTest, EveryCodeAndEverySignalOfARankIsKept) {
  JobOutcome outcome;
  for (int code = 1; code < 256; ++code) {
    outcome.ranks = {ended(0, code, 0, 0)};
    EXPECT_EQ(exit_code_of(outcome, {}), code);
  }
  for (int number = 1; number <= SIGRTMAX; ++number) {
    outcome.ranks = {ended(0, 0, number, 0)};
    EXPECT_EQ(exit_code_of(outcome, {}), 128 + number);
  }
}

TEST(CoreFileTest, ThePatternOfTheKernelIsFollowed) {
  const CoreFacts facts{.pid = 812, .signal = 11, .is_dumped = true, .ended = 0};
  EXPECT_EQ(core_glob("core", false, facts), "core");
  EXPECT_EQ(core_glob("core", true, facts), "core.812");
  EXPECT_EQ(core_glob("core.%p", true, facts), "core.812");
  EXPECT_EQ(core_glob("/var/cores/%e[%s]%%%t%", false, facts), "/var/cores/*\\[11]%*");
  EXPECT_EQ(describe_core({.pid = 812, .signal = SIGTERM}), "");
}

TEST(StackLinesTest, WhatAddr2LinePrintsIsRead) {
  const auto places = parse_addr2line(
      "0x0000000000001234\ninner(int)\n/home/me/app.h:3 (discriminator "
      "2)\nouter\n/home/me/app.cc:9\n"
      "0x0000000000001300\n??\n??:0\n0x0000000000001400\n_Z1fv\n/home/me/app.cc:?\n",
      4);
  ASSERT_EQ(places.size(), 4U);
  ASSERT_EQ(places[0].size(), 2U);
  EXPECT_EQ(places[0][0].function + " " + places[0][0].line, "inner(int) app.h:3");
  EXPECT_EQ(places[0][1].function + " " + places[0][1].line, "outer app.cc:9");
  EXPECT_TRUE(places[1].empty());
  EXPECT_EQ(places[2][0].function + places[2][0].line, "f()");
  EXPECT_TRUE(places[3].empty());
  EXPECT_EQ(parse_addr2line("not what was asked for", 1).size(), 1U);
}

TEST(StackLinesTest, AFileThatIsNoProgramHasNoFunctions) {
  EXPECT_EQ(functions_at("/etc/passwd", {1, 2}), std::vector<std::string>(2));
  EXPECT_EQ(functions_at("/nowhere", {1}), std::vector<std::string>(1));
  EXPECT_EQ(functions_at("/dev/zero", {1}), std::vector<std::string>(1));
}

TEST(StackLinesTest, OnlyAWholeStackOfACrashIsOne) {
  EXPECT_EQ(rendezvous::parse_crash_stack("#0 0x12 /a b+0x2\n#1 0x13").size(), 2U);
  EXPECT_EQ(rendezvous::parse_crash_stack("#0 0x12 /a b+0x2")[0].file, "/a b");
  for (const char* text :
       {"", "at x", "#1 0x12", "#0 12", "#0 0x12 /a", "#0 0x12 /a+0xg", "#0 0x1\nx"})
    EXPECT_TRUE(rendezvous::parse_crash_stack(text).empty()) << text;
}

TEST(ExitCodeTest, PoliciesSeeTheRanksOfOtherNodesButNotThoseThatWereStopped) {
  JobOutcome outcome;
  outcome.ranks = {ended(0, 3, 0, 0), stopped(ended(1, 0, SIGTERM, 1))};
  outcome.local_ranks = 2;
  outcome.round = 4;
  rendezvous::rounds::WorkerEnd end;
  end.host = end.error_file = end.text = "x";
  for (const auto& [round, rank, code, was_stopped] : std::vector<std::array<int, 4>>{
           {4, 2, 9, 0}, {4, 3, 200, 1}, {3, 4, 201, 0}, {4, 1, 202, 0}}) {
    end.round = round;
    end.rank = rank;
    end.code = code;
    end.stopped = was_stopped;
    outcome.add(end);
  }
  EXPECT_EQ(exit_code_of(outcome, parse_exit_policy("first")), 3);
  EXPECT_EQ(exit_code_of(outcome, parse_exit_policy("max")), 9);
  EXPECT_EQ(exit_code_of(outcome, parse_exit_policy("rank:2")), 9);
  EXPECT_EQ(exit_code_of(outcome, parse_exit_policy("rank:3")), 3);
  outcome.failed_elsewhere = rendezvous::rounds::JobFailure{2, 1, 9, 0, 7, "h", ""};
  EXPECT_EQ(exit_code_of(outcome, parse_exit_policy("first")), 9);
}

TEST(ExitCodeTest, WhatFailedInAnEarlierRoundIsForgottenWhenTheJobEndsWell) {
  JobOutcome outcome;
  outcome.ranks = {ended(0, 3, 0, 0)};
  outcome.missing_rank = RankEnd{};
  outcome.spawn_failure = SpawnOutcome{{0, ENOENT}, "text"};
  outcome.ends_elsewhere.resize(1);
  outcome.forget_failures();
  EXPECT_EQ(exit_code_of(outcome, {}), 0);
  EXPECT_EQ(failure_table(LaunchPlan(), outcome, "h"), "");
}

TEST(FailureTableTest, TellsWhomDtrunHasEndedForWhomBelowTorchrunsLayout) {
  JobOutcome outcome;
  outcome.local_ranks = 4;
  const auto terminated = [](int rank) { return stopped(ended(rank, 0, SIGTERM, rank)); };
  outcome.ranks = {terminated(0), ended(2, 9, 0, 0), terminated(1), terminated(3)};
  const std::string table = failure_table(LaunchPlan(), outcome, "h");
  EXPECT_THAT(table, testing::EndsWith("==\nranks 0-1,3 were ended by dtrun after rank 2 had "
                                       "failed\n"));
  EXPECT_THAT(table, HasSubstr("traceback : Signal 15 (SIGTERM) received by PID 0\n"));
  outcome.ranks.resize(2);
  EXPECT_THAT(failure_table(LaunchPlan(), outcome, "h"),
              testing::EndsWith("rank 0 was ended by dtrun after rank 2 had failed\n"));
  // A rank that exits has a hand in its end.
  outcome.ranks.push_back(stopped(ended(1, 7, 0, 2)));
  EXPECT_THAT(
      failure_table(LaunchPlan(), outcome, "h"),
      testing::EndsWith("rank 0 was ended by dtrun after rank 2 had failed\nrank 1 was told "
                        "to end by dtrun after rank 2 had failed, and exited by itself\n"));
}

// Of ranks that time out: the one that did not come, wherever it is.
TEST(FailureTableTest, ARankOfAnotherNodeThatWasGivenUpIsTheCause) {
  JobOutcome outcome;
  outcome.round = 0;
  outcome.local_ranks = 1;
  RankEnd end = ended(0, 3, 0, 0).end;
  end.victim_of = 1;
  rendezvous::rounds::JobFailure here;
  here.node_rank = 0;
  here.host = "h0";
  const auto failure = failure_of(outcome, end, here);
  EXPECT_EQ(failure.describe(), "rank 1 did not answer: rank 0 on node 0 (h0) gave it up");
  outcome.own_failure = failure;
  outcome.ranks = {ended(0, 3, 0, 0)};
  rendezvous::rounds::WorkerEnd other;
  other.round = 0;
  other.rank = 1;
  other.signal = SIGTERM;
  other.stopped = 1;
  other.host = "h1";
  outcome.add(other);
  outcome.end_job_for(failure);
  EXPECT_EQ(exit_code_of(outcome, {}), 3);
  const std::string table = failure_table(LaunchPlan(), outcome, "h0");
  EXPECT_THAT(table.substr(table.find("Root Cause")),
              AllOf(HasSubstr("host      : h1"), HasSubstr("rank      : 1 "),
                    HasSubstr("traceback : rank 1 did not answer: rank 0 on node 0 (h0) gave")));
}

TEST(FailureTableTest, SaysHowManyMoreThereAreThanItLists) {
  JobOutcome outcome;
  outcome.local_ranks = 70;
  for (int rank = 0; rank < 70; ++rank) outcome.ranks.push_back(ended(rank, 9, 0, rank));
  EXPECT_THAT(failure_table(LaunchPlan(), outcome, "h"),
              AllOf(HasSubstr("rank      : 63 "), testing::Not(HasSubstr("rank      : 64 ")),
                    testing::EndsWith("\n6 more ranks did not end well: of each node 64 are "
                                      "listed\n")));
}

TEST(FailureTableTest, ShowsCallStacksAsTorchrunAndTheirEndsWhereTheyAreLong) {
  const auto raised = [](std::string message, std::string stack) {
    RankOutcome rank = ended(0, 1, 0, 0);
    rank.report = rendezvous::FailureReport{std::move(message), std::move(stack), 10, 0};
    JobOutcome outcome;
    outcome.ranks = {rank};
    return failure_table(LaunchPlan(), outcome, "h");
  };
  EXPECT_THAT(raised("E: x", "Traceback:\n  in f\nE: x\n"),
              HasSubstr("  traceback : Traceback:\n    in f\n  E: x\n  \n==="));
  EXPECT_THAT(raised("E: x", ""), HasSubstr("  traceback : E: x\n==="));
  EXPECT_THAT(raised("E: x", "in f"), HasSubstr("  traceback : in f\n  E: x\n==="));
  std::string deep;
  for (int i = 0; i < 1000; ++i) deep += "  in f" + std::to_string(i) + "\n";
  const std::string table = raised("E: x", deep + "E: x");
  EXPECT_THAT(table,
              AllOf(HasSubstr("  traceback : ...\n    in f"), HasSubstr("in f999\n  E: x\n")));
  EXPECT_LT(table.size(), 2 * kMostReasonBytes);
}

TEST(FailureTableTest, OfAnAdoptedRankItShowsTheEnginesLocalRank) {
  JobOutcome outcome;
  outcome.local_ranks = 1;
  outcome.base_rank = 7;
  outcome.first_local_rank = 3;
  outcome.ranks = {ended(0, 5, 0, 0)};
  EXPECT_THAT(failure_table(LaunchPlan(), outcome, "h"),
              HasSubstr("rank      : 7 (local_rank: 3)\n"));
}

TEST(ExitCodeTest, ASpawnFailureIsNotFoundNotExecutableOrTheSystems) {
  for (const auto& [error_number, code] : std::vector<std::pair<int, int>>{
           {ENOENT, 127}, {EACCES, 126}, {ENOEXEC, 126}, {EAGAIN, 71}}) {
    JobOutcome outcome;
    outcome.spawn_failure = SpawnOutcome{{0, error_number}, "text"};
    EXPECT_EQ(exit_code_of(outcome, {}), code);
  }
}

RankView view(int rank, RankState state, bool alive = true) {
  return {rank, 100 + rank, alive, state, "", 0};
}

std::string cause(std::vector<RankView> ranks) {
  return missing_rank_cause(ranks, ranks.back());
}

TEST(MissingRankTest, AnExitMattersOnlyWhileSomebodyWaits) {
  EXPECT_EQ(cause({view(0, RankState::kSpawned), view(1, RankState::kSpawned, false)}), "");
  EXPECT_EQ(cause({view(0, RankState::kRunning), view(1, RankState::kRunning, false)}), "");
  EXPECT_EQ(cause({view(0, RankState::kInCollective), view(1, RankState::kLeft, false)}), "");
  EXPECT_EQ(cause({view(0, RankState::kInit, false), view(1, RankState::kSpawned, false)}), "");
}

TEST(MissingRankTest, BothSidesAreNamedAndManyAreCounted) {
  std::vector<RankView> ranks;
  for (int i = 0; i < 9; ++i) ranks.push_back(view(i, RankState::kInit));
  ranks.push_back(view(9, RankState::kSpawned, false));
  EXPECT_THAT(cause(ranks), HasSubstr("rank 9 (pid 109)"));
  EXPECT_THAT(cause(ranks), HasSubstr("ranks 0, 1, 2, 3, 4, 5 and 3 more"));
}

TEST(MissingRankTest, TheExitCodeIsSaidAndAVictimsWordCounts) {
  RankView exited = view(2, RankState::kSpawned, false);
  exited.code = 3;
  EXPECT_THAT(cause({view(0, RankState::kInit), exited}),
              HasSubstr("exited with code 3 before it joined"));
  EXPECT_EQ(missing_rank_cause_by_victim(view(0, RankState::kInit), exited),
            "rank 2 (pid 102) exited with code 3, and rank 0 (pid 100) needed it");
}

TEST(DeviceCountTest, TheVisibleListIsReadAsCudaReadsIt) {
  EXPECT_EQ(count_visible(8, "0,1,2"), 3);
  EXPECT_EQ(count_visible(8, " 3 , 5 "), 2);
  EXPECT_EQ(count_visible(8, "1,9,2"), 1);  // what stands behind a wrong entry does not count
  EXPECT_EQ(count_visible(8, "-1"), 0);
  EXPECT_EQ(count_visible(8, "none"), 0);
  EXPECT_EQ(count_visible(8, "GPU-8f2,MIG-1a"), 2);
  EXPECT_EQ(count_visible(0, "GPU-8f2"), 0);
  EXPECT_EQ(count_visible(8, ""), 0);
  EXPECT_EQ(count_gpus(""), 0);
}

TEST(DeviceCountTest, ThereIsAtLeastOneCpu) {
  EXPECT_GE(count_cpus(), 1);
}

}  // namespace
}  // namespace dtrun::launcher
