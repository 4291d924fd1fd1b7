// TwoHostsTest: two hosts of the lab, each with its own network, hostname, pids and /dev/shm, for
// one job over both: a dtrun on each.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "support/command.h"

namespace dtrun {

class TwoHostsTest : public testing::Test {
 protected:
  using Command = testing_support::Command;
  using CommandResult = testing_support::CommandResult;

  TwoHostsTest() { options_.limit = std::chrono::seconds(300); }

  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, to make hosts in network namespaces";
    std::string name = testing::TempDir() + "dtrun_hosts_XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    options_.environment["LAB_DIR"] = folder_ + "/lab";
    in_lab({"hosts-up", "2"});
    if (HasFailure()) FAIL() << "there are no hosts";
  }

  void TearDown() override {
    if (folder_.empty()) return;
    in_lab({"hosts-down"});
    std::filesystem::remove_all(folder_);
  }

  static std::string lab(const std::string& script) {
    return DTRUN_SOURCE_DIR "/tests/lab/slurm/" + script;
  }
  /// Runs a script of the lab, which must succeed. @return what it printed
  std::string in_lab(std::vector<std::string> line) const {
    line.front() = lab(line.front());
    const CommandResult result = testing_support::run_command(line, options_);
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    return result.out;
  }

  /// dtrun on host `node` (1 or 2), two ranks of the program. Options may stand before it.
  std::unique_ptr<Command> start(int node, const std::vector<std::string>& program,
                                 int ranks = 2) const {
    std::vector<std::string> command = {lab("hosts-exec"),
                                        std::to_string(node),
                                        DTRUN_BIN "/dtrun",
                                        "--nnodes=2",
                                        "--node_rank=" + std::to_string(node - 1),
                                        "--master_addr=10.88.0.1",
                                        "--master_port=29500",
                                        "--nproc_per_node=" + std::to_string(ranks)};
    command.insert(command.end(), program.begin(), program.end());
    return std::make_unique<Command>(command, options_);
  }

  /// That the second host's interface has received so far.
  std::int64_t bytes_received(const std::string& interface) const {
    return std::stoll(
        in_lab({"hosts-exec", "2", "cat", "/sys/class/net/" + interface + "/statistics/rx_bytes"}));
  }

  std::string folder_;
  testing_support::CommandOptions options_;
};

}  // namespace dtrun
