// The agent of one of two nodes is stopped: the other one goes on without it; when it is continued,
// it ends its ranks, which nobody waits for any more, and says so.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <memory>

#include "launcher/elastic_node.h"
#include "launcher/launcher_job.h"
#include "launcher/living_processes.h"
#include "support/own_port.h"

namespace dtrun::launcher {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
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

TEST_F(StoppedAgentTest, IsDroppedAfterTheWindowAndEndsItsRanksWhenItIsContinued) {
  const std::string of_host = unique_token(), of_member = unique_token();
  const auto host = start(of_host);
  ASSERT_TRUE(host->wait_for_output("hosts the rendezvous"));
  const auto member = start(of_member);
  const Place stopped = next_place_among(*member, 2);
  ASSERT_EQ(next_place_among(*host, 2).nodes, 2);
  member->signal(SIGSTOP);
  // Its own ranks do not notice.
  const Place alone = next_place_among(*host, 1);
  ASSERT_EQ(alone.nodes, 1);
  EXPECT_EQ(::kill(stopped.pid, 0), 0);
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

}  // namespace
}  // namespace dtrun::launcher
