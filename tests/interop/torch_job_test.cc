// dtrun and PyTorch 2.11 side by side: its unmodified programs under our launcher, our workers
// under its launcher.
#include <gtest/gtest.h>

#include <algorithm>

#include "support/command.h"
#include "support/torch_home.h"

namespace dtrun {
namespace {

using testing_support::CommandOptions;
using testing_support::CommandResult;
using testing_support::run_command;

TEST(TorchJobTest, AnUnmodifiedGlooProgramRunsUnderDtrun) {
  REQUIRE_TORCH(home);
  CommandOptions options;
  options.limit = std::chrono::seconds(120);
  options.environment["PYTHON_EXEC"] = home.python();
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

TEST(TorchJobTest, OurWorkersRunUnderTorchrun) {
  REQUIRE_TORCH(home);
  CommandOptions options;
  options.limit = std::chrono::seconds(120);
  const CommandResult result = run_command({home.folder + "/bin/torchrun", "--nproc-per-node=4",
                                            "--no-python", DTRUN_BIN "/full_tensor_example"},
                                           options);
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  const auto lines = result.sorted_lines();
  EXPECT_EQ(lines.size(), 13u) << result.describe();
  EXPECT_EQ(std::count(lines.begin(), lines.end(), "[Rank 3] Local shard: tensor([3.])"), 1);
}

}  // namespace
}  // namespace dtrun
