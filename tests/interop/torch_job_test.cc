// dtrun and PyTorch 2.11 side by side: its unmodified programs under our launcher, our workers
// under its launcher.
#include <gtest/gtest.h>

#include <algorithm>

#include "support/command.h"

namespace dtrun {
namespace {

using testing_support::CommandOptions;
using testing_support::CommandResult;
using testing_support::run_command;

// The folder of a PyTorch that tests/lab/torch-up has made; empty, with the reason, where it cannot
// be had.
struct TorchHome {
  std::string folder;
  std::string reason;
};

TorchHome torch_home() {
  static const TorchHome kHome = [] {
    CommandOptions options;
    options.limit = std::chrono::seconds(280);
    const CommandResult result = run_command({DTRUN_SOURCE_DIR "/tests/lab/torch-up"}, options);
    if (result.exit_code != 0) return TorchHome{"", result.describe()};
    return TorchHome{result.out.substr(0, result.out.find('\n')), ""};
  }();
  return kHome;
}

#define REQUIRE_TORCH(home)            \
  const TorchHome home = torch_home(); \
  if (home.folder.empty()) GTEST_SKIP() << "no PyTorch here: " << home.reason

TEST(TorchJobTest, AnUnmodifiedGlooProgramRunsUnderDtrun) {
  REQUIRE_TORCH(home);
  CommandOptions options;
  options.limit = std::chrono::seconds(120);
  options.environment["PYTHON_EXEC"] = home.folder + "/bin/python";
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
