// The tutorial's programs, under the real dtrun or by themselves, print what the document shows.
// Ranks print in any order, so an output is compared as a set of blocks: what one print() wrote.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>

#include "dtrun/base/unique_fd.h"
#include "examples/printed_blocks.h"
#include "examples/tutorials.h"
#include "support/command.h"

namespace dtrun {
namespace {

using test::Blocks;
using test::blocks_of_ranks;
using test::Tutorial;
using test::tutorials;
using test::what_differs;
using testing::HasSubstr;
using testing_support::CommandOptions;
using testing_support::CommandResult;
using testing_support::run_command;

class TutorialTest : public testing::TestWithParam<Tutorial> {};

TEST_P(TutorialTest, PrintsWhatTheDocumentShowsUnderDtrun) {
  const Tutorial& tutorial = GetParam();
  std::vector<std::string> line = {DTRUN_BIN "/dtrun",
                                   "--nproc_per_node=" + std::to_string(tutorial.rank_count),
                                   DTRUN_BIN "/" + tutorial.name};
  const CommandResult result = run_command(line);
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_EQ(what_differs(result.out, tutorial.expected), "") << result.describe();
}

INSTANTIATE_TEST_SUITE_P(Document, TutorialTest, testing::ValuesIn(tutorials()),
                         [](const auto& tutorial) { return tutorial.param.name; });

TEST(TutorialTest, BarrierLetsNobodyPassBeforeTheLastHasCome) {
  const CommandResult result =
      run_command({DTRUN_BIN "/dtrun", "--nproc_per_node=4", DTRUN_BIN "/barrier"});
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  Blocks expected = blocks_of_ranks(4, "rank {}: no-barrier\n\n");
  for (const std::string& block : blocks_of_ranks(4, "rank {}: barrier\n\n"))
    expected.push_back(block);
  for (const char* second : {"1", "2", "3", "4"})
    expected.push_back("rank 0 - seconds: " + std::string(second) + "\n\n");
  EXPECT_EQ(what_differs(result.out, expected), "") << result.describe();
  const std::size_t last_came = result.out.find("rank 0: no-barrier");
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_GT(result.out.find("rank " + std::to_string(rank) + ": barrier"), last_came)
        << result.describe();
}

TEST(TutorialTest, ABroadcastMatrixOfManyElementsIsPrintedInShort) {
  const CommandResult result =
      run_command({DTRUN_BIN "/dtrun", "--nproc_per_node=4", DTRUN_BIN "/broadcast", "1000"});
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  const std::string zeros = "[0., 0., 0.,  ..., 0., 0., 0.]";
  EXPECT_THAT(result.out, HasSubstr("before rank 1: tensor([" + zeros + ",\n        " + zeros +
                                    ",\n        " + zeros + ",\n        ...,\n        " + zeros))
      << result.describe();
  // After it, all have the same.
  const std::size_t begin = result.out.find("after rank 0: ") + 14;
  const std::string sent = result.out.substr(begin, result.out.find("\n\n", begin) - begin);
  EXPECT_THAT(sent, HasSubstr("...,"));
  for (int rank = 1; rank < 4; ++rank)
    EXPECT_THAT(result.out, HasSubstr("after rank " + std::to_string(rank) + ": " + sent + "\n\n"));
}

// The document's second output of scatter_nccl: its two nodes ran with different sizes.
TEST(TutorialTest, ScatterByHandTakesAnyPieceSizePerRank) {
  const CommandResult result =
      run_command({DTRUN_BIN "/dtrun", "--nproc_per_node=4", "sh", "-c",
                   "exec " DTRUN_BIN "/scatter_nccl $((RANK < 2 ? 3 : 2))"});
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_EQ(what_differs(result.out, test::pieces_of_two_sizes()), "") << result.describe();
}

TEST(TutorialTest, ARankThatTheP2pProgramsDoNotKnowEndsTheJobWithItsText) {
  const CommandResult result =
      run_command({DTRUN_BIN "/dtrun", "--nproc_per_node=3", DTRUN_BIN "/p2p_communication"});
  EXPECT_EQ(result.exit_code, 1) << result.describe();
  EXPECT_THAT(result.err, HasSubstr("[rank2]: std::runtime_error: wrong rank"));
}

CommandResult run_alone(const std::string& name, CommandOptions options = {}) {
  for (const char* variable : {"MASTER_ADDR", "MASTER_PORT"})
    options.environment.emplace(variable, std::nullopt);
  return run_command({DTRUN_BIN "/" + name}, std::move(options));
}

/// Two programs of the tutorial listen on port 29500, and tests run side by side.
class PortOfTheTutorial {
 public:
  PortOfTheTutorial() : file_(::open(DTRUN_BIN "/process_group_2", O_RDONLY | O_CLOEXEC)) {
    EXPECT_EQ(::flock(file_.get(), LOCK_EX), 0);
  }

 private:
  const base::UniqueFd file_;
};

TEST(TutorialTest, MultiProcess1StartsFourProcesses) {
  const CommandResult result = run_alone("multi_process_1");
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  Blocks expected = blocks_of_ranks(4, "A0 B1 - rank: {}\n");
  expected.push_back("Main Process is done\n");
  EXPECT_EQ(what_differs(result.out, expected), "") << result.describe();
  EXPECT_TRUE(result.out.ends_with("Main Process is done\n"));
}

TEST(TutorialTest, MultiProcess2SpawnsFourProcesses) {
  const CommandResult result = run_alone("multi_process_2");
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_EQ(what_differs(result.out, blocks_of_ranks(4, "A0 B1 - rank: {}\n")), "")
      << result.describe();
}

TEST(TutorialTest, ProcessGroup1NamesEveryMissingVariable) {
  const CommandResult result = run_alone("process_group_1");
  EXPECT_NE(result.exit_code, 0);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("MASTER_ADDR"));
  EXPECT_THAT(result.err, HasSubstr("MASTER_PORT"));
  EXPECT_THAT(result.err, HasSubstr("dtrun"));  // the remedy
}

TEST(TutorialTest, ProcessGroup2MakesAGroupOfOne) {
  const PortOfTheTutorial port;
  const CommandResult result = run_alone("process_group_2");
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_EQ(result.out, "ProcessGroup(name=group-0, backend=cpu, rank=0, ranks=[0])\n");
  EXPECT_EQ(result.err, "");
}

TEST(TutorialTest, ProcessGroup3MakesGroupsInSpawnedProcesses) {
  const PortOfTheTutorial port;
  const CommandResult result = run_alone("process_group_3");
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_EQ(
      what_differs(
          result.out,
          blocks_of_ranks(
              4,
              "ProcessGroup(name=group-0, backend=cpu, rank={}, ranks=[0, 1, 2, 3]) - rank: {}\n")),
      "")
      << result.describe();
  EXPECT_EQ(result.err, "");
}

}  // namespace
}  // namespace dtrun
