// The examples print, under the real dtrun, what the documents show that they were ported from.
#include <gtest/gtest.h>

#include <algorithm>

#include "support/command.h"

namespace dtrun {
namespace {

using testing_support::CommandResult;
using testing_support::run_command;

CommandResult run_example(const std::string& name) {
  return run_command({DTRUN_BIN "/dtrun", "--nproc_per_node=4", DTRUN_BIN "/" + name});
}

// The lines of one rank in the order in which it printed them.
std::vector<std::string> lines_of_rank(const CommandResult& result, int rank) {
  const std::string start = "[Rank " + std::to_string(rank) + "]";
  std::vector<std::string> lines;
  std::size_t at = 0;
  while (at < result.out.size()) {
    const std::size_t end = std::min(result.out.find('\n', at), result.out.size());
    if (result.out.compare(at, start.size(), start) == 0)
      lines.push_back(result.out.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

TEST(ExampleTest, FullTensorExamplePrintsTheDocumentsLines) {
  const CommandResult result = run_example("full_tensor_example");
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  const std::vector<std::string> expected = {
      "[Rank 0] After broadcast, full tensor: tensor([0., 1., 2., 3.])",
      "[Rank 0] DTensor full_tensor: tensor([0., 1., 2., 3.])",
      "[Rank 0] Local shard: tensor([0.])",
      "[Rank 0] Original full tensor: tensor([0., 1., 2., 3.])",
      "[Rank 1] After broadcast, full tensor: tensor([0., 1., 2., 3.])",
      "[Rank 1] DTensor full_tensor: tensor([0., 1., 2., 3.])",
      "[Rank 1] Local shard: tensor([1.])",
      "[Rank 2] After broadcast, full tensor: tensor([0., 1., 2., 3.])",
      "[Rank 2] DTensor full_tensor: tensor([0., 1., 2., 3.])",
      "[Rank 2] Local shard: tensor([2.])",
      "[Rank 3] After broadcast, full tensor: tensor([0., 1., 2., 3.])",
      "[Rank 3] DTensor full_tensor: tensor([0., 1., 2., 3.])",
      "[Rank 3] Local shard: tensor([3.])",
  };
  EXPECT_EQ(result.sorted_lines(), expected) << result.describe();
}

TEST(ExampleTest, GatherShardsAndConcatPrintsTheDocumentsLines) {
  const CommandResult result = run_example("gather_shards_and_concat");
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_EQ(lines_of_rank(result, 0),
            (std::vector<std::string>{
                "[Rank 0] Original full tensor: tensor([0., 1., 2., 3.])",
                "[Rank 0] Local shard: tensor([0.])",
                "[Rank 0] Received shard from rank 1, shard: tensor([1.])",
                "[Rank 0] Received shard from rank 2, shard: tensor([2.])",
                "[Rank 0] Received shard from rank 3, shard: tensor([3.])",
                "[Rank 0] Gathered full tensor: tensor([0., 1., 2., 3.])",
            }))
      << result.describe();
  for (int rank = 1; rank < 4; ++rank) {
    const std::string number = std::to_string(rank);
    EXPECT_EQ(lines_of_rank(result, rank),
              (std::vector<std::string>{
                  "[Rank " + number + "] Local shard: tensor([" + number + ".])",
                  "[Rank " + number + "] Sending local shard to rank 0 by dist.send()"}))
        << result.describe();
  }
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 12);
}

TEST(ExampleTest, HelloPrintsRankLocalRankAndWorldSize) {
  const CommandResult result = run_example("hello");
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_EQ(result.sorted_lines(), (std::vector<std::string>{
                                       "hello from rank 0 (local rank 0) of 4",
                                       "hello from rank 1 (local rank 1) of 4",
                                       "hello from rank 2 (local rank 2) of 4",
                                       "hello from rank 3 (local rank 3) of 4",
                                   }));
}

TEST(ExampleTest, NothingIsSaidThatTheProgramHasNotWritten) {
  EXPECT_EQ(run_example("hello").err, "");
}

}  // namespace
}  // namespace dtrun
