// The tutorial's programs by the document's own line, `srun dtrun --nnodes=2 --nproc_per_node=2
// --rdzv_backend c10d --rdzv_endpoint HOST:12345 PROGRAM`, on two real Slurm nodes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "examples/tutorials.h"
#include "support/slurm_lab.h"

namespace dtrun {
namespace {

using test::Tutorial;
using test::tutorials;
using test::what_differs;
using testing_support::CommandResult;
using testing_support::run_command;
using testing_support::SlurmLab;

/// Between nodes time is another.
std::vector<std::string> without_predictions(const CommandResult& result) {
  std::vector<std::string> lines = result.sorted_lines();
  std::erase_if(lines,
                [](const std::string& line) { return line.find(" us") != std::string::npos; });
  return lines;
}

class TutorialSlurmTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { lab_ = std::make_unique<SlurmLab>(2); }
  static void TearDownTestSuite() { lab_.reset(); }
  void SetUp() override { REQUIRE_SLURM(*lab_); }
  static std::unique_ptr<SlurmLab> lab_;
};
std::unique_ptr<SlurmLab> TutorialSlurmTest::lab_;

class TutorialSlurmDocumentTest : public TutorialSlurmTest,
                                  public testing::WithParamInterface<Tutorial> {};

TEST_P(TutorialSlurmDocumentTest, PrintsWhatTheDocumentShowsOnTwoNodes) {
  const Tutorial& tutorial = GetParam();
  const CommandResult result =
      lab_->run_on_all({DTRUN_BIN "/" + tutorial.name}, tutorial.rank_count / 2);
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_EQ(what_differs(result.out, tutorial.expected), "") << result.describe();
}

INSTANTIATE_TEST_SUITE_P(Document, TutorialSlurmDocumentTest, testing::ValuesIn(tutorials()),
                         [](const auto& tutorial) { return tutorial.param.name; });

// The document's output of scatter_nccl: its two nodes had different sizes in the program.
TEST_F(TutorialSlurmTest, ScatterByHandTakesOtherPiecesOnEveryNode) {
  const CommandResult result = lab_->run_on_all(
      {"sh", "-c", "exec " DTRUN_BIN "/scatter_nccl $((GROUP_RANK == 0 ? 3 : 2))"});
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_EQ(what_differs(result.out, test::pieces_of_two_sizes()), "") << result.describe();
}

TEST_F(TutorialSlurmTest, BarrierAndTheDTensorProgramsPrintWhatTheyPrintOnOneNode) {
  const std::vector<std::vector<std::string>> programs = {
      {"barrier"},      {"full_tensor_example"}, {"gather_shards_and_concat"},
      {"dtensor_demo"}, {"sharding_spec"},       {"distributed_tensor", "--numbers"}};
  for (std::vector<std::string> command : programs) {
    command.front() = DTRUN_BIN "/" + command.front();
    const CommandResult two = lab_->run_on_all(command);
    command.insert(command.begin(), {DTRUN_BIN "/dtrun", "--nproc_per_node=4"});
    const CommandResult one = run_command(command);
    ASSERT_EQ(one.exit_code, 0) << one.describe();
    ASSERT_EQ(two.exit_code, 0) << two.describe();
    EXPECT_EQ(without_predictions(two), without_predictions(one)) << two.describe();
    if (command.back().ends_with("dtensor_demo")) {
      EXPECT_THAT(one.out, testing::HasSubstr("Predicted: 3.0 us"));
      EXPECT_THAT(two.out, testing::HasSubstr("Predicted: 50.0 us"));
    }
  }
}

TEST_F(TutorialSlurmTest, TheDemoOfTwoAndOfEightRanksPrintsWhatItPrintsOnOneNode) {
  for (const int ranks : {2, 8}) {
    const CommandResult two = lab_->run_on_all({DTRUN_BIN "/dtensor_demo"}, ranks / 2);
    const CommandResult one =
        run_command({DTRUN_BIN "/dtrun", "--nproc_per_node=" + std::to_string(ranks),
                     DTRUN_BIN "/dtensor_demo"});
    ASSERT_EQ(one.exit_code, 0) << one.describe();
    ASSERT_EQ(two.exit_code, 0) << two.describe();
    EXPECT_EQ(without_predictions(two), without_predictions(one)) << two.describe();
  }
}

}  // namespace
}  // namespace dtrun
