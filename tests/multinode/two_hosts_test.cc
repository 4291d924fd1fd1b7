// One job over two hosts of the lab, each with its own network, hostname, pids and /dev/shm: one
// dtrun on each.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>

#include "support/command.h"

namespace dtrun {
namespace {

using testing::HasSubstr;
using testing_support::Command;
using testing_support::CommandOptions;
using testing_support::CommandResult;
using testing_support::run_command;

class TwoHostsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, to make hosts in network namespaces";
    std::string name = testing::TempDir() + "dtrun_hosts_XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    options_.environment["LAB_DIR"] = folder_ + "/lab";
    const CommandResult up = run_command({lab("hosts-up"), "2"}, options_);
    ASSERT_EQ(up.exit_code, 0) << up.describe();
  }

  void TearDown() override {
    if (folder_.empty()) return;
    run_command({lab("hosts-down")}, options_);
    std::filesystem::remove_all(folder_);
  }

  static std::string lab(const std::string& script) {
    return DTRUN_SOURCE_DIR "/tests/lab/slurm/" + script;
  }

  // dtrun on host `node` (1 or 2), two ranks of the program.
  std::unique_ptr<Command> start(int node, std::vector<std::string> program) {
    std::vector<std::string> command = {lab("hosts-exec"),
                                        std::to_string(node),
                                        DTRUN_BIN "/dtrun",
                                        "--nnodes=2",
                                        "--node_rank=" + std::to_string(node - 1),
                                        "--master_addr=10.88.0.1",
                                        "--master_port=29500",
                                        "--nproc_per_node=2"};
    command.insert(command.end(), program.begin(), program.end());
    return std::make_unique<Command>(command, options_);
  }

  std::string folder_;
  CommandOptions options_;
};

TEST_F(TwoHostsTest, BothTransportsCarryBytesAndTheSumIsRight) {
  const auto first = start(1, {DTRUN_BIN "/transports"});
  const auto second = start(2, {DTRUN_BIN "/transports"});
  const CommandResult results[] = {first->finish(), second->finish()};
  for (int node = 0; node < 2; ++node) {
    EXPECT_EQ(results[node].exit_code, 0) << results[node].describe();
    for (int rank = 2 * node; rank < 2 * node + 2; ++rank)
      EXPECT_THAT(results[node].out, HasSubstr("rank " + std::to_string(rank) +
                                               " sum right shared memory some tcp some\n"))
          << results[node].describe();
  }
}

TEST_F(TwoHostsTest, EveryLayoutGoesToEveryOtherOverBothTransportsAtOnce) {
  const auto first = start(1, {DTRUN_BIN "/layouts"});
  const auto second = start(2, {DTRUN_BIN "/layouts"});
  const CommandResult results[] = {first->finish(), second->finish()};
  for (int node = 0; node < 2; ++node) {
    EXPECT_EQ(results[node].exit_code, 0) << results[node].describe();
    for (int rank = 2 * node; rank < 2 * node + 2; ++rank)
      EXPECT_THAT(results[node].out,
                  HasSubstr("rank " + std::to_string(rank) + " layouts right 849\n"))
          << results[node].describe();
  }
}

TEST_F(TwoHostsTest, ARankKilledOnOneHostFailsTheJobOnBothAndIsNamedOnBoth) {
  const auto first = start(1, {DTRUN_BIN "/misbehave", "kill-in-collective", "3"});
  const auto second = start(2, {DTRUN_BIN "/misbehave", "kill-in-collective", "3"});
  for (const CommandResult& result : {second->finish(), first->finish()}) {
    EXPECT_EQ(result.exit_code, 137) << result.describe();
    EXPECT_THAT(result.err, testing::AnyOf(HasSubstr("rank 3"), HasSubstr("rank      : 3 (")))
        << result.describe();
    EXPECT_LT(result.elapsed.count(), 20.0) << result.describe();
  }
}

}  // namespace
}  // namespace dtrun
