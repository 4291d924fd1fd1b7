// The mpi backend, of ranks that mpirun has started: what it computes, how it fails and whom it
// refuses. The ranks are workers/mpi_rank.cc.
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "dtrun/collectives/available_backends.h"
#include "make_backend.h"
#include "mpi/mpi_api.h"
#include "support/command.h"
#include "support/thrown_error.h"

namespace dtrun::collectives {
namespace {

using base::Error;
using base::ErrorCode;
using testing_support::Command;
using testing_support::CommandResult;
using testing_support::contains;
using testing_support::error_of;
using testing_support::run_command;

const std::string kRank = DTRUN_BIN "/mpi_rank";

class MpiTest : public testing::Test {
 protected:
  void SetUp() override {
    if (run_command({"sh", "-c", "command -v mpirun.openmpi"}).exit_code != 0)
      GTEST_SKIP() << "Open MPI's mpirun is not here (openmpi-bin)";
    folder_ = testing::TempDir() + "dtrun_mpi_XXXXXX";
    ASSERT_NE(::mkdtemp(folder_.data()), nullptr);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::vector<std::string> mpirun(int ranks, std::vector<std::string> program) const {
    std::vector<std::string> all = {
        "mpirun.openmpi",
        "--allow-run-as-root",
        "--oversubscribe",
        "--mca",
        "mpi_yield_when_idle",
        "0",
        "--mca",  // a killed rank's segment stays, by default in /dev/shm
        "btl_vader_backing_directory",
        folder_,
        "--mca",  // two mpiruns that make and remove the one in /tmp at once: "File exists"
        "orte_tmpdir_base",
        folder_,
        "-n",
        std::to_string(ranks)};
    all.insert(all.end(), program.begin(), program.end());
    return all;
  }

  std::string folder_;
};

/// The lines of the output in which that stands.
int count_lines(const CommandResult& result, const std::string& text) {
  const std::vector<std::string> lines = result.sorted_lines();
  return static_cast<int>(std::count_if(
      lines.begin(), lines.end(), [&](const std::string& line) { return contains(line, text); }));
}

TEST_F(MpiTest, EveryOperationIsThatOfTheReference) {
  for (const int size : {1, 2, 3}) {
    const CommandResult result =
        run_command(mpirun(size, {kRank, "conformance", "--gtest_color=no", "--gtest_brief=1"}));
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    EXPECT_EQ(count_lines(result, "[  PASSED  ] 4 tests."), size) << result.describe();
  }
}

TEST_F(MpiTest, APortedProgramRuns) {
  const CommandResult result = run_command(mpirun(3, {DTRUN_BIN "/mpi_tutorial"}));
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_EQ(result.sorted_lines(),
            (std::vector<std::string>{"rank 0 of 3: [6, 6] 0", "rank 1 of 3: [6, 6] 1",
                                      "rank 2 of 3: [6, 6] 2"}));
}

TEST_F(MpiTest, EveryRankIsToldWhyAGroupHasFailed) {
  const CommandResult result = run_command(mpirun(3, {kRank, "failures"}));
  // All have caught their errors: MPI is ended in order.
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  const struct {
    int ranks;
    const char* scene;
    const char* text;
  } expected[] = {
      {3, "disagree: ", "the calls differ in the element counts"},
      {3, "disagree: ", "rank 1 called all_reduce"},
      {3, "reject: ", "outputs has 1 tensors, and the group 3 ranks"},
      {2, "reject: ", "rejected its all_gather #1"},
      {3, "late: ", "of group 'late' for rank 1"},
      {3, "late: ", "no answer came from rank 1 (pid "},
      {2, "leave: ", "has left group 'leave'"},
      {1, "left by all: ", "has left group 'left by all'"},
      {3, "large tag: ", "tag 4294967294 is too large for backend 'mpi'"},
  };
  for (const auto& [ranks, scene, text] : expected) {
    int found = 0;
    for (const std::string& line : result.sorted_lines())
      found += contains(line, scene) && contains(line, text) ? 1 : 0;
    EXPECT_EQ(found, ranks) << scene << text << "\n" << result.describe();
  }
}

TEST_F(MpiTest, AGroupHasATimeoutOfItsOwnCanBeAbortedAndGoesOnWithoutARank) {
  const CommandResult result = run_command(mpirun(3, {kRank, "ends"}));
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  const std::pair<int, const char*> expected[] = {
      {3, "of group 'own timeout' for rank 1"},
      {3, "rank 1 has aborted group 'abort': the loss is nan"},
      {2, ", shrink: rank 1 has aborted group 'shrink': try again"},
      {2, ", shrunk: mpi of 2: 2"}};
  for (const auto& [ranks, text] : expected)
    EXPECT_EQ(count_lines(result, text), ranks) << text << "\n" << result.describe();
}

// mpirun ends the others, often before they can say anything.
TEST_F(MpiTest, AKilledRankEndsTheJob) {
  const CommandResult result = run_command(mpirun(3, {kRank, "kill"}));
  EXPECT_FALSE(result.killed_at_limit);
  EXPECT_NE(result.exit_code, 0) << result.describe();
  EXPECT_EQ(count_lines(result, "is in"), 3) << result.describe();
  EXPECT_TRUE(contains(result.err, "exited on signal 9")) << result.describe();
}

TEST_F(MpiTest, ASubgroupOfAnotherBackendsWorldMayUseIt) {
  const CommandResult result = run_command(mpirun(3, {kRank, "subgroup"}));
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_EQ(count_lines(result, "too few: the first group over backend 'mpi' has 2 ranks"), 2)
      << result.describe();
  EXPECT_EQ(count_lines(result, "pair: mpi: 2"), 2) << result.describe();
}

TEST_F(MpiTest, RanksThatAreNotMpisAreRefusedOnAll) {
  const std::string swapped = "RANK=$((1 - OMPI_COMM_WORLD_RANK)) WORLD_SIZE=2 exec \"$0\" \"$@\"";
  const CommandResult result =
      run_command(mpirun(2, {"sh", "-c", swapped, kRank, "join", "file://" + folder_ + "/store"}));
  EXPECT_EQ(count_lines(result, "refused: rank 0 of group 'world' is rank 1 of 2 in MPI"), 2)
      << result.describe();
  EXPECT_EQ(count_lines(result, "leave RANK and WORLD_SIZE to it"), 2) << result.describe();
}

TEST_F(MpiTest, AProgramMayHaveStartedMpiItself) {
  const std::pair<const char*, const char*> expected[] = {
      {"begun", "was in ProcessGroup(name=world, backend=mpi, rank=0"},
      {"begun single", "refused: backend 'mpi' needs MPI with MPI_THREAD_MULTIPLE"},
      {"over", "refused: backend 'mpi' cannot start MPI again"}};
  for (const auto& [what, text] : expected) {
    const CommandResult result = run_command(mpirun(1, {kRank, what}));
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    EXPECT_EQ(count_lines(result, text), 1) << result.describe();
  }
}

TEST_F(MpiTest, MpisOwnWordsAreTold) {
  const CommandResult result = run_command(mpirun(1, {kRank, "words"}));
  EXPECT_EQ(count_lines(result, "MPI_Nothing failed   why: MPI_ERR_TRUNCATE: message truncated"), 1)
      << result.describe();
}

TEST(MpiRefusalTest, WhoeverWasNotStartedByMpirunIsRefused) {
  if (::getenv("OMPI_COMM_WORLD_RANK") != nullptr) GTEST_SKIP() << "mpirun has started this test";
  EXPECT_FALSE(is_backend_available("mpi"));
  const std::optional<Error> error = mpi_obstacle();
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code(), ErrorCode::kUnavailable);
  EXPECT_TRUE(contains(error->why(), "OMPI_COMM_WORLD_RANK")) << error->what();
  EXPECT_TRUE(contains(error->remedy(), "start the job with mpirun")) << error->what();
}

TEST(MpiRefusalTest, ALibraryThatIsNotOpenMpiIsRefused) {
  const std::pair<const char*, const char*> wrong[] = {{"libno_mpi_at_all.so", "libno_mpi_at_all"},
                                                       {"libc.so.6", "MPI_Init_thread"}};
  for (const auto& [file, text] : wrong) {
    const std::optional<Error> error = mpi::open_library(file).obstacle;
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->code(), ErrorCode::kUnavailable);
    EXPECT_TRUE(contains(error->why(), text)) << error->what();
  }
}

}  // namespace
}  // namespace dtrun::collectives
