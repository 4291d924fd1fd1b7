// The agent of one of two nodes is stopped: its guard ends its ranks, then the other one goes on
// without it; when it is continued, it says so.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "dtrun/base/unique_fd.h"
#include "launcher/elastic_node.h"
#include "launcher/launcher_job.h"
#include "launcher/living_processes.h"
#include "support/own_port.h"

namespace dtrun::launcher {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing_support::Command;
using testing_support::CommandResult;

class StoppedAgentTest : public testing::Test {
 protected:
  // Its ranks have a detached child each.
  std::unique_ptr<Command> start(const std::string& token) {
    return std::make_unique<Command>(
        std::vector<std::string>{"sh", "-c", "exec \"$@\" 2>&1", "sh", DTRUN_BINARY, "--nnodes=1:2",
                                 "--max-restarts=3", "--rdzv_backend=c10d",
                                 "--rdzv_endpoint=127.0.0.1:" + port_.text(),
                                 "--rdzv_conf=last_call_timeout=0.2,keep_alive_interval=0.2,"
                                 "keep_alive_max_attempt=5",
                                 "sh", "-c", "setsid sleep " + token + " & exec " + kWorker},
        job_.options());
  }

  LauncherJob job_;
  testing_support::OwnPort port_;
};

TEST_F(StoppedAgentTest, IsDroppedAfterTheWindowAndItsRanksHaveEndedBeforeTheNextRound) {
  const std::string of_host = unique_token(), of_member = unique_token();
  const auto host = start(of_host);
  ASSERT_TRUE(host->wait_for_output("hosts the rendezvous"));
  const auto member = start(of_member);
  const Place stopped = next_place_among(*member, 2);
  ASSERT_EQ(next_place_among(*host, 2).nodes, 2);
  member->signal(SIGSTOP);
  const Place alone = next_place_among(*host, 1);
  ASSERT_EQ(alone.nodes, 1);
  EXPECT_EQ(::kill(stopped.pid, 0), -1);
  EXPECT_EQ(errno, ESRCH);
  // Agent, keeper and guard.
  EXPECT_THAT(processes_with(of_member), SizeIs(3)) << describe_processes_with(of_member);
  member->signal(SIGCONT);
  const CommandResult dropped = member->finish();
  EXPECT_NE(dropped.exit_code, 0) << dropped.describe();
  EXPECT_THAT(dropped.out, HasSubstr("was given up by the head")) << dropped.describe();
  EXPECT_THAT(processes_with(of_member), IsEmpty()) << describe_processes_with(of_member);
  finish_round(alone);
  const CommandResult result = host->finish();
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_THAT(result.out, HasSubstr("is gone: nothing was heard of it for 1 s"));
  EXPECT_THAT(processes_with(of_host), IsEmpty()) << describe_processes_with(of_host);
  EXPECT_THAT(job_.left_behind(), IsEmpty());
}

// Nobody can give it up meanwhile: the head is stopped, too.
TEST_F(StoppedAgentTest, ThatGoesOnBeforeItIsGivenUpTellsOfItsRanksAndTheJobIsRestarted) {
  const std::string of_host = unique_token(), of_member = unique_token();
  const auto host = start(of_host);
  ASSERT_TRUE(host->wait_for_output("hosts the rendezvous"));
  const auto member = start(of_member);
  const Place there = next_place_among(*member, 2);
  ASSERT_EQ(next_place_among(*host, 2).nodes, 2);
  host->signal(SIGSTOP);
  member->signal(SIGSTOP);
  const base::UniqueFd rank(static_cast<int>(::syscall(SYS_pidfd_open, there.pid, 0)));
  pollfd end{rank.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&end, 1, 60'000), 1) << "its guard did not end it";
  member->signal(SIGCONT);
  host->signal(SIGCONT);
  const Place again = next_place_among(*host, 2);
  EXPECT_EQ(again.restart, 1);
  EXPECT_EQ(next_place_among(*member, 2).restart, 1);
  finish_round(again);
  for (const auto& node : {host.get(), member.get()}) {
    const CommandResult result = node->finish();
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    EXPECT_THAT(result.out,
                HasSubstr("has ended its ranks, because other nodes may take their place"));
  }
}

// The head is stopped: nobody can go on without it, and nobody's ranks are ended.
TEST_F(StoppedAgentTest, ThatIsTheHeadCostsNobodyItsRanks) {
  const std::string of_host = unique_token(), of_member = unique_token();
  const auto host = start(of_host);
  ASSERT_TRUE(host->wait_for_output("hosts the rendezvous"));
  const auto member = start(of_member);
  const Place here = next_place_among(*host, 2), there = next_place_among(*member, 2);
  ASSERT_EQ(here.nodes, 2);
  ASSERT_EQ(there.nodes, 2);
  host->signal(SIGSTOP);
  ASSERT_TRUE(member->wait_for_output("nothing was heard of node 0"));  // for two windows
  EXPECT_EQ(::kill(here.pid, 0), 0);
  EXPECT_EQ(::kill(there.pid, 0), 0);
  host->signal(SIGCONT);
  ASSERT_TRUE(member->wait_for_output("is heard again"));
  finish_round(here);
  for (const auto& node : {host.get(), member.get()}) {
    const CommandResult result = node->finish();
    EXPECT_EQ(result.exit_code, 0) << result.describe();
  }
}

}  // namespace
}  // namespace dtrun::launcher
