// Ranks that die in the middle of a redistribution: the others say who, at once, and never hang.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "dtrun/base/error.h"
#include "dtrun/collectives/default_group.h"
#include "dtrun/dtensor/autograd/pending_tensor.h"
#include "dtrun/dtensor/ops/creation.h"
#include "support/promptness.h"
#include "support/rank_processes.h"

namespace dtrun::dtensor {
namespace {

using base::ErrorCode;
using collectives::ProcessGroup;
using test::RankProcesses;

/// Plans and channels are made, and moves are repeated ones, before so many.
constexpr std::uint64_t kOperationsBefore = 40;

/// Two rows of ranks; of two ranks, two of one each.
DeviceMesh square_of(const ProcessGroup& group) {
  return DeviceMesh(group, {2, group.size() / 2});
}

void redistribute_without_end(const ProcessGroup& group) {
  const Tensor x = ones({1 << 10, 1 << 9}, square_of(group), {Shard(0), Shard(1)});
  for (;;) x.redistribute({Shard(1), Shard(0)}).redistribute({Replicate(), Replicate()});
}

/// Three are under way at a time, of which one takes more than one collective.
void redistribute_async_without_end(const ProcessGroup& group) {
  const DeviceMesh mesh = square_of(group);
  const Tensor x = ones({1 << 10, 1 << 9}, mesh, {Shard(0), Shard(1)});
  const Tensor small =
      ones({6, 5}, mesh, {Replicate(), Replicate()}).redistribute({Shard(0), Partial()});
  for (;;) {
    PendingTensor first = x.redistribute_async({Shard(1), Shard(0)});
    PendingTensor second = small.redistribute_async({Replicate(), Replicate()});
    PendingTensor third = x.redistribute_async({Replicate(), Replicate()});
    third.wait();
    first.wait();
    second.wait();
  }
}

/// The first half of the ranks in a line, and the second half.
struct Halves {
  explicit Halves(const ProcessGroup& group)
      : first("cpu", ranks(0, group.size() / 2)),
        second("cpu", ranks(group.size() / 2, group.size())) {}
  static std::vector<int> ranks(int begin, int end) {
    std::vector<int> line(static_cast<std::size_t>(end - begin));
    std::iota(line.begin(), line.end(), begin);
    return line;
  }
  DeviceMesh first, second;
};

/// Each of two meshes sends to the other one.
void cross_without_end(const ProcessGroup& group) {
  collectives::set_default_group(&group);
  const Halves halves(group);
  const Tensor x = ones({64, 4}, halves.first, {Shard(0)});
  const Tensor y = ones({64, 4}, halves.second, {Shard(0)});
  for (;;) {
    x.redistribute(halves.second, {Shard(0)});
    y.redistribute(halves.first, {Shard(0)});
  }
}

void cross_async_without_end(const ProcessGroup& group) {
  collectives::set_default_group(&group);
  const Halves halves(group);
  const Tensor x = ones({1 << 9, 1 << 9}, halves.first, {Shard(0)});
  const Tensor y = ones({64, 4}, halves.second, {Shard(1)});
  for (;;) {
    PendingTensor there = x.redistribute_async(halves.second, {Shard(1)});
    PendingTensor back = y.redistribute_async(halves.first, {Shard(0)});
    back.wait();
    there.wait();
  }
}

/// From rank 0 to all, in another grid, and from all to the last rank.
void spread_without_end(const ProcessGroup& group) {
  collectives::set_default_group(&group);
  const DeviceMesh first("cpu", {0}), last("cpu", {group.size() - 1});
  const DeviceMesh all = square_of(group);
  const Tensor x = ones({1 << 8, 1 << 9}, first, {Replicate()});
  for (;;)
    x.redistribute(all, {Replicate(), Replicate()})
        .redistribute({Shard(0), Shard(1)})
        .redistribute(last, {Replicate()});
}

struct Moves {
  const char* name;
  void (*without_end)(const ProcessGroup&);
};
constexpr Moves kMoves[] = {{"OnOneMesh", redistribute_without_end},
                            {"AsyncOnOneMesh", redistribute_async_without_end},
                            {"BetweenHalves", cross_without_end},
                            {"AsyncBetweenHalves", cross_async_without_end},
                            {"FromOneRankToAllAndToAnother", spread_without_end}};

using FailureCase = std::tuple<Moves, int, collectives::Transport>;

/// Of each number of ranks and each way of theirs to one another.
class RedistributeFailureTest : public testing::TestWithParam<FailureCase> {
 protected:
  static std::chrono::duration<double> seconds_until_named(int victim) {
    const auto& [moves, size, transport] = GetParam();
    RankProcesses ranks(size, {.transport = transport}, RankProcesses::Guard::job_page,
                        moves.without_end);
    ranks.kill_in_operation(victim, kOperationsBefore);
    const auto death = base::Deadline::Clock::now();
    EXPECT_EQ(ranks.wait(victim).status, SIGKILL);
    for (int rank = 0; rank < size; ++rank) {
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
  for (int victim = 0; victim < std::get<int>(GetParam()); ++victim)
    testing_support::expect_promptness(std::chrono::seconds(1),
                                       [&] { return seconds_until_named(victim); });
}

std::string failure_case_name(const testing::TestParamInfo<FailureCase>& given) {
  const auto& [moves, size, transport] = given.param;
  return std::string(moves.name) + "Of" + std::to_string(size) +
         (transport == collectives::Transport::tcp ? "ByTcp" : "Automatic");
}
INSTANTIATE_TEST_SUITE_P(All, RedistributeFailureTest,
                         testing::Combine(testing::ValuesIn(kMoves), testing::Values(2, 4),
                                          testing::Values(collectives::Transport::automatic,
                                                          collectives::Transport::tcp)),
                         failure_case_name);

}  // namespace
}  // namespace dtrun::dtensor
