// scripts/gpu-check's bundle, as far as a machine without a GPU goes: it is whole, small enough to
// travel, and says that it has shown nothing.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "support/command.h"

namespace dtrun::testing_support {
namespace {

TEST(GpuCheckTest, TheBundleIsWholeAndSaysWhatItCannotShow) {
  const std::string folder = "gpu-check-test." + std::to_string(::getpid());
  const CommandResult built =
      run_command({DTRUN_SOURCE "/scripts/gpu-check", "--built", DTRUN_BUILD, folder});
  ASSERT_EQ(built.exit_code, 0) << built.describe();
  EXPECT_LT(std::filesystem::file_size(folder + ".tar.gz"), 60U << 20);
  EXPECT_TRUE(std::filesystem::exists(folder + "/goldens/tensor_prints.jsonl"));
  // The programs start without CUDA's libraries and without the loader's help.
  const CommandResult tests = run_command({folder + "/bin/collectives_nccl_gpu_test"});
  EXPECT_EQ(tests.exit_code, 0) << tests.describe();
  // As on a machine without a GPU, also where there is one: gpu-check/run itself is for those.
  CommandOptions hidden;
  hidden.environment["PATH"] = folder + "/no-tools:/usr/bin:/bin";
  if (!std::filesystem::exists("/usr/bin/nvidia-smi")) {
    const CommandResult run = run_command({folder + "/run"}, hidden);
    EXPECT_EQ(run.exit_code, 77) << run.describe();
    EXPECT_NE(run.out.find("no GPU here"), std::string::npos) << run.describe();
  }
  std::filesystem::remove_all(folder);
  std::filesystem::remove(folder + ".tar.gz");
}

}  // namespace
}  // namespace dtrun::testing_support
