// Nothing that a job has started outlives it, whoever dies: ranks, guard, agent, at the start or
// later. Ranks are shells with a detached grandchild each, all with a token in their command lines.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <set>
#include <thread>

#include "launcher/launcher_job.h"
#include "launcher/living_processes.h"
#ifndef DTRUN_LONG
#include "output/private_folder.h"
#endif
#include "support/promptness.h"

namespace dtrun::launcher {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::IsEmpty;
using testing_support::Command;
using testing_support::CommandOptions;
using testing_support::CommandResult;
using testing_support::kPatience;

constexpr int kLocalRanks = 3;

std::set<std::string> shared_memory_files() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm"))
    if (const std::string name = entry.path().filename(); name.starts_with("dtrun"))
      names.insert(name);
  return names;
}

// A rank with a child in its own group and one in a session of its own.
std::string script_with(const std::string& token) {
  return "setsid sleep " + token + " & sleep " + token + " & echo up $RANK; wait";
}

// The same with a rank that is blocked as one inside a collective is: on the job page.
std::string collective_script_with(const std::string& token) {
  return "setsid sleep " + token + " & sleep " + token +
         " & echo up $RANK; exec " DTRUN_WORKERS
         "/page_worker wait-in-collective wait-in-collective wait-in-collective " +
         token;
}

std::vector<std::string> job_command(const std::string& script) {
  return {DTRUN_BINARY, "--nproc_per_node=" + std::to_string(kLocalRanks), "sh", "-c", script};
}

bool wait_until_up(Command& command) {
  for (int rank = 0; rank < kLocalRanks; ++rank)
    if (!command.wait_for_output("up " + std::to_string(rank))) return false;
  return true;
}

enum class KilledProcess { kAgent, kGuard, kBoth };
enum class KillMoment { kStart, kIdle, kCollective };

struct Kill {
  KilledProcess victim;
  KillMoment moment;
};

class KillTest : public testing::TestWithParam<Kill> {
 protected:
  // The delay, in turns of a loop, moves the kill through the start.
  void kill_once(int delay) {
    const std::string token = unique_token();
    LauncherJob job;
    const bool collective = GetParam().moment == KillMoment::kCollective;
    const std::string script = collective ? collective_script_with(token) : script_with(token);
    Command command(job_command(script), job.options());
    if (GetParam().moment != KillMoment::kStart) {
      ASSERT_TRUE(wait_until_up(command));
    } else {
      for (int i = 0; i < delay; ++i) (void)children_of(command.pid());
    }
    if (GetParam().victim != KilledProcess::kAgent) {
      const pid_t guard = wait_for_guard(command.pid()).guard;
      if (guard > 0) ::kill(guard, SIGKILL);
    }
    if (GetParam().victim != KilledProcess::kGuard) command.signal(SIGKILL);
    EXPECT_TRUE(all_gone_within(token, kPatience)) << describe_processes_with(token);
    const CommandResult result = command.finish();  // the keeper's end, too: it has the output
    EXPECT_THAT(job.left_behind(), IsEmpty());
    if (GetParam().victim == KilledProcess::kGuard) {
      EXPECT_EQ(result.exit_code, 125) << result.describe();
      EXPECT_THAT(result.err, HasSubstr("the guard process has died (SIGKILL)"));
    } else if (result.exit_code != 125) {  // the agent may see the guard's end before its own
      EXPECT_EQ(result.signal, SIGKILL) << result.describe();
    }
  }

  void kill_times(int times) {
    const std::set<std::string> before = shared_memory_files();
    for (int i = 0; i < times && !HasFailure(); ++i) kill_once(i * 7);
    EXPECT_EQ(shared_memory_files(), before);
  }
};

TEST_P(KillTest, NothingIsLeft) {
  kill_times(DTRUN_KILL_TIMES);
}

std::string name_of(const testing::TestParamInfo<Kill>& info) {
  const char* const victim = info.param.victim == KilledProcess::kAgent   ? "Agent"
                             : info.param.victim == KilledProcess::kGuard ? "Guard"
                                                                          : "Both";
  const char* const moment = info.param.moment == KillMoment::kStart  ? "AtStart"
                             : info.param.moment == KillMoment::kIdle ? "Idle"
                                                                      : "InACollective";
  return std::string(victim) + moment;
}

INSTANTIATE_TEST_SUITE_P(Matrix, KillTest,
                         testing::Values(Kill{KilledProcess::kAgent, KillMoment::kStart},
                                         Kill{KilledProcess::kAgent, KillMoment::kIdle},
                                         Kill{KilledProcess::kAgent, KillMoment::kCollective},
                                         Kill{KilledProcess::kGuard, KillMoment::kStart},
                                         Kill{KilledProcess::kGuard, KillMoment::kIdle},
                                         Kill{KilledProcess::kGuard, KillMoment::kCollective},
                                         Kill{KilledProcess::kBoth, KillMoment::kStart},
                                         Kill{KilledProcess::kBoth, KillMoment::kIdle},
                                         Kill{KilledProcess::kBoth, KillMoment::kCollective}),
                         name_of);

#ifndef DTRUN_LONG
TEST(ContainmentTest, AFailedRanksChildrenGoWithTheJob) {
  const std::string token = unique_token();
  LauncherJob job;
  const CommandResult result = job.run(
      {"--nproc_per_node=2", "sh", "-c",
       "setsid sleep " + token + " & sleep " + token + " & [ $RANK = 1 ] && kill -9 $$; wait"});
  EXPECT_EQ(result.exit_code, 137) << result.describe();
  EXPECT_THAT(processes_with(token), IsEmpty()) << describe_processes_with(token);
  EXPECT_THAT(job.left_behind(), IsEmpty());
}

TEST(ContainmentTest, ChildrenOfRanksThatSucceedGoWithTheJobAndHoldNothingUp) {
  const std::string token = unique_token();
  const CommandResult result = run_dtrun(
      {"--nproc_per_node=2", "sh", "-c",
       "setsid sh -c 'trap \"\" TERM; sleep " + token + "' & sleep " + token + " & echo done"});
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_EQ(result.out, "done\ndone\n");
  EXPECT_LT(result.elapsed, kPatience);
  EXPECT_THAT(processes_with(token), IsEmpty()) << describe_processes_with(token);
}

TEST(ContainmentTest, AStoppedJobTakesDetachedGrandchildrenAlong) {
  const std::string token = unique_token();
  LauncherJob job;
  Command command(job_command(script_with(token)), job.options());
  ASSERT_TRUE(wait_until_up(command));
  command.signal(SIGTERM);
  EXPECT_EQ(command.finish().exit_code, 143);
  EXPECT_THAT(processes_with(token), IsEmpty()) << describe_processes_with(token);
}

TEST(ContainmentTest, OrphansAreReapedWhileTheJobRuns) {
  const CommandResult result =
      run_dtrun({"sh", "-c",
                 "for i in 1 2 3 4 5 6 7 8 9 10; do (setsid true &) ; done; "
                 "left() { wc -w < /proc/$PPID/task/$PPID/children; }; n=0; "
                 "until [ $(left) = 1 ] || [ $n = 500 ]; do sleep 0.02; n=$((n + 1)); done; left"});
  EXPECT_EQ(result.out, "1\n") << result.describe();
}

TEST(ContainmentTest, ChildrenThatTheShellHadBeforeItBecameDtrunAreLeftAlone) {
  const std::string token = unique_token();
  const CommandResult result = testing_support::run_command(
      {"sh", "-c", "sleep " + token + " >/dev/null 2>&1 & exec " DTRUN_BINARY " true"});
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  const std::vector<pid_t> left = processes_with(token);
  ASSERT_EQ(left.size(), 1u);
  ::kill(left[0], SIGKILL);
}

// In a mount namespace of its own.
CommandResult run_with_mounts(const std::string& mounts, const std::string& arguments) {
  return testing_support::run_command(
      {"unshare", "-m", "sh", "-c", mounts + "; exec " DTRUN_BINARY " " + arguments});
}

TEST(ContainmentTest, ACgroupThatCannotBeHadIsAnErrorOnlyWhereItWasAskedFor) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can mount";
  const std::string read_only =
      "for m in $(awk '$3 == \"cgroup2\" {print $2}' /proc/mounts); do "
      "mount -o remount,ro,bind $m; done";
  const CommandResult asked = run_with_mounts(read_only, "--containment=cgroup true");
  EXPECT_EQ(asked.exit_code, 64) << asked.describe();
  EXPECT_THAT(asked.err, HasSubstr("dtrun: error: no cgroup for the job\n  why: "));
  const CommandResult automatic = run_with_mounts(read_only, "-v true");
  EXPECT_EQ(automatic.exit_code, 0) << automatic.describe();
  EXPECT_THAT(automatic.err, HasSubstr("containment: guard: "));
  EXPECT_EQ(run_dtrun({"--containment=guard", "true"}).exit_code, 0);
  EXPECT_EQ(run_dtrun({"--containment=nothing", "true"}).exit_code, 64);
}

// Only what a dtrun has made can be abandoned by one.
TEST(ContainmentTest, ACgroupOfAnotherMakeIsLeftAloneWhateverItsName) {
  const CommandResult shown = run_dtrun({"-v", "--containment=cgroup", "true"});
  const auto at = shown.err.find("/dtrun.");
  if (at == std::string::npos) GTEST_SKIP() << "no cgroup can be made here: " << shown.err;
  const auto begin = shown.err.rfind(' ', at) + 1;
  const std::string parent = shown.err.substr(begin, at - begin);
  const std::vector<std::string> foreign = {"dtrun.slice", "dtrun.1.service", "dtrun.1.0123456g",
                                            "dtrun..01234567"};
  for (const std::string& name : foreign)
    ASSERT_TRUE(std::filesystem::create_directory(parent + "/" + name)) << name;
  // As a killed one has left it.
  std::filesystem::create_directory(parent + "/dtrun.1.01234567");
  EXPECT_EQ(run_dtrun({"--containment=cgroup", "true"}).exit_code, 0);
  EXPECT_FALSE(std::filesystem::exists(parent + "/dtrun.1.01234567"));
  for (const std::string& name : foreign)
    EXPECT_TRUE(std::filesystem::remove(parent + "/" + name)) << name << " was removed";
}

// Whatever the containment was asked for by.
TEST(ContainmentTest, TheAgentRemovesTheCgroupOfAKeeperAndAGuardThatWereKilled) {
  for (const std::string wish : {"auto", "cgroup", "namespace"}) {
    if (wish != "auto" && ::geteuid() != 0) continue;
    LauncherJob job;
    Command command({DTRUN_BINARY, "-v", "--containment=" + wish, "sh", "-c",
                     "echo up 0; exec sleep " + unique_token()},
                    job.options());
    ASSERT_TRUE(command.wait_for_output("up 0"));
    const LauncherProcesses own = wait_for_guard(command.pid());
    for (const pid_t pid : {own.keeper, own.guard}) ::kill(pid, SIGKILL);
    const CommandResult result = command.finish();
    EXPECT_EQ(result.exit_code, 125) << result.describe();
    const auto at = result.err.find("/dtrun." + std::to_string(own.keeper));
    if (at == std::string::npos) continue;  // there is none here
    const auto begin = result.err.rfind(' ', at) + 1;
    const std::string folder = result.err.substr(begin, result.err.find(',', at) - begin);
    EXPECT_FALSE(std::filesystem::exists(folder)) << folder;
  }
}

// Nobody who could continue it is left.
// All processes of a dtrun in the same instant: who is stopped does not see the others' ends.
void kill_all_of(const Command& job) {
  const LauncherProcesses processes = wait_for_guard(job.pid());
  ::kill(processes.agent, SIGSTOP);
  ::kill(processes.keeper, SIGSTOP);
  for (const pid_t pid : {processes.guard, processes.keeper, processes.agent})
    EXPECT_EQ(::kill(pid, SIGKILL), 0);
}

TEST(ContainmentTest, TheNextDtrunRemovesTheFoldersOfThoseThatWereKilledAndNoOthers) {
  LauncherJob job;
  Command killed(job_command("echo up $RANK; sleep 100"), job.options());
  ASSERT_TRUE(wait_until_up(killed));
  const std::vector<std::string> abandoned = job.left_behind();
  ASSERT_EQ(abandoned.size(), 1u);
  kill_all_of(killed);
  killed.finish();
  EXPECT_EQ(job.left_behind(), abandoned);
  // One that is being made, one that is kept, as -r does, another user's, and a running job's.
  const std::string being_made = job.folder() + "/dtrun_0123456789abcdef";
  const std::string kept = job.folder() + "/dtrun_fedcba9876543210";
  const std::string foreign = job.folder() + "/dtrun_00000000000000ff";
  std::filesystem::create_directory(being_made);
  std::filesystem::create_directories(kept + "/none_fedcba9876543210/attempt_0");
  std::vector<std::string> expected = {"dtrun_0123456789abcdef", "dtrun_fedcba9876543210"};
  if (::geteuid() == 0) {
    std::filesystem::copy(
        job.folder() + "/" + abandoned[0], foreign,
        std::filesystem::copy_options::recursive | std::filesystem::copy_options::copy_symlinks);
    ASSERT_EQ(::chown(foreign.c_str(), 65534, 65534), 0);
    expected.emplace_back("dtrun_00000000000000ff");
  }
  const std::string gone = "while [ -e " + job.folder() + "/" + abandoned[0] +
                           " ]; do sleep 0.02; done; echo up $RANK; ";
  Command running(job_command(gone + "sleep 100"), job.options());
  ASSERT_TRUE(wait_until_up(running));
  EXPECT_EQ(job.left_behind().size(), expected.size() + 1);
  // What the next one does, while that one lives.
  remove_abandoned_folders(job.folder());
  EXPECT_EQ(job.left_behind().size(), expected.size() + 1);
  running.signal(SIGTERM);
  EXPECT_EQ(running.finish().exit_code, 143);
  EXPECT_THAT(job.left_behind(), testing::UnorderedElementsAreArray(expected));
}

TEST(ContainmentTest, AStoppedKeeperOrGuardDoesNotOutliveItsParent) {
  for (const std::string wish : {"guard", "cgroup", "namespace"}) {
    if (wish != "guard" && ::geteuid() != 0) continue;
    for (const bool stops_guard : {false, true}) {
      SCOPED_TRACE(wish + (stops_guard ? ", the guard" : ", the keeper"));
      const std::string token = unique_token();
      LauncherJob job;
      Command command(
          {DTRUN_BINARY, "--containment=" + wish, "sh", "-c", "echo up 0; exec sleep " + token},
          job.options());
      ASSERT_TRUE(command.wait_for_output("up 0"));
      const LauncherProcesses own = wait_for_guard(command.pid());
      // The keeper continues a guard that is stopped while it is there itself.
      ::kill(own.keeper, stops_guard ? SIGKILL : SIGSTOP);
      if (stops_guard) ::kill(own.guard, SIGSTOP);
      command.signal(SIGKILL);
      EXPECT_TRUE(all_gone_within(token, kPatience)) << describe_processes_with(token);
      const CommandResult result = command.finish();
      EXPECT_FALSE(result.killed_at_limit) << result.describe();
      EXPECT_THAT(job.left_behind(), IsEmpty());
    }
  }
}

// As some sandboxes do (seccomp).
TEST(ContainmentTest, WherePidfdsAreRefusedAJobEndsAsSoonAsElsewhere) {
  const std::string script =
      "import ctypes, os, struct, sys\n"
      "rules = [(0x20, 0, 0, 0), (0x15, 0, 1, 434), (6, 0, 0, 0x50001), (6, 0, 0, 0x7fff0000)]\n"
      "code = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *r) for r in rules))\n"
      "program = struct.pack('HxxxxxxQ', len(rules), ctypes.addressof(code))\n"
      "libc = ctypes.CDLL(None)\n"
      "assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0\n"
      "os.execv(sys.argv[1], sys.argv[1:])\n";
  const std::string token = unique_token();
  for (const std::string& program :
       {std::string("exit 0"), "setsid sleep " + token + " & exit 0"}) {
    const CommandResult result = testing_support::run_command(
        {"python3", "-c", script, DTRUN_BINARY, "--containment=guard", "sh", "-c", program});
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    EXPECT_LT(result.elapsed, kPatience) << program;
  }
  EXPECT_TRUE(all_gone_within(token, kPatience)) << describe_processes_with(token);
}

TEST(ContainmentTest, WithoutProcItIsRefusedAndWithoutSharedMemoryItRuns) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can mount";
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the address sanitizer itself needs /proc";
#endif
  const CommandResult result = run_with_mounts("mount -t tmpfs none /proc", "true");
  EXPECT_NE(result.exit_code, 0) << result.describe();  // 71; sanitizers end with their own
  EXPECT_THAT(result.err, HasSubstr("dtrun needs /proc"));
  EXPECT_EQ(run_with_mounts("mount -t tmpfs -o size=64k none /dev/shm", "true").exit_code, 0);
}

TEST(ContainmentTest, FirstProcessOfAContainerOrInsideAnotherDtrunItLeavesNothing) {
  const std::string token = unique_token();
  const std::string script = "setsid sleep " + token + " & echo up";
  if (::geteuid() == 0) {
    const CommandResult first = testing_support::run_command(
        {"unshare", "-p", "-f", "--mount-proc", DTRUN_BINARY, "sh", "-c", script});
    EXPECT_EQ(first.exit_code, 0) << first.describe();
    EXPECT_THAT(processes_with(token), IsEmpty()) << describe_processes_with(token);
  }
  const CommandResult nested =
      run_dtrun({"--nproc_per_node=2", DTRUN_BINARY, "--standalone", "sh", "-c", script});
  EXPECT_EQ(nested.exit_code, 0) << nested.describe();
  EXPECT_EQ(nested.out, "up\nup\n");
  EXPECT_THAT(processes_with(token), IsEmpty()) << describe_processes_with(token);
}

TEST(ContainmentTest, AStartThatFailsHalfWayIsUndone) {
  const std::string folder = "/sys/fs/cgroup/pids/dtrun_test" + std::to_string(::getpid());
  std::error_code error;
  if (!std::filesystem::create_directory(folder, error)) GTEST_SKIP() << "no pids cgroup here";
  const std::string token = unique_token();
  LauncherJob job;
  const CommandResult result = testing_support::run_command(
      {"sh", "-c",
       "echo 40 > " + folder + "/pids.max; echo $$ > " + folder + "/cgroup.procs; exec " +
           DTRUN_BINARY + " --nproc_per_node=64 sleep " + token},
      job.options());
  EXPECT_EQ(result.exit_code, 71) << result.describe();
  EXPECT_THAT(result.err, HasSubstr("raise the limit of processes (ulimit -u, pids.max)"));
  EXPECT_THAT(processes_with(token), IsEmpty()) << describe_processes_with(token);
  EXPECT_THAT(job.left_behind(), IsEmpty());
  std::filesystem::remove(folder, error);
}
#else
// Stopped so that no SIGCONT wakes it.
TEST(ContainmentTest, AGuardThatADebuggerHoldsIsKilledAfterTheGraces) {
  const std::string token = unique_token();
  Command command({DTRUN_BINARY, "--shutdown-timeout=0.2", "sh", "-c", script_with(token)});
  ASSERT_TRUE(command.wait_for_output("up 0"));
  const pid_t guard = wait_for_guard(command.pid()).guard;
  ASSERT_EQ(::ptrace(PTRACE_SEIZE, guard, nullptr, nullptr), 0);
  ASSERT_EQ(::ptrace(PTRACE_INTERRUPT, guard, nullptr, nullptr), 0);
  ASSERT_EQ(::waitpid(guard, nullptr, __WALL), guard);
  std::thread reaper([guard] { ::waitpid(guard, nullptr, __WALL); });  // its tracer is told first
  command.signal(SIGTERM);
  const CommandResult result = command.finish();
  reaper.join();
  EXPECT_EQ(result.exit_code, 143) << result.describe();
  EXPECT_THAT(result.err, HasSubstr("the guard has not ended the ranks in 15.4 s: it is killed"));
  EXPECT_THAT(processes_with(token), IsEmpty()) << describe_processes_with(token);
}
#endif

}  // namespace
}  // namespace dtrun::launcher
