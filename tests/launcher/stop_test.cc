// Signals to dtrun, what its ranks get of them, and the exit codes that follow.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>

#include "dtrun/base/deadline.h"
#include "dtrun/base/error.h"
#include "dtrun/base/unique_fd.h"
#include "launcher/launcher_job.h"
#include "launcher/living_processes.h"
#include "support/own_port.h"

namespace dtrun::launcher {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing_support::Command;
using testing_support::CommandResult;

class StopPolicyTest : public testing::Test {
 protected:
  ~StopPolicyTest() override { EXPECT_THAT(job_.left_behind(), IsEmpty()); }

  // Two ranks of the script, both up: they have said so.
  std::unique_ptr<Command> start(std::vector<std::string> options, const std::string& script) {
    auto job = begin(std::move(options), script);
    wait_until_up(*job);
    return job;
  }

  std::unique_ptr<Command> begin(std::vector<std::string> options, const std::string& script) {
    options.insert(options.begin(), {DTRUN_BINARY, "--nproc_per_node=2"});
    options.insert(options.end(), {"sh", "-c", script});
    return std::make_unique<Command>(options, job_.options());
  }

  static void wait_until_up(Command& job) {
    EXPECT_TRUE(job.wait_for_output("up 0") && job.wait_for_output("up 1"));
  }

  LauncherJob job_;
};

// Ranks that end with 75 once they have saved, and with 3 when they must end before.
const char* const kSaver =
    "trap 'echo got $RANK; exit 75' USR1; trap 'exit 3' TERM; echo up $RANK; "
    "while :; do sleep 0.02; done";
const char* const kListener =
    "for s in USR1 USR2 WINCH; do trap \"echo $s $RANK\" $s; done; trap 'exit 0' TERM; "
    "echo up $RANK; while :; do sleep 0.02; done";

TEST_F(StopPolicyTest, UserSignalsAreForwardedAndTheJobGoesOn) {
  const auto job = start({"--on-signal=WINCH=forward,QUIT=ignore"}, kListener);
  job->signal(SIGQUIT);
  for (const int number : {SIGUSR1, SIGUSR2, SIGWINCH}) {
    const std::string name = base::signal_name(number).substr(3);
    job->signal(number);
    EXPECT_TRUE(job->wait_for_output(name + " 0") && job->wait_for_output(name + " 1"));
  }
  job->signal(SIGTERM);
  EXPECT_EQ(job->finish().exit_code, 143);
}

TEST_F(StopPolicyTest, ADrainedJobThatSays75EndsWith75) {
  const auto job = start({"--on-signal=USR1=drain:60s", "--max-restarts=3"}, kSaver);
  job->signal(SIGUSR1);
  const CommandResult result = job->finish();
  EXPECT_EQ(result.exit_code, 75) << result.describe();
  EXPECT_THAT(result.out, AllOf(HasSubstr("got 0"), HasSubstr("got 1")));
  EXPECT_THAT(result.err, AllOf(HasSubstr("have 60 s to end by themselves"),
                                HasSubstr("can go on later"), Not(HasSubstr("Root Cause"))));
}

TEST_F(StopPolicyTest, ADrainedJobThatEndsWellIsASuccess) {
  const auto job = start({"--on-signal=TERM=drain:60s"},
                         "trap 'exit 0' TERM; echo up $RANK; while :; do sleep 0.02; done");
  job->signal(SIGTERM);
  EXPECT_EQ(job->finish().exit_code, 0);
}

TEST_F(StopPolicyTest, RanksThatDoNotEndInTheTimeOfADrainAreStopped) {
  const auto job = start({"--on-signal=USR2=drain:0.2"}, kListener);
  job->signal(SIGUSR2);
  const CommandResult result = job->finish();
  EXPECT_EQ(result.exit_code, 128 + SIGUSR2) << result.describe();
  EXPECT_LT(result.elapsed.count(), 10.0);
}

TEST_F(StopPolicyTest, ADrainIsFollowedByAStopAndThatByAKill) {
  const auto job = start({"--on-signal=USR1=drain:600"},
                         "trap 'echo USR1 $RANK' USR1; trap 'echo INT $RANK' INT; echo up $RANK; "
                         "while :; do sleep 0.02; done");
  job->signal(SIGUSR1);
  EXPECT_TRUE(job->wait_for_output("USR1 0") && job->wait_for_output("USR1 1"));
  job->signal(SIGINT);
  EXPECT_TRUE(job->wait_for_output("INT 0") && job->wait_for_output("INT 1"));
  job->signal(SIGINT);
  const CommandResult result = job->finish();
  EXPECT_EQ(result.exit_code, 130) << result.describe();
  EXPECT_LT(result.elapsed.count(), 15.0);
}

TEST_F(StopPolicyTest, AStopAfterWhichAllSay75IsTemporary) {
  const auto job = start({}, "trap 'exit 75' TERM; echo up $RANK; while :; do sleep 0.02; done");
  job->signal(SIGTERM);
  const CommandResult result = job->finish();
  EXPECT_EQ(result.exit_code, 75) << result.describe();
  EXPECT_THAT(result.err, HasSubstr("stopped by SIGTERM"));
}

// As Slurm does where it signals all processes of a step: the first rank's end is no failure.
TEST_F(StopPolicyTest, ARankThatIsQuickerThanTheAgentIsNotBlamedForASignalToAll) {
  const auto signal_all = [this](const std::string& option, const std::string& on_signal,
                                 std::size_t left) {
    auto job = std::make_unique<Command>(
        std::vector<std::string>{
            "sh", "-c", R"(exec "$@" 2>&1)", "sh", DTRUN_BINARY, "--nproc_per_node=2",
            "--failure-timeout=0", option, "sh", "-c",
            "trap '" + on_signal + "' TERM; echo up $RANK; while :; do sleep 0.02; done"},
        job_.options());
    wait_until_up(*job);
    const LauncherProcesses own = wait_for_guard(job->pid());
    ::kill(own.agent, SIGSTOP);
    const std::vector<pid_t> ranks = children_of(own.guard);
    for (const pid_t pid : {own.agent, own.keeper, own.guard}) ::kill(pid, SIGTERM);
    for (const pid_t pid : ranks) ::kill(pid, SIGTERM);
    const auto limit = base::Deadline::after(std::chrono::seconds(60));
    while (children_of(own.guard).size() > left && !limit.expired()) ::sched_yield();
    ::kill(own.agent, SIGCONT);
    return job;
  };
  const std::string fifo = job_.folder() + "/saved";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const base::UniqueFd saved(::open(fifo.c_str(), O_RDWR | O_CLOEXEC));
  const auto drained = signal_all("--on-signal=TERM=drain:60",
                                  "[ $RANK = 0 ] || read word <" + fifo + "; exit 75", 1);
  EXPECT_TRUE(drained->wait_for_output("have 60 s to end by themselves"));
  EXPECT_EQ(::write(saved.get(), "word\n", 5), 5);
  const CommandResult late = drained->finish();
  ::unlink(fifo.c_str());
  EXPECT_EQ(late.exit_code, 75) << late.describe();
  EXPECT_THAT(late.out, AllOf(HasSubstr("can go on later"), Not(HasSubstr("Root Cause"))));
  const CommandResult stopped = signal_all("--shutdown-timeout=60", "exit 9", 0)->finish();
  EXPECT_EQ(stopped.exit_code, 143) << stopped.describe();
  EXPECT_THAT(stopped.out, Not(HasSubstr("Root Cause")));
}

TEST_F(StopPolicyTest, AStopHasTheGraceOfItsSignalAndAListMayNameOthersThatStop) {
  const std::string stubborn = "trap '' INT TERM HUP; echo up $RANK; while :; do sleep 0.02; done";
  auto job = start({"--on-signal=INT=stop:0.1"}, stubborn);
  job->signal(SIGINT);
  EXPECT_EQ(job->finish().exit_code, 130);
  job = start({"--signals-to-handle=SIGUSR2", "--shutdown-timeout=0.1"}, stubborn);
  job->signal(SIGUSR2);
  const CommandResult result = job->finish();
  EXPECT_EQ(result.exit_code, 128 + SIGUSR2) << result.describe();
  EXPECT_LT(result.elapsed.count(), 15.0);
}

TEST_F(StopPolicyTest, RestartFailureAndStopHaveTheirOwnGraces) {
  // Rank 1 fails when rank 0 has set its trap: opening a fifo waits for the other side.
  const std::string fifo = job_.folder() + "/deaf";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const std::string script = "trap '' TERM; [ $RANK = 1 ] && : <" + fifo + " && exit 4; : >" +
                             fifo + "; while :; do sleep 0.02; done";
  const CommandResult result =
      job_.run({"--nproc_per_node=2", "--max-restarts=1", "--shutdown-timeout=600",
                "--restart-timeout=0.1", "--failure-timeout=0.2", "sh", "-c", script});
  ::unlink(fifo.c_str());
  EXPECT_EQ(result.exit_code, 4) << result.describe();
  EXPECT_GT(result.elapsed.count(), 0.3);
  EXPECT_LT(result.elapsed.count(), 15.0);
  EXPECT_THAT(result.err, HasSubstr("after 1 of 1 restarts"));
}

TEST_F(StopPolicyTest, TheExitCodeFollowsThePolicy) {
  const auto code = [&](const std::string& policy, const std::string& script) {
    return job_.run({"--nproc_per_node=3", "--exit=" + policy, "sh", "-c", script}).exit_code;
  };
  // Rank 1 fails first, and those that are told to end are not counted.
  const std::string one = "[ $RANK = 1 ] && exit 85; exec sleep 100";
  EXPECT_EQ(code("first", one), 85);
  EXPECT_EQ(code("max", one), 85);
  EXPECT_EQ(code("rank:0", one), 85);
  EXPECT_EQ(code("map:85=7,*=1", one), 7);
  EXPECT_EQ(code("map:84=7,*=1", one), 1);
  EXPECT_EQ(code("map:84=7", one), 85);
}

TEST_F(StopPolicyTest, ADrainOfOneNodeEndsTheJobOnTheOtherWithItsCode) {
  const testing_support::OwnPort port;
  std::unique_ptr<Command> nodes[2];
  for (const int rank : {0, 1})
    nodes[rank] =
        begin({"--nnodes=2", "--node_rank=" + std::to_string(rank), "--master_addr=127.0.0.1",
               "--master_port=" + port.text(), "--on-signal=USR1=drain:60"},
              "RANK=$LOCAL_RANK;" + std::string(kSaver));
  for (const auto& node : nodes) wait_until_up(*node);
  nodes[1]->signal(SIGUSR1);
  EXPECT_EQ(nodes[1]->finish().exit_code, 75);
  const CommandResult zero = nodes[0]->finish();
  EXPECT_EQ(zero.exit_code, 75) << zero.describe();
  EXPECT_THAT(zero.err, HasSubstr("drained by SIGUSR1"));
}

}  // namespace
}  // namespace dtrun::launcher
