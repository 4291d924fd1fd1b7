// Nodes on which processes of a round survive SIGKILL: here, those of another user, of a dtrun that
// may not end them. (By a cgroup it could.)
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <memory>

#include "launcher/elastic_node.h"
#include "launcher/launcher_job.h"
#include "launcher/living_processes.h"
#include "support/own_port.h"

namespace dtrun::launcher {
namespace {

using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing_support::Command;
using testing_support::CommandResult;

class StuckTest : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root can start processes that it may not end";
  }
  // This process may end them.
  ~StuckTest() override {
    for (const pid_t pid : processes_with(token_)) ::kill(pid, SIGKILL);
    EXPECT_TRUE(all_gone_within(token_, seconds(10))) << describe_processes_with(token_);
  }

  // Of whom rank 1 leaves a process behind and fails.
  std::unique_ptr<Command> start(const std::string& launcher) {
    return std::make_unique<Command>(
        std::vector<std::string>{
            "sh", "-c", "exec " + launcher + " \"$@\" 2>&1", "sh", DTRUN_BINARY, "-v",
            "--containment=guard", "--nnodes=1:2", "--max-restarts=3", "--rdzv_backend=c10d",
            "--shutdown_timeout=0.2", "--rdzv_endpoint=127.0.0.1:" + port_.text(),
            "--rdzv_conf=last_call_timeout=0.2", "sh", "-c",
            "[ $WORLD_SIZE$RANK = 21 ] || exec " + kWorker +
                "; setpriv --reuid=65534 --clear-groups sleep " + token_ +
                " & until grep -q sleep /proc/$!/comm; do sleep 0.01; done; exit 3"},
        job_.options());
  }

  std::string token_ = unique_token();
  LauncherJob job_;
  testing_support::OwnPort port_;
};

TEST_F(StuckTest, TheNodeDropsOutAndTheOthersGoOnWithoutIt) {
  const auto host = start("");
  ASSERT_TRUE(host->wait_for_output("hosts the rendezvous"));
  const auto member = start("setpriv --bounding-set=-kill --inh-caps=-kill");
  const CommandResult result = member->finish();
  EXPECT_EQ(result.exit_code, 1) << result.describe();
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("drops out: 1 of its processes did not die of SIGKILL within 10 s"),
                    Not(HasSubstr("no live workers"))));
  // One alone may have been before the member came.
  Place place = next_place(*host);
  while (place.pid > 0 && ::kill(place.pid, 0) != 0) place = next_place(*host);
  EXPECT_EQ(place.nodes, 1);
  finish_round(place);
  const CommandResult of_host = host->finish();
  EXPECT_EQ(of_host.exit_code, 0) << of_host.describe();
  EXPECT_THAT(of_host.out, HasSubstr("drops out"));
}

}  // namespace
}  // namespace dtrun::launcher
