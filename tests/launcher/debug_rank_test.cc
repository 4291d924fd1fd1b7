// --debug-rank: one rank under a debugger, on the terminal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>

#include <fstream>
#include <string>

#include "launcher/launcher_job.h"
#include "launcher/terminal.h"

namespace dtrun::launcher {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing_support::CommandResult;

const std::string kHello = DTRUN_WORKERS "/hello";
const std::string kQuietGdb = "--env=DEBUGINFOD_URLS=";

bool is_here(const std::string& program) {
  return testing_support::run_command({"sh", "-c", "command -v " + program}).exit_code == 0;
}

TEST(DebugRankTest, GdbHasTheTerminalAndTheJobEndsWithIt) {
  if (!is_here("gdb")) GTEST_SKIP() << "no gdb is here";
  TerminalJob job({kQuietGdb, "--nproc_per_node=2", "--max_restarts=1", "--debug-rank=1", kHello});
  ASSERT_TRUE(job.wait_for("the job is not restarted"));
  ASSERT_TRUE(job.wait_for("(gdb) "));
  EXPECT_TRUE(job.is_raw());
  job.type("show args\n");
  ASSERT_TRUE(job.wait_for("Argument list"));
  job.type("run\n");
  ASSERT_TRUE(job.wait_for("exited normally"));
  ASSERT_TRUE(job.wait_for("(gdb) "));
  job.type("quit\n");
  // Both ranks have met: the other one has waited. Its line may come after the debugger's.
  EXPECT_THAT(job.finish(), HasSubstr("rank 0 (local rank 0) of 2"));
  EXPECT_TRUE(WIFEXITED(job.status()) && WEXITSTATUS(job.status()) == 0) << job.finish();
}

TEST(DebugRankTest, CtrlCIsTheDebuggers) {
  if (!is_here("gdb")) GTEST_SKIP() << "no gdb is here";
  TerminalJob job({kQuietGdb, "--debug-rank=0", "sh", "-c", "echo be''gun; while :; do :; done"});
  ASSERT_TRUE(job.wait_for("(gdb) "));
  job.type("run\n");
  ASSERT_TRUE(job.wait_for("begun"));
  job.type("\x03");
  ASSERT_TRUE(job.wait_for("SIGINT"));
  job.type("print 6 * 7\n");
  ASSERT_TRUE(job.wait_for("= 42"));
  job.type("set confirm off\nquit\n");
  const std::string seen = job.finish();
  EXPECT_TRUE(WIFEXITED(job.status())) << seen;
  EXPECT_THAT(seen, Not(HasSubstr("stopping, again to kill")));
}

TEST(DebugRankTest, AfterTheDebuggerTheTerminalIsTheJobs) {
  if (!is_here("gdb")) GTEST_SKIP() << "no gdb is here";
  TerminalJob job({kQuietGdb, "--nproc_per_node=2", "--debug-rank=0", "sh", "-c",
                   "[ $RANK = 0 ] || { echo rank o''ne; exec sleep 1000; }"});
  ASSERT_TRUE(job.wait_for("(gdb) "));
  job.type("run\n");
  ASSERT_TRUE(job.wait_for("exited normally"));
  ASSERT_TRUE(job.wait_for("(gdb) "));
  job.type("quit\n");
  while (job.is_raw()) ::sched_yield();
  job.type("\x03");
  const std::string seen = job.finish();
  EXPECT_TRUE(WIFEXITED(job.status()) && WEXITSTATUS(job.status()) == 128 + SIGINT) << seen;
}

TEST(DebugRankTest, TheTerminalIsAsItWasWhoeverDies) {
  if (!is_here("gdb")) GTEST_SKIP() << "no gdb is here";
  Terminal shell({"sh", "-c",
                  DTRUN_BINARY " " + kQuietGdb +
                      " --debug-rank=0 sleep 1000; i=0; "
                      "until stty -a | grep -q ' icanon' || [ $i = 1000 ]; do i=$((i+1)); done; "
                      "stty -a; echo 'do''ne'"});
  ASSERT_TRUE(shell.wait_for("(gdb) "));
  ASSERT_TRUE(shell.is_raw());
  pid_t agent = 0;
  const std::string own = std::to_string(shell.pid());
  std::ifstream("/proc/" + own + "/task/" + own + "/children") >> agent;
  ASSERT_GT(agent, 0);
  ASSERT_EQ(::kill(agent, SIGKILL), 0);
  EXPECT_THAT(shell.seen_before("done"), AllOf(HasSubstr(" icanon"), HasSubstr(" echo ")));
  shell.finish();
}

TEST(DebugRankTest, PythonRunsUnderPdb) {
  if (!is_here("python3")) GTEST_SKIP() << "no python3 is here";
  const LauncherJob folder;
  const std::string script = folder.folder() + "/script.py";
  std::ofstream(script) << "import sys\nanswer = 6 * 7\nsys.exit(5)\n";
  TerminalJob job({"--debug-rank=0", script});
  ASSERT_TRUE(job.wait_for("(Pdb) "));
  job.type("next\nnext\np answer + 1000\n");
  ASSERT_TRUE(job.wait_for("1042"));
  job.type("q\n");
  job.finish();
  EXPECT_TRUE(WIFEXITED(job.status())) << job.finish();
}

TEST(DebugRankTest, AnImpossibleRequestIsRefusedBeforeAnythingStarts) {
  const CommandResult no_terminal = run_dtrun({"--debug-rank=0", "echo", "started"});
  EXPECT_EQ(no_terminal.exit_code, 64) << no_terminal.describe();
  EXPECT_THAT(no_terminal.err, HasSubstr("standard input and output are no terminal"));
  EXPECT_EQ(no_terminal.out, "");
  EXPECT_THAT(run_dtrun({"--debug-rank=1", "true"}).err, HasSubstr("the job has no such rank"));
  EXPECT_THAT(run_dtrun({"--debug-rank=x", "true"}).err, HasSubstr("--debug-rank"));
  EXPECT_THAT(run_dtrun({"--nnodes=2", "--debug-rank=0", "true"}).err,
              HasSubstr("job of one node"));
  EXPECT_THAT(run_dtrun({"--stdin=0", "--debug-rank=0", "true"}).err,
              HasSubstr("leave --stdin out"));
  LauncherJob job;
  job.options().environment["PATH"] = job.folder();
  const CommandResult no_gdb = job.run({"--dry-run", "--debug-rank=0", "/bin/true"});
  EXPECT_NE(no_gdb.exit_code, 0);
  EXPECT_THAT(no_gdb.err, AllOf(HasSubstr("needs gdb"), HasSubstr("install gdb")));
}

TEST(DebugRankTest, ThePlanShowsTheDebuggerOfTheOneRank) {
  if (!is_here("gdb")) GTEST_SKIP() << "no gdb is here";
  const CommandResult plan =
      run_dtrun({"--dry-run", "--nproc_per_node=2", "--debug-rank=1", "/bin/true", "x"});
  EXPECT_EQ(plan.exit_code, 0) << plan.describe();
  EXPECT_THAT(plan.out, HasSubstr("gdb -q -return-child-result --args /bin/true x")) << plan.out;
}

}  // namespace
}  // namespace dtrun::launcher
