// The pure decisions of the launcher: who is to blame, who is missing, which devices count.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "device_count.h"
#include "job_outcome.h"
#include "rank_watch.h"

namespace dtrun::launcher {
namespace {

using rendezvous::RankState;
using testing::HasSubstr;

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
  EXPECT_EQ(exit_code_of(outcome), 0);
  outcome.group_end.lost_output_bytes = 3;
  outcome.group_end.output_error = EPIPE;
  EXPECT_EQ(exit_code_of(outcome), 0);
  outcome.group_end.output_error = ENOSPC;
  EXPECT_EQ(exit_code_of(outcome), 71);
  outcome.ranks = {ended(0, 0, SIGSEGV, 0)};
  EXPECT_EQ(exit_code_of(outcome), 139);
  outcome.missing_rank = RankEnd{};
  outcome.ranks = {ended(0, 0, 0, 0)};
  EXPECT_EQ(exit_code_of(outcome), 1);
  outcome.failed_elsewhere = rendezvous::rounds::JobFailure{2, 1, 85, 0, 7, "h", ""};
  EXPECT_EQ(exit_code_of(outcome), 85);
  outcome.guard_died = true;
  EXPECT_EQ(exit_code_of(outcome), 125);
  outcome.stop_signal = SIGTERM;
  EXPECT_EQ(exit_code_of(outcome), 143);
}

TEST(ExitCodeTest, ASpawnFailureIsNotFoundNotExecutableOrTheSystems) {
  for (const auto& [error_number, code] : std::vector<std::pair<int, int>>{
           {ENOENT, 127}, {EACCES, 126}, {ENOEXEC, 126}, {EAGAIN, 71}}) {
    JobOutcome outcome;
    outcome.spawn_failure = SpawnOutcome{{0, error_number}, "text"};
    EXPECT_EQ(exit_code_of(outcome), code);
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
