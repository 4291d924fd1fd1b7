// --containment=namespace: nothing of a job outlives it, whoever is killed, and what is different
// for its ranks. As root, and with the rights of one who is not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "launcher/launcher_job.h"
#include "launcher/living_processes.h"

namespace dtrun::launcher {
namespace {

using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing_support::Command;
using testing_support::CommandResult;
using testing_support::run_command;

constexpr const char* kNamespace = "--containment=namespace";

class PidNamespaceTest : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, or a machine that has user namespaces";
  }
};

TEST_F(PidNamespaceTest, AgentKeeperAndGuardKilledAtOnceLeaveNothing) {
  const std::string token = unique_token();
  LauncherJob job;
  Command command(
      {DTRUN_BINARY, kNamespace, "--nproc_per_node=2", "sh", "-c",
       "setsid setpriv --reuid=65534 --clear-groups sleep " + token + " & echo up; wait"},
      job.options());
  ASSERT_TRUE(command.next_line("up") && command.next_line("up"));
  const LauncherProcesses own = wait_for_guard(command.pid());
  // None of them acts until all are dead.
  for (const int signal : {SIGSTOP, SIGKILL})
    for (const pid_t pid : {own.keeper, own.agent, own.guard}) ::kill(pid, signal);
  EXPECT_TRUE(all_gone_within(token, seconds(5))) << describe_processes_with(token);
  EXPECT_EQ(command.finish().signal, SIGKILL);
}

// Its ranks have pids from 2 on, and tools that read /proc see no others; reports are for who looks
// at the machine.
TEST_F(PidNamespaceTest, RanksSeeTheirOwnNumbersAndReportsHaveTheOuterOnes) {
  const std::string token = unique_token();
  Command command({DTRUN_BINARY, kNamespace, "sh", "-c",
                   "set -- /proc/[0-9]*; echo see $# $1 $PPID; exec sleep " + token});
  ASSERT_TRUE(command.wait_for_output("see 2 /proc/1 1"));
  const std::vector<pid_t> ranks = children_of(wait_for_guard(command.pid()).guard);
  ASSERT_EQ(ranks.size(), 1u);
  ::kill(ranks[0], SIGKILL);
  const CommandResult result = command.finish();
  EXPECT_EQ(result.exit_code, 137);
  EXPECT_THAT(result.err, HasSubstr("(pid: " + std::to_string(ranks[0]) + ")"));
}

TEST_F(PidNamespaceTest, RestartsEndWhatRanksHaveDetached) {
  const std::string token = unique_token();
  LauncherJob job;
  const CommandResult result = job.run(
      {kNamespace, "--nproc_per_node=2", "--max-restarts=1", "sh", "-c",
       "[ $TORCHELASTIC_RESTART_COUNT = 1 ] && { pgrep -xc sleep; exit 0; }; (setsid sleep " +
           token + " &); exit $((3 + RANK))"});
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_EQ(result.out, "0\n0\n") << result.describe();
  EXPECT_THAT(processes_with(token), IsEmpty());
  EXPECT_THAT(job.left_behind(), IsEmpty());
}

TEST_F(PidNamespaceTest, AUserWithoutTheRightGetsOneByAUserNamespace) {
  const CommandResult result =
      run_command({"setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", DTRUN_BINARY,
                   "-v", kNamespace, "sh", "-c", "id -u; echo $PPID; exit 7"});
  if (result.err.find("cannot make a user namespace") != std::string::npos)
    GTEST_SKIP() << result.err;
  EXPECT_EQ(result.exit_code, 7) << result.describe();
  EXPECT_EQ(result.out, "0\n1\n");
  EXPECT_THAT(result.err, HasSubstr("containment: pid namespace in a user namespace ("));
}

TEST_F(PidNamespaceTest, WhereItCannotBeHadItIsAnErrorThatSaysWhat) {
  LauncherJob job;
  // The user has no number here: the kernel makes no namespace for it.
  const CommandResult no_user =
      run_command({"unshare", "-U", DTRUN_BINARY, kNamespace, "true"}, job.options());
  EXPECT_EQ(no_user.exit_code, 64) << no_user.describe();
  EXPECT_THAT(no_user.err,
              AllOf(HasSubstr("dtrun: error: no pid namespace for the job\n  why: cannot make a "
                              "user namespace ("),
                    HasSubstr("user.max_user_namespaces")));
#ifndef __SANITIZE_THREAD__  // whose thread keeps dtrun from making a user namespace at all
  // In a /proc part of which is hidden, as containers have it, no other may be mounted.
  const CommandResult masked = run_command(
      {"unshare", "-m", "sh", "-c",
       "mount -t tmpfs none /proc/scsi 2>/dev/null || mount -t tmpfs none /proc/sys; exec setpriv "
       "--bounding-set=-sys_admin --inh-caps=-sys_admin " DTRUN_BINARY " --containment=namespace "
       "true"},
      job.options());
  EXPECT_EQ(masked.exit_code, 64) << masked.describe();
  EXPECT_THAT(masked.err, HasSubstr("cannot mount a /proc of its own ("));
#endif
  EXPECT_THAT(job.left_behind(), IsEmpty());
}

}  // namespace
}  // namespace dtrun::launcher
