// Files of checkpoints between dtrun and the real safetensors and torch.distributed.checkpoint, in
// both directions, every dtype, bit by bit.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>

#include "support/command.h"
#include "support/torch_home.h"

namespace dtrun {
namespace {

using testing_support::CommandOptions;
using testing_support::CommandResult;
using testing_support::run_command;

TEST(CheckpointFilesTest, PyTorchReadsWhatDtrunWritesAndTheOtherWay) {
  REQUIRE_TORCH(home);
  std::string folder = testing::TempDir() + "checkpoint_files.XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const auto python = [&](const std::string& action) {
    CommandOptions options;
    options.limit = std::chrono::seconds(120);
    const CommandResult result = run_command(
        {home.python(), DTRUN_SOURCE_DIR "/tests/interop/checkpoint_files.py", action, folder},
        options);
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    EXPECT_NE(result.out.find("same " + action), std::string::npos) << result.describe();
  };
  const auto ckpt = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), DTRUN_BIN "/dtrun-ckpt");
    const CommandResult result = run_command(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.describe();
  };
  const std::string written = folder + "/tensors.safetensors";
  python("write");
  ckpt({"diff", written, folder + "/torch", "--only", "[!e]*"});
  ckpt({"merge", written, folder + "/merged.safetensors"});
  python("merged");
  ckpt({"split", written, folder + "/split", "--max-bytes", "1000"});
  python("split");
  ckpt({"reshard", written, folder + "/shards", "--mesh", "2,2", "--layout",
        "layer.*=[S(1), S(2)]"});
  python("shards");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace dtrun
