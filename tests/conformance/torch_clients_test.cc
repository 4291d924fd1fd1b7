// PyTorch's own clients against our server, the present ones and those of 1.13, which speak the
// legacy dialect: torch_cases.py holds the cases. And our server beside PyTorch's own.
#include <gtest/gtest.h>

#include "support/command.h"
#include "support/legacy_torch.h"
#include "support/torch_home.h"

namespace dtrun {
namespace {

using testing_support::CommandOptions;
using testing_support::CommandResult;
using testing_support::run_command;

CommandOptions options_with_limit() {
  CommandOptions options;
  options.limit = std::chrono::seconds(240);
  // PyTorch asks for the name of every peer's address: a resolver that loses a question costs 1 s
  // then, and not 5.
  options.environment["RES_OPTIONS"] = "timeout:1 attempts:1";
  return options;
}

void expect_all_cases(const std::string& python, const std::string& last_line) {
  const CommandResult result =
      run_command({python, DTRUN_SOURCE_DIR "/tests/conformance/torch_cases.py",
                   DTRUN_BIN "/conformance_store_servers"},
                  options_with_limit());
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_NE(result.out.find(last_line), std::string::npos) << result.describe();
}

TEST(TorchClientsTest, PyTorchsPresentClientFindsInOurServerWhatTheirsPromises) {
  REQUIRE_TORCH(home);
  expect_all_cases(home.python(), "33 of 33 cases hold with PyTorch " + home.version);
}

TEST(TorchClientsTest, TheLegacyClientFindsInOurServerWhatTheirsPromised) {
  REQUIRE_LEGACY_TORCH(torch);
  expect_all_cases(torch.python, "22 of 22 cases hold with PyTorch 1.13");
}

TEST(TorchClientsTest, OurServerAnswersRandomConversationsWithTheBytesOfPyTorchs) {
  REQUIRE_TORCH(home);
  const CommandResult result = run_command({DTRUN_BIN "/conformance_store_differential", "--python",
                                            home.python(), "--seeds", "20", "--steps", "500"},
                                           options_with_limit());
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_NE(result.out.find("no difference"), std::string::npos) << result.describe();
}

TEST(TorchClientsTest, AnUnmodifiedProgramOfPyTorch113RunsUnderDtrun) {
  REQUIRE_LEGACY_TORCH(torch);
  CommandOptions options = options_with_limit();
  options.environment["PYTHON_EXEC"] = torch.python;
  const CommandResult result = run_command(
      {DTRUN_BIN "/dtrun", "--nproc_per_node=2", DTRUN_SOURCE_DIR "/tests/interop/gloo_job.py"},
      options);
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_EQ(result.sorted_lines(), (std::vector<std::string>{"rank 0 of 2: [3.0, 3.0, 3.0] []",
                                                             "rank 1 of 2: [3.0, 3.0, 3.0] []"}))
      << result.describe();
}

}  // namespace
}  // namespace dtrun
