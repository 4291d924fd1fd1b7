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
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/index.h"
#include "dtrun/dtensor/ops/rows.h"
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

// --- A position or a class that is wrong in one rank's part.

/// Each rank has two of the rows; of row 3, the second rank's last, the number is wrong.
struct WrongNumber {
  const char* name;
  const char* words;
  Tensor (*call)(const Tensor& scores, const Tensor& numbers);
};
constexpr int kWrong = 9;
const WrongNumber kWrongNumbers[] = {
    {"CrossEntropy", "cross_entropy: row 3 has class 9",
     [](const Tensor& scores, const Tensor& numbers) { return cross_entropy(scores, numbers); }},
    {"NllLoss", "row 3 has class 9",
     [](const Tensor& scores, const Tensor& numbers) { return nll_loss(scores, numbers); }},
    {"Gather", "gather: position 3 of dim 1 is 9, in positions of shape [6, 1]",
     [](const Tensor& scores, const Tensor& numbers) {
       return gather(scores, 1, numbers.unsqueeze(1));
     }},
    {"ScatterReduce", "scatter_reduce: position 3 of dim 1 is 9, in positions of shape [6, 1]",
     [](const Tensor& scores, const Tensor& numbers) {
       return scatter_reduce(scores, 1, numbers.unsqueeze(1), scores, ScatterReduce::amax);
     }},
    {"Embedding", "position 3 of dim 0 is 9, in positions of shape [6]",
     [](const Tensor&, const Tensor& numbers) {
       const Placements whole(numbers.placements().size(), Replicate());
       return embedding(numbers, ones({4, 3}, numbers.device_mesh(), whole));
     }},
    {"OneHot", "one_hot: position 3 of dim 1 is 9",
     [](const Tensor&, const Tensor& numbers) { return one_hot(numbers, 4); }}};

class WrongNumberTest : public testing::TestWithParam<WrongNumber> {};

TEST_P(WrongNumberTest, TheRankThatHasItNamesItsPlaceInTheWholeAndTheOthersNameTheRank) {
  const auto use = [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {group.size()});
    const Tensor numbers =
        distribute_tensor(tensor({0, 1, 2, kWrong, 3, 0}), mesh, {Shard(0)}, {.source_rank = -1});
    GetParam().call(ones({6, 4}, mesh, {Shard(0)}), numbers).sum().item();
  };
  RankProcesses ranks(3, {}, RankProcesses::Guard::job_page, use);
  for (const int rank : {1, 0, 2}) {
    const RankProcesses::Ended ended = ranks.wait(rank);
    ASSERT_TRUE(ended.thrown.has_value()) << rank;
    const auto& [code, text] = *ended.thrown;
    if (rank == 1) {
      EXPECT_EQ(code, ErrorCode::kInvalidArgument) << text;
      EXPECT_NE(text.find(GetParam().words), std::string::npos) << text;
    } else {
      EXPECT_EQ(code, ErrorCode::kPeerFailed) << text;
      EXPECT_NE(text.find("rank 1"), std::string::npos) << text;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, WrongNumberTest, testing::ValuesIn(kWrongNumbers),
                         [](const auto& given) { return std::string(given.param.name); });

}  // namespace
}  // namespace dtrun::dtensor
