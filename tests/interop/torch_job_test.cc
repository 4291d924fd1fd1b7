// dtrun and PyTorch side by side: its unmodified programs under our launcher, our workers
// under its launcher.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>

#include "support/command.h"
#include "support/legacy_torch.h"
#include "support/own_port.h"
#include "support/slurm_lab.h"
#include "support/torch_home.h"

namespace dtrun {
namespace {

using testing_support::CommandOptions;
using testing_support::CommandResult;
using testing_support::run_command;

void expect_gloo_job_runs(const std::string& python, CommandOptions options = {}) {
  options.limit = std::chrono::seconds(120);
  options.environment["PYTHON_EXEC"] = python;
  const CommandResult result =
      run_command({DTRUN_BIN "/dtrun", "--nproc_per_node=4",
                   DTRUN_SOURCE_DIR "/tests/interop/gloo_job.py", "--lr", "0.1"},
                  options);
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  std::vector<std::string> expected;
  for (int rank = 0; rank < 4; ++rank)
    expected.push_back("rank " + std::to_string(rank) +
                       " of 4: [10.0, 10.0, 10.0] ['--lr', '0.1']");
  EXPECT_EQ(result.sorted_lines(), expected) << result.describe();
}

TEST(TorchJobTest, AnUnmodifiedGlooProgramRunsUnderDtrun) {
  REQUIRE_TORCH(home);
  expect_gloo_job_runs(home.python());
}

TEST(TorchJobTest, TheSameProgramRunsWhereItsRankZeroServesTheStore) {
  REQUIRE_TORCH(home);
  CommandOptions options;
  options.environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1";
  expect_gloo_job_runs(home.python(), options);
}

TEST(TorchJobTest, TheSameProgramRunsWithTheOldestPyTorchThatIsServed) {
  REQUIRE_LEGACY_TORCH(torch);
  expect_gloo_job_runs(torch.python);
}

TEST(TorchJobTest, AProgramThatMeetsByTcpMakesGroupsAndUsesTheStoreRunsUnderDtrun) {
  REQUIRE_TORCH(home);
  CommandOptions options;
  options.limit = std::chrono::seconds(120);
  options.environment["PYTHON_EXEC"] = home.python();
  const CommandResult result = run_command(
      {DTRUN_BIN "/dtrun", "--nproc_per_node=3", DTRUN_SOURCE_DIR "/tests/interop/store_job.py"},
      options);
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_EQ(result.sorted_lines(),
            (std::vector<std::string>{"rank 0 of 3: [3.0], 0 left", "rank 1 of 3: [3.0], 0 left",
                                      "rank 2 of 3: [3.0], 0 left"}))
      << result.describe();
}

TEST(TorchJobTest, AGlooProgramThatFailsOnceIsRestarted) {
  REQUIRE_TORCH(home);
  CommandOptions options;
  options.limit = std::chrono::seconds(120);
  options.environment["PYTHON_EXEC"] = home.python();
  const CommandResult result =
      run_command({DTRUN_BIN "/dtrun", "--nproc_per_node=2", "--max-restarts=1",
                   DTRUN_SOURCE_DIR "/tests/interop/restart_job.py"},
                  options);
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_EQ(result.sorted_lines(),
            (std::vector<std::string>{"rank 0 of 2, restart 1 of 1: [3.0, 3.0, 3.0]",
                                      "rank 1 of 2, restart 1 of 1: [3.0, 3.0, 3.0]"}))
      << result.describe();
}

TEST(TorchJobTest, ALinkNamedTorchDistributedLaunchPassesTheLocalRankAsTheModuleDoes) {
  REQUIRE_TORCH(home);
  const std::string link = testing::TempDir() + "torch.distributed.launch";
  std::filesystem::remove(link);
  std::filesystem::create_symlink(DTRUN_BIN "/dtrun", link);
  CommandOptions options;
  options.limit = std::chrono::seconds(120);
  options.environment["PYTHON_EXEC"] = home.python();
  const CommandResult result =
      run_command({link, "--nproc_per_node=2", DTRUN_SOURCE_DIR "/tests/interop/local_rank_job.py",
                   "--lr", "0.5"},
                  options);
  std::filesystem::remove(link);
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_EQ(result.sorted_lines(),
            (std::vector<std::string>{"rank 0: [0, 0] lr 0.5", "rank 1: [1, 1] lr 0.5"}));
}

TEST(TorchJobTest, AGlooProgramRunsOnTwoNodesByTheTutorialsLine) {
  REQUIRE_TORCH(home);
  testing_support::SlurmLab lab(2);
  REQUIRE_SLURM(lab);
  lab.options().limit = std::chrono::seconds(120);
  lab.options().environment["PYTHON_EXEC"] = home.python();
  const CommandResult result =
      lab.run_on_all({DTRUN_SOURCE_DIR "/tests/interop/gloo_job.py"}, /*ranks_per_node=*/1);
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_EQ(result.sorted_lines(), (std::vector<std::string>{"rank 0 of 2: [3.0, 3.0, 3.0] []",
                                                             "rank 1 of 2: [3.0, 3.0, 3.0] []"}));
  // And as two ranks that srun has started.
  const CommandResult adopted = lab.run({"srun", "-N1", "--ntasks-per-node=2", DTRUN_BIN "/dtrun",
                                         "--adopt", DTRUN_SOURCE_DIR "/tests/interop/gloo_job.py"});
  ASSERT_EQ(adopted.exit_code, 0) << adopted.describe();
  EXPECT_EQ(adopted.sorted_lines(), result.sorted_lines());
}

TEST(TorchJobTest, OurWorkersRunUnderTorchrun) {
  REQUIRE_TORCH(home);
  CommandOptions options;
  options.limit = std::chrono::seconds(120);
  // It leaves a folder in the temporary folder.
  std::string folder = testing::TempDir() + "torchrun.XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  options.environment["TMPDIR"] = folder;
  // torchrun's own choice would be 29500, which somebody else on this machine may have.
  const testing_support::OwnPort port;
  const CommandResult result =
      run_command({home.folder + "/bin/torchrun", "--master-port=" + port.text(),
                   "--nproc-per-node=4", "--no-python", DTRUN_BIN "/full_tensor_example"},
                  options);
  std::filesystem::remove_all(folder);
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  const auto lines = result.sorted_lines();
  EXPECT_EQ(lines.size(), 13u) << result.describe();
  EXPECT_EQ(std::count(lines.begin(), lines.end(), "[Rank 3] Local shard: tensor([3.])"), 1);
}

}  // namespace
}  // namespace dtrun
