// A Slurm job whose node loses power, or its network: what dtrun says and does, and what Slurm
// makes of it. Slow: slurmctld takes 10 to 25 s to see it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/slurm_lab.h"

namespace dtrun {
namespace {

using testing::HasSubstr;
using testing_support::Command;
using testing_support::CommandResult;
using testing_support::run_command;
using testing_support::SlurmLab;

class SlurmFaultsTest : public testing::Test {
 protected:
  void SetUp() override {
    REQUIRE_SLURM(lab_);
    lab_.options().limit = std::chrono::seconds(100);
  }

  void script(const std::string& name, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), DTRUN_SOURCE_DIR "/tests/lab/slurm/" + name);
    const CommandResult result = run_command(arguments, lab_.options());
    ASSERT_EQ(result.exit_code, 0) << result.describe();
  }

  // A job on both nodes, that notices a silent node within 3 s.
  std::unique_ptr<Command> start(std::vector<std::string> options, const std::string& program) {
    std::vector<std::string> words = {"srun", "-N2", "--ntasks-per-node=1", "--no-kill",
                                      DTRUN_BIN "/dtrun"};
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(), {"sh", "-c", program});
    return lab_.start(words);
  }

  SlurmLab lab_{2};
};

const std::string kSilence = "--rdzv_conf=keep_alive_interval=1,last_call_timeout=1";
const std::string kUntilAlone =
    "echo up $RANK of $WORLD_SIZE; test $WORLD_SIZE = 1 && exit 0; exec sleep 90";

TEST_F(SlurmFaultsTest, AFixedJobEndsSoonWhenANodeLosesPower) {
  const auto job = start({"--rdzv_conf=keep_alive_interval=1"}, "echo up $RANK; exec sleep 90");
  ASSERT_TRUE(job->next_line("up") && job->next_line("up"));
  script("slurm-node", {"crash", "2"});
  const CommandResult result = job->finish();
  EXPECT_NE(result.exit_code, 0) << result.describe();
  EXPECT_THAT(result.err, HasSubstr("node 1 (node2) is gone"));
}

TEST_F(SlurmFaultsTest, AnElasticJobGoesOnWhenANodeLosesPower) {
  const auto job = start({"--nnodes=1:2", kSilence}, kUntilAlone);
  ASSERT_TRUE(job->wait_for_output("of 2"));
  script("slurm-node", {"crash", "2"});
  EXPECT_TRUE(job->wait_for_output("up 0 of 1"));
  EXPECT_THAT(job->finish().err, HasSubstr("(node2) is gone"));
}

TEST_F(SlurmFaultsTest, ANodeThatIsCutOffEndsItsRanksAndTheOthersGoOn) {
  const auto job = start({"--nnodes=1:2", kSilence}, kUntilAlone);
  ASSERT_TRUE(job->wait_for_output("of 2"));
  script("hosts-cut", {"--silent", "2"});
  ASSERT_TRUE(job->wait_for_output("up 0 of 1")) << job->finish().describe();
  // Slurm cannot reach that node any more; its dtrun has ended the ranks by itself.
  const CommandResult left = lab_.run_on(2, {DTRUN_BIN "/await_ends", "30", "sleep 90"});
  EXPECT_EQ(left.exit_code, 0) << left.describe();
  script("hosts-heal", {"2"});
  EXPECT_THAT(job->finish().err, HasSubstr("(node2) is gone"));
}

}  // namespace
}  // namespace dtrun
