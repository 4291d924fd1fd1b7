// dtrun and PyTorch side by side: its unmodified programs under our launcher, our workers
// under its launcher.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

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

/// PyTorch leaves folders in the temporary folder.
struct OwnTemporaryFolder {
  OwnTemporaryFolder() : path(testing::TempDir() + "torch.XXXXXX") {
    if (::mkdtemp(path.data()) == nullptr) ADD_FAILURE() << "no folder " << path;
  }
  ~OwnTemporaryFolder() { std::filesystem::remove_all(path); }
  OwnTemporaryFolder(const OwnTemporaryFolder&) = delete;
  OwnTemporaryFolder& operator=(const OwnTemporaryFolder&) = delete;

  std::string path;
};

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

// The page's program here and there, with the same numbers.
TEST(TorchJobTest, TheDistributedTensorProgramPrintsWhatPyTorchPrints) {
  REQUIRE_TORCH(home);
  CommandOptions options;
  options.limit = std::chrono::seconds(120);
  const CommandResult ours = run_command(
      {DTRUN_BIN "/dtrun", "--nproc_per_node=4", DTRUN_BIN "/distributed_tensor", "--numbers"},
      options);
  ASSERT_EQ(ours.exit_code, 0) << ours.describe();
  options.environment["PYTHON_EXEC"] = home.python();
  const OwnTemporaryFolder folder;
  options.environment["TMPDIR"] = folder.path;
  const CommandResult original =
      run_command({DTRUN_BIN "/dtrun", "--nproc_per_node=4",
                   DTRUN_SOURCE_DIR "/tests/interop/distributed_tensor.py"},
                  options);
  ASSERT_EQ(original.exit_code, 0) << original.describe();
  for (const char* line : {"Distributed Matmul Result: DTensor(local_tensor=tensor([[",
                           "Distributed Matmul Result, whole: tensor([["})
    EXPECT_NE(ours.out.find(line), std::string::npos) << line;
  EXPECT_EQ(ours.out, original.out);
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
  const OwnTemporaryFolder folder;
  options.environment["TMPDIR"] = folder.path;
  // torchrun's own choice would be 29500, which somebody else on this machine may have.
  const testing_support::OwnPort port;
  const CommandResult result =
      run_command({home.folder + "/bin/torchrun", "--master-port=" + port.text(),
                   "--nproc-per-node=4", "--no-python", DTRUN_BIN "/full_tensor_example"},
                  options);
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  const auto lines = result.sorted_lines();
  EXPECT_EQ(lines.size(), 13u) << result.describe();
  EXPECT_EQ(std::count(lines.begin(), lines.end(), "[Rank 3] Local shard: tensor([3.])"), 1);
}

/// The lines "epoch N  loss X  accuracy Y" and "loss: X".
std::vector<std::string> training_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    if (line.starts_with("epoch") || line.starts_with("loss")) lines.push_back(line);
  }
  return lines;
}

double number_after(const std::string& line, const std::string& word) {
  const std::size_t at = line.find(word);
  return at == std::string::npos ? std::nan("") : std::stod(line.substr(at + word.size()));
}

TEST(TorchJobTest, ANetworkLearnsTheDigitsAsUnderPyTorch) {
  REQUIRE_TORCH(home);
  CommandOptions options;
  options.limit = std::chrono::seconds(120);
  const CommandResult set = run_command({DTRUN_SOURCE_DIR "/tests/lab/digits"}, options);
  if (set.exit_code != 0) GTEST_SKIP() << "the digits cannot be fetched: " << set.describe();
  const std::string file = set.out.substr(0, set.out.find('\n'));
  const CommandResult theirs = run_command(
      {home.python(), DTRUN_SOURCE_DIR "/tests/interop/train_mlp.py", file, "10"}, options);
  ASSERT_EQ(theirs.exit_code, 0) << theirs.describe();
  const std::vector<std::string> expected = training_lines(theirs.out);
  ASSERT_EQ(expected.size(), 11U);
  for (const char* mesh : {"dp=1", "dp=4", "tp=4", "dp=2,tp=2"}) {
    SCOPED_TRACE(mesh);
    const std::string ranks = std::string(mesh) == "dp=1" ? "1" : "4";
    const CommandResult ours =
        run_command({DTRUN_BIN "/dtrun", "--nproc_per_node=" + ranks, DTRUN_BIN "/train_mlp",
                     "--mesh", mesh, "--epochs", "10", "--data", file},
                    options);
    ASSERT_EQ(ours.exit_code, 0) << ours.describe();
    const std::vector<std::string> lines = training_lines(ours.out);
    ASSERT_EQ(lines.size(), expected.size()) << ours.describe();
    for (std::size_t i = 0; i < 10; ++i) {
      EXPECT_NEAR(number_after(lines[i], "loss"), number_after(expected[i], "loss"), 1e-4)
          << lines[i] << " for " << expected[i];
      EXPECT_NEAR(number_after(lines[i], "accuracy"), number_after(expected[i], "accuracy"), 0.006);
    }
    EXPECT_GT(number_after(lines[9], "accuracy"), 0.85);
  }
}

/// The lines "step,loss".
std::vector<double> losses_of(std::istream& lines) {
  std::vector<double> losses;
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty() && std::isdigit(static_cast<unsigned char>(line[0])) != 0)
      losses.push_back(number_after(line, ","));
  }
  return losses;
}

TEST(TorchJobTest, AGptLearnsAsUnderPyTorchFromTheSameWeights) {
  REQUIRE_TORCH(home);
  const OwnTemporaryFolder folder;
  const std::string weights = folder.path + "/first.safetensors", csv = folder.path + "/loss.csv";
  const std::string data = "/usr/share/common-licenses/GPL-3";
  const std::vector<std::string> sizes = {"--data",   data,        "--steps", "200",     "--batch",
                                          "8",        "--context", "32",      "--width", "32",
                                          "--layers", "2",         "--heads", "4"};
  CommandOptions options;
  options.limit = std::chrono::seconds(200);
  std::vector<double> expected, alone;
  for (const char* mesh : {"dp=1", "dp=4", "fsdp=4", "tp=4", "cp=4", "pp=4", "dp=2,fsdp=2",
                           "dp=2,tp=2", "fsdp=2,tp=2", "fsdp=2,pp=2", "cp=2,tp=2", "dp=2,pp=2"}) {
    SCOPED_TRACE(mesh);
    const bool cuts_sequence = std::string(mesh) == "fsdp=2,tp=2";
    std::vector<std::string> line = {DTRUN_BIN "/dtrun",
                                     "--nproc_per_node",
                                     std::string(mesh) == "dp=1" ? "1" : "4",
                                     DTRUN_BIN "/train_gpt",
                                     "--mesh",
                                     mesh,
                                     "--csv",
                                     csv,
                                     "--sample",
                                     "0",
                                     "--every",
                                     "200",
                                     "--sequence",
                                     cuts_sequence ? "on" : "off",
                                     "--first-weights",
                                     weights};
    line.insert(line.end(), sizes.begin(), sizes.end());
    const CommandResult ours = run_command(line, options);
    ASSERT_EQ(ours.exit_code, 0) << ours.describe();
    if (expected.empty()) {
      std::vector<std::string> twin = {
          home.python(), DTRUN_SOURCE_DIR "/tests/interop/train_gpt.py", "--weights", weights};
      twin.insert(twin.end(), sizes.begin(), sizes.end());
      const CommandResult theirs = run_command(twin, options);
      ASSERT_EQ(theirs.exit_code, 0) << theirs.describe();
      std::istringstream lines(theirs.out);
      expected = losses_of(lines);
      ASSERT_EQ(expected.size(), 200U) << theirs.describe();
      EXPECT_LT(expected.back(), 3);
    }
    std::ifstream file(csv);
    const std::vector<double> found = losses_of(file);
    ASSERT_EQ(found.size(), expected.size());
    if (alone.empty()) alone = found;
    for (std::size_t step = 0; step < found.size(); ++step) {
      EXPECT_NEAR(found[step], expected[step], 1e-5) << "step " << step + 1;
      EXPECT_NEAR(found[step], alone[step], 1e-6 * alone[step]) << "step " << step + 1;
    }
  }
}

}  // namespace
}  // namespace dtrun
