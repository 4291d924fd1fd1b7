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
  const auto python = [&](const std::string& actions) {
    CommandOptions options;
    options.limit = std::chrono::seconds(120);
    const CommandResult result = run_command(
        {home.python(), DTRUN_SOURCE_DIR "/tests/interop/checkpoint_files.py", actions, folder},
        options);
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    EXPECT_NE(result.out.find("same " + actions), std::string::npos) << result.describe();
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
  ckpt({"split", written, folder + "/split", "--max-bytes", "1000"});
  ckpt({"reshard", written, folder + "/shards", "--mesh", "2,2", "--layout",
        "layer.*=[S(1), S(2)]"});
  const CommandResult trained = run_command(
      {DTRUN_BIN "/dtrun", "--nproc_per_node=2", DTRUN_BIN "/train_gpt", "--mesh", "fsdp=2",
       "--steps", "2", "--width", "32", "--sample", "0", "--checkpoint", folder});
  EXPECT_EQ(trained.exit_code, 0) << trained.describe();
  std::filesystem::rename(folder + "/step-2", folder + "/trained");
  ckpt({"merge", folder + "/trained", folder + "/trained.safetensors"});
  python("merged,split,shards,trained");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace dtrun
