// Ranks that die in the middle of a redistribution: the others say who, at once, and never hang.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <string>

#include "dtrun/base/error.h"
#include "dtrun/collectives/default_group.h"
#include "dtrun/dtensor/ops/creation.h"
#include "support/promptness.h"
#include "support/rank_processes.h"

namespace dtrun::dtensor {
namespace {

using base::ErrorCode;
using collectives::ProcessGroup;
using test::RankProcesses;

constexpr std::uint64_t kRounds = 40;

void redistribute_without_end(const ProcessGroup& group) {
  const DeviceMesh mesh(group, {2, 2});
  const Tensor x = ones({1 << 10, 1 << 9}, mesh, {Shard(0), Shard(1)});
  for (;;) x.redistribute({Shard(1), Shard(0)}).redistribute({Replicate(), Replicate()});
}

/// Each of two meshes sends to the other one.
void cross_without_end(const ProcessGroup& group) {
  collectives::set_default_group(&group);
  const DeviceMesh first("cpu", {0, 1}), second("cpu", {2, 3});
  const Tensor x = ones({64, 4}, first, {Shard(0)}), y = ones({64, 4}, second, {Shard(0)});
  for (;;) {
    x.redistribute(second, {Shard(0)});
    y.redistribute(first, {Shard(0)});
  }
}

class RedistributeFailureTest : public testing::TestWithParam<collectives::Transport> {
 protected:
  static void expect_each_is_named(void (*body)(const ProcessGroup&)) {
    for (int victim = 0; victim < 4; ++victim)
      testing_support::expect_promptness(std::chrono::seconds(1),
                                         [&] { return seconds_until_named(victim, body); });
  }

 private:
  static std::chrono::duration<double> seconds_until_named(int victim,
                                                           void (*body)(const ProcessGroup&)) {
    RankProcesses ranks(4, {.transport = GetParam()}, RankProcesses::Guard::job_page, body);
    ranks.await_operation(victim, kRounds);
    const auto death = base::Deadline::Clock::now();
    ranks.signal(victim, SIGKILL);
    EXPECT_EQ(ranks.wait(victim).status, SIGKILL);
    for (int rank = 0; rank < 4; ++rank) {
      if (rank == victim) continue;
      const RankProcesses::Ended ended = ranks.wait(rank);
      EXPECT_TRUE(ended.thrown.has_value());
      if (!ended.thrown) continue;
      EXPECT_TRUE(ended.thrown->code == ErrorCode::kPeerFailed ||
                  ended.thrown->code == ErrorCode::kAborted)
          << ended.thrown->text;
      EXPECT_NE(ended.thrown->text.find("rank " + std::to_string(victim)), std::string::npos)
          << ended.thrown->text;
    }
    return base::Deadline::Clock::now() - death;
  }
};

TEST_P(RedistributeFailureTest, EachRankKilledInItsMiddleIsNamedByTheOthers) {
  expect_each_is_named(redistribute_without_end);
}

TEST_P(RedistributeFailureTest, EachRankKilledInARepeatedMoveToAnotherMeshIsNamed) {
  expect_each_is_named(cross_without_end);
}

INSTANTIATE_TEST_SUITE_P(Transports, RedistributeFailureTest,
                         testing::Values(collectives::Transport::automatic,
                                         collectives::Transport::tcp),
                         [](const testing::TestParamInfo<collectives::Transport>& given) {
                           return std::string(
                               given.param == collectives::Transport::tcp ? "Tcp" : "Automatic");
                         });

}  // namespace
}  // namespace dtrun::dtensor
