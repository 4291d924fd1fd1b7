// Nothing that a job has started outlives it, whoever dies: ranks, guard, agent, at the start or
// later. Ranks are shells with a detached grandchild each, all with a token in their command lines.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <set>

#include "launcher/launcher_job.h"
#include "launcher/living_processes.h"

namespace dtrun::launcher {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::IsEmpty;
using testing_support::Command;
using testing_support::CommandOptions;
using testing_support::CommandResult;

constexpr milliseconds kLimit{1000};
constexpr int kRanks = 3;

std::set<std::string> shared_memory_files() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm"))
    names.insert(entry.path().filename());
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
  return {DTRUN_BINARY, "--nproc_per_node=" + std::to_string(kRanks), "sh", "-c", script};
}

bool wait_until_up(Command& command) {
  for (int rank = 0; rank < kRanks; ++rank)
    if (!command.wait_for_output("up " + std::to_string(rank))) return false;
  return true;
}

// The guard of a dtrun that runs; 0 when dtrun has ended before it had one.
pid_t wait_for_guard(pid_t agent) {
  while (::kill(agent, 0) == 0)
    for (const pid_t child : children_of(agent)) return child;
  return 0;
}

enum class Victim { kAgent, kGuard, kBoth };
enum class Moment { kStart, kIdle, kCollective };

struct Kill {
  Victim victim;
  Moment moment;
};

class KillTest : public testing::TestWithParam<Kill> {
 protected:
  // The delay, in turns of a loop, moves the kill through the start.
  void kill_once(int delay) {
    const std::string token = unique_token();
    LauncherJob job;
    const bool collective = GetParam().moment == Moment::kCollective;
    const std::string script = collective ? collective_script_with(token) : script_with(token);
    Command command(job_command(script), job.options());
    if (GetParam().moment != Moment::kStart) {
      ASSERT_TRUE(wait_until_up(command));
    } else {
      for (int i = 0; i < delay; ++i) (void)children_of(command.pid());
    }
    if (GetParam().victim != Victim::kAgent) {
      const pid_t guard = wait_for_guard(command.pid());
      if (guard > 0) ::kill(guard, SIGKILL);
    }
    if (GetParam().victim != Victim::kGuard) command.signal(SIGKILL);
    if (GetParam().victim == Victim::kBoth) {
      check_after_both(token, script);
    } else {
      EXPECT_TRUE(all_gone_within(token, kLimit)) << describe_processes_with(token);
      EXPECT_THAT(job.left_behind(), IsEmpty());
    }
    const CommandResult result = command.finish();
    if (GetParam().victim == Victim::kGuard) {
      EXPECT_EQ(result.exit_code, 125) << result.describe();
      EXPECT_THAT(result.err, HasSubstr("the guard process has died (SIGKILL)"));
    } else if (result.exit_code != 125) {  // the agent may see the guard's end before its own
      EXPECT_EQ(result.signal, SIGKILL) << result.describe();
    }
  }

  // The limit that -v states: ranks die with the guard, what they have detached may live on.
  void check_after_both(const std::string& token, const std::string& script) {
    for (const std::string& rank : {"sh -c " + script, "wait-in-collective " + token})
      EXPECT_TRUE(all_gone_within(rank, kLimit)) << describe_processes_with(token);
    // One that is just forking may be missed once.
    do {
      for (const pid_t pid : processes_with(token)) ::kill(pid, SIGKILL);
    } while (!all_gone_within(token, milliseconds(100)));
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
  const char* const victim = info.param.victim == Victim::kAgent   ? "Agent"
                             : info.param.victim == Victim::kGuard ? "Guard"
                                                                   : "Both";
  const char* const moment = info.param.moment == Moment::kStart  ? "AtStart"
                             : info.param.moment == Moment::kIdle ? "Idle"
                                                                  : "InACollective";
  return std::string(victim) + moment;
}

INSTANTIATE_TEST_SUITE_P(
    Matrix, KillTest,
    testing::Values(Kill{Victim::kAgent, Moment::kStart}, Kill{Victim::kAgent, Moment::kIdle},
                    Kill{Victim::kAgent, Moment::kCollective}, Kill{Victim::kGuard, Moment::kStart},
                    Kill{Victim::kGuard, Moment::kIdle}, Kill{Victim::kGuard, Moment::kCollective},
                    Kill{Victim::kBoth, Moment::kStart}, Kill{Victim::kBoth, Moment::kIdle},
                    Kill{Victim::kBoth, Moment::kCollective}),
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
  EXPECT_LT(result.elapsed.count(), 5.0);
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
  const CommandResult result = run_dtrun(
      {"sh", "-c",
       "for i in 1 2 3 4 5 6 7 8 9 10; do (setsid true &) ; done; sleep 0.3; "
       "grep -c . /proc/$PPID/task/$PPID/children; wc -w < /proc/$PPID/task/$PPID/children"});
  EXPECT_EQ(result.sorted_lines().back(), "1") << result.describe();
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
#endif

}  // namespace
}  // namespace dtrun::launcher
