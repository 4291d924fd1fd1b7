// Whole programs that start processes: what is left when one of them is killed, what exit() does,
// and how they run under dtrun.
#include <fcntl.h>
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <random>

#include "dtrun/base/socket.h"
#include "launcher/living_processes.h"
#include "support/command.h"
#include "support/promptness.h"

namespace dtrun::mp {
namespace {

using launcher::all_gone_within;
using launcher::describe_processes_with;
using launcher::processes_with;
using launcher::unique_token;
using testing::HasSubstr;
using testing_support::Command;
using testing_support::CommandOptions;
using testing_support::CommandResult;
using testing_support::run_command;

const std::string kDtrun = DTRUN_BIN "/dtrun";
const std::string kParent = DTRUN_BIN "/mp_parent";
constexpr std::chrono::seconds kLimit(20);

class MpJobTest : public testing::TestWithParam<const char*> {
 protected:
  std::string method() const { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(By, MpJobTest, testing::Values("spawn", "fork", "forkserver"),
                         [](const auto& of) { return std::string(of.param); });

// A loopback address that no other test uses at the same time, and a port that is free there:
// between here and the child that listens, nobody can take it.
struct OwnAddress {
  OwnAddress() {
    static int count = 0;
    const int number = (::getpid() << 2 | (count++ & 3)) & 0x3fffff;
    host = fmt::format("127.{}.{}.{}", 1 + (number >> 16), number >> 8 & 0xff, number & 0xff);
    port = std::to_string(base::local_port(base::listen_tcp(host, 0).get()));
  }
  std::string host;
  std::string port;
};

TEST_P(MpJobTest, AParentKilledWhileAllWaitLeavesNothingNotEvenGrandchildren) {
  const std::string token = unique_token();
  Command parent({kParent, "hold", method(), token});
  ASSERT_TRUE(parent.wait_for_output("held by 0"));
  ASSERT_TRUE(parent.wait_for_output("held by 1"));
  EXPECT_GE(processes_with(token).size(), 5U);
  parent.signal(SIGKILL);
  EXPECT_TRUE(all_gone_within(token, kLimit)) << describe_processes_with(token);
  EXPECT_EQ(parent.finish().signal, SIGKILL);
}

TEST_P(MpJobTest, AParentKilledAnywhereInItsStartLeavesNothing) {
  std::mt19937 random(7);
  for (int run = 0; run < 12; ++run) {
    const std::string token = unique_token();
    Command parent({kParent, "hold", method(), token});
    // A moment between the first instruction and the last child's; nothing depends on which.
    ::poll(nullptr, 0, std::uniform_int_distribution<int>(0, 15)(random));
    parent.signal(SIGKILL);
    EXPECT_TRUE(all_gone_within(token, kLimit))
        << "run " << run << ": " << describe_processes_with(token);
    parent.finish();
  }
}

TEST_P(MpJobTest, ADaemonIsEndedWhenItsParentLeavesMain) {
  // Sooner than the grace after which it would be killed: SIGTERM was enough.
  testing_support::expect_promptness(std::chrono::seconds(4), [&] {
    const std::string token = unique_token();
    const CommandResult result = run_command({kParent, "leave-daemon", method(), token});
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    EXPECT_TRUE(all_gone_within(token, kLimit)) << describe_processes_with(token);
    return result.elapsed;
  });
}

TEST_P(MpJobTest, AChildThatIsNoDaemonIsJoinedAtExit) {
  const std::string fifo = testing::TempDir() + "mp_fifo_" + unique_token();
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  Command parent({kParent, "leave-child", method(), fifo});
  ASSERT_TRUE(parent.wait_for_output("main done"));
  // Waits until the child reads there.
  const int fd = ::open(fifo.c_str(), O_WRONLY | O_CLOEXEC);
  EXPECT_GE(fd, 0);
  ::close(fd);
  const CommandResult result = parent.finish();
  std::filesystem::remove(fifo);
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_EQ(result.out, "main done\nchild done\n");
}

TEST_P(MpJobTest, WhatChildrenPrintAppearsOnceAndAtTheirEnd) {
  const CommandResult result = run_command({kParent, "stdio", method()});
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_THAT(result.out, HasSubstr("(0)"));
  EXPECT_THAT(result.out, HasSubstr("(1)"));
  EXPECT_EQ(result.out.find("parent"), result.out.rfind("parent")) << result.out;
}

TEST_P(MpJobTest, ChildrenJoinAWorldOfTheirOwnByTheEnvironmentOfTheirParent) {
  const OwnAddress own;
  CommandOptions options;
  options.environment = {{"MASTER_ADDR", own.host}, {"MASTER_PORT", own.port}};
  const CommandResult result = run_command({kParent, "reduce", method()}, options);
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_THAT(result.sorted_lines(), testing::ElementsAre("rank 0 of 2: tensor([2., 2.])",
                                                          "rank 1 of 2: tensor([2., 2.])"));
}

TEST_P(MpJobTest, UnderDtrunChildrenMakeAWorldOfTheirOwnAndLeaveTheirParentItsPlace) {
  const OwnAddress inner[2];
  const CommandResult result = run_command(
      {kDtrun, "--nproc_per_node=2", "sh", "-c",
       fmt::format("if [ $RANK = 0 ]; then INNER='{} {}'; else INNER='{} {}'; fi; "
                   "exec {} reduce-twice {} $INNER",
                   inner[0].host, inner[0].port, inner[1].host, inner[1].port, kParent, method())});
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_THAT(
      result.sorted_lines(),
      testing::ElementsAre("outer rank 0: tensor([2.])", "outer rank 1: tensor([2.])",
                           "rank 0 of 2: tensor([2., 2.])", "rank 0 of 2: tensor([2., 2.])",
                           "rank 1 of 2: tensor([2., 2.])", "rank 1 of 2: tensor([2., 2.])"));
}

TEST_P(MpJobTest, DtrunKilledWhileItsRanksHaveChildrenLeavesNothing) {
  const std::string token = unique_token();
  Command job({kDtrun, "--nproc_per_node=2", kParent, "hold", method(), token});
  ASSERT_TRUE(job.wait_for_output("held"));
  job.signal(SIGKILL);
  EXPECT_TRUE(all_gone_within(token, kLimit)) << describe_processes_with(token);
  job.finish();
}

TEST(MpJobThreadTest, AChildOutlivesTheThreadThatStartedItButNotItsParent) {
  for (const char* method : {"spawn", "forkserver"}) {
    const std::string token = unique_token();
    Command parent({kParent, "thread", method, token});
    ASSERT_TRUE(parent.wait_for_output("the thread has ended"));
    ASSERT_TRUE(parent.wait_for_output("held"));
    EXPECT_GE(processes_with(token).size(), 2U);
    parent.signal(SIGKILL);
    EXPECT_TRUE(all_gone_within(token, kLimit)) << describe_processes_with(token);
    parent.finish();
  }
}

TEST(MpForgottenLineTest, WithoutRunIfChildNothingIsStartedAndTheLineIsNamed) {
  for (const char* method : {"spawn", "forkserver"}) {
    const CommandResult result = run_command({kParent, "not-announced", method});
    EXPECT_EQ(result.exit_code, 1) << result.describe();
    EXPECT_THAT(result.err, HasSubstr("main() has not called mp::run_if_child()"));
    EXPECT_THAT(result.err, HasSubstr("try: make mp::run_if_child(); the first line of main()"));
  }
}

TEST(MpForgottenLineTest, AChildThatLeavesMainBeforeRunIfChildIsFoundOutByItsParent) {
  const CommandResult spawned = run_command({kParent, "announced-late", "spawn"});
  EXPECT_EQ(spawned.exit_code, 1) << spawned.describe();
  EXPECT_THAT(spawned.err, HasSubstr("process 'Process-1'"));
  EXPECT_THAT(spawned.err, HasSubstr("ended with exit code 5 without having run its function"));
  const CommandResult served = run_command({kParent, "announced-late", "forkserver"});
  EXPECT_EQ(served.exit_code, 1) << served.describe();
  EXPECT_THAT(served.err, HasSubstr("the forkserver"));
  EXPECT_THAT(served.err, HasSubstr("mp::run_if_child()"));
}

}  // namespace
}  // namespace dtrun::mp
