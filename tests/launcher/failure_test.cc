// Ranks that fail: who is reported, with what, and how the others end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "dtrun/base/error.h"
#include "launcher/launcher_job.h"
#include "support/promptness.h"

namespace dtrun::launcher {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing_support::Command;
using testing_support::CommandResult;

const std::string kPageWorker = DTRUN_WORKERS "/page_worker";

CommandResult run_ranks(int ranks, const std::string& script) {
  return run_dtrun({"--nproc_per_node=" + std::to_string(ranks), "sh", "-c", script});
}

CommandResult run_pages(std::vector<std::string> modes) {
  std::vector<std::string> arguments = {"--nproc_per_node=" + std::to_string(modes.size()),
                                        kPageWorker};
  arguments.insert(arguments.end(), modes.begin(), modes.end());
  return run_dtrun(std::move(arguments));
}

TEST(FailureTest, TheExitCodeIsTheFailedRanksOwn) {
  for (const int code : {0, 1, 2, 3, 42, 64, 77, 125, 126, 127, 128, 130, 137, 254, 255}) {
    const CommandResult result =
        run_ranks(2, "[ $RANK = 1 ] && exit " + std::to_string(code) + "; exit 0");
    EXPECT_EQ(result.exit_code, code) << result.describe();
  }
}

// One after the other, in the rounds of one job.
TEST(FailureTest, EveryCodeOfARankIsSeen) {
  const CommandResult result =
      run_dtrun({"--max_restarts=254", "sh", "-c", "exit $((TORCHELASTIC_RESTART_COUNT + 1))"});
  EXPECT_EQ(result.exit_code, 255) << result.err;
  for (int code = 1; code < 255; ++code)
    EXPECT_THAT(result.err, HasSubstr(") failed: exit code " + std::to_string(code) + "\n"));
}

TEST(FailureTest, ASignalThatEndsARankIs128PlusItsNumberAndIsNamed) {
  // All that end a process by default.
  for (int number = 1; number <= SIGSYS; ++number) {
    const auto others = {SIGCHLD, SIGCONT, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG, SIGWINCH};
    if (std::ranges::find(others, number) != others.end()) continue;
    const CommandResult result = run_ranks(
        2, "ulimit -c 0; [ $RANK = 1 ] && kill -" + std::to_string(number) + " $$; sleep 100");
    EXPECT_EQ(result.exit_code, 128 + number) << result.describe();
    EXPECT_THAT(result.err, HasSubstr("Signal " + std::to_string(number) + " (" +
                                      base::signal_name(number) + ") received by PID "));
    EXPECT_THAT(result.err, HasSubstr("exitcode  : -" + std::to_string(number) + " (pid: "));
  }
}

TEST(FailureTest, TheTableHasTorchrunsLayout) {
  const CommandResult result =
      run_ranks(2, "echo 'the reason' >&2; [ $RANK = 1 ] && exit 5; exec sleep 100");
  const std::string rule(60, '='), line(60, '-');
  EXPECT_THAT(
      result.err,
      testing::ContainsRegex(rule + "\nsh FAILED\n" + line +
                             "\nFailures:\n"
                             "\\[1\\]:\n"
                             "  time      : [0-9]{4}-[0-9]{2}-[0-9]{2}_[0-9]{2}:[0-9]{2}:[0-9]{2}\n"
                             "  host      : [^\n]+\n"
                             "  rank      : 0 \\(local_rank: 0\\)\n"
                             "  exitcode  : -15 \\(pid: [0-9]+\\)\n"
                             "  error_file: <N/A>\n"
                             "  traceback : Signal 15 \\(SIGTERM\\) received by PID [0-9]+\n" +
                             line +
                             "\nRoot Cause \\(first observed failure\\):\n"
                             "\\[0\\]:\n"
                             "  time      : [^\n]+\n"
                             "  host      : [^\n]+\n"
                             "  rank      : 1 \\(local_rank: 1\\)\n"
                             "  exitcode  : 5 \\(pid: [0-9]+\\)\n"
                             "  error_file: <N/A>\n"
                             "  traceback : [^\n]+\n" +
                             rule +
                             "\nrank 0 was ended by dtrun after rank 1 had failed\nThe last lines "
                             "that rank 1 wrote to its standard error:\n  \\| the reason\n"))
      << result.err;
  EXPECT_THAT(run_ranks(1, "exit 5").err, HasSubstr("Failures:\n  <NO_OTHER_FAILURES>\n"));
}

// All fail at once, and the first to be seen is the cause for which the others are told to end.
TEST(FailureTest, WhoHasFailedByItselfIsNotCalledEndedByDtrun) {
  for (int run = 0; run < 20; ++run) {
    const CommandResult result = run_ranks(8, "exit 1");
    EXPECT_EQ(result.exit_code, 1) << result.describe();
    if (result.err.find("exitcode  : -15") != std::string::npos) continue;  // one was, indeed
    ASSERT_THAT(result.err, Not(HasSubstr("ended by dtrun"))) << result.describe();
  }
}

TEST(FailureTest, TheLastTwentyOfManyErrorLinesAreShown) {
  const CommandResult result =
      run_ranks(1, "i=0; while [ $i -lt 500 ]; do echo line-$i >&2; i=$((i+1)); done; exit 1");
  std::istringstream report(result.err.substr(result.err.find("The last lines")));
  std::string header, line;
  std::getline(report, header);
  for (int i = 480; i < 500; ++i) {
    std::getline(report, line);
    EXPECT_EQ(line, "  | line-" + std::to_string(i));
  }
  EXPECT_FALSE(std::getline(report, line));
}

TEST(FailureTest, TheStackThatPythonWritesStandsInTheTable) {
  const CommandResult result = run_ranks(1, R"(exec >&2
    echo before; echo 'Fatal Python error: Segmentation fault'; echo
    echo 'Thread 0x1 (most recent call first):'
    i=0; while [ $i -lt 30 ]; do echo "  File other.py, line $i"; i=$((i+1)); done; echo
    echo 'Current thread 0x2 (most recent call first):'; echo '  File "a.py", line 4 in <module>'; echo
    echo 'Extension modules: many'; ulimit -c 0; kill -SEGV $$)");
  EXPECT_THAT(result.err, HasSubstr("\n  Fatal Python error: Segmentation fault\n"
                                    "  Current thread 0x2 (most recent call first):\n"
                                    "    File \"a.py\", line 4 in <module>\n====="));
  EXPECT_THAT(result.err, HasSubstr("standard error:\n  | before\n")) << result.err;
}

TEST(FailureTest, PythonRanksTellOfTheirCrashesUnlessTheUserWantsItOtherwise) {
  EXPECT_EQ(run_ranks(1, "echo $PYTHONFAULTHANDLER").out, "1\n");
  LauncherJob job;
  job.options().environment["PYTHONFAULTHANDLER"] = "";
  EXPECT_EQ(job.run({"sh", "-c", "echo \"[$PYTHONFAULTHANDLER]\""}).out, "[]\n");
}

TEST(FailureTest, AnErrorFileGivesTheMessageAndIsCopiedWithTheCode) {
  LauncherJob job;
  const std::string copy = job.folder() + "/copy.json";
  job.options().environment["TORCHELASTIC_ERROR_FILE"] = copy;
  const CommandResult result =
      job.run({"--nproc_per_node=2", "--log_dir=" + job.folder(), "sh", "-c",
               R"([ $RANK = 0 ] && exec sleep 100
          echo '{"message":{"message":"ValueError: bad","extraInfo":{"py_callstack":"at x",
          "timestamp":"1700000000"}}}' > $TORCHELASTIC_ERROR_FILE; exit 9)"});
  EXPECT_EQ(result.exit_code, 9);
  // As torchrun shows it.
  EXPECT_THAT(result.err, AllOf(HasSubstr("traceback : at x\n  ValueError: bad\n"),
                                HasSubstr("time      : 2023-11-1"), HasSubstr("/1/error.json")));
  std::ifstream file(copy);
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_THAT(text.str(), AllOf(HasSubstr("ValueError: bad"), HasSubstr("\"errorCode\":9"),
                                HasSubstr("1700000000")));
}

TEST(FailureTest, AMalformedErrorFileDoesNotHideTheFailure) {
  const CommandResult result = run_ranks(1, "echo '{' > $TORCHELASTIC_ERROR_FILE; exit 4");
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_THAT(result.err, AllOf(HasSubstr("exitcode  : 4"), HasSubstr("rank 0")));
  const std::string complaint = "is not valid JSON";
  EXPECT_NE(result.err.find(complaint), std::string::npos);
  EXPECT_EQ(result.err.find(complaint), result.err.rfind(complaint)) << result.describe();
}

TEST(FailureTest, AFullDiskUnderTheCopyOfTheErrorFileIsToldAndTheCodeStays) {
  LauncherJob job;
  const std::string disk = job.folder() + "/disk";
  std::filesystem::create_directory(disk);
  if (::mount("none", disk.c_str(), "tmpfs", 0, "size=4k,nr_inodes=2") != 0)
    GTEST_SKIP() << "a small file system cannot be mounted here (not root)";
  std::ofstream(disk + "/filler") << std::string(8192, 'f');
  job.options().environment["TORCHELASTIC_ERROR_FILE"] = disk + "/error.json";
  const CommandResult result =
      job.run({"sh", "-c",
               R"(echo '{"message":"text","timestamp":10}' > $TORCHELASTIC_ERROR_FILE; exit 9)"});
  ::umount2(disk.c_str(), MNT_DETACH);
  EXPECT_EQ(result.exit_code, 9) << result.describe();
  EXPECT_THAT(result.err, AllOf(HasSubstr("dtrun: error: "), HasSubstr(disk + "/error.json"),
                                HasSubstr("traceback : text")));
}

// Where ranks have sessions (sched_autogroup_enabled) it cannot go.
TEST(FailureTest, ARankThatWentToAnotherProcessGroupIsEndedToo) {
  const CommandResult result =
      run_dtrun({"--nproc_per_node=2", "--shutdown-timeout=30", "python3", "-c",
                 "import os, sys, time\n"
                 "if os.environ['RANK'] == '1': sys.exit(6)\n"
                 "try: os.setpgid(0, os.getppid())\n"
                 "except PermissionError: assert os.getsid(0) == os.getpid()\n"
                 "time.sleep(100)"});
  EXPECT_EQ(result.exit_code, 6) << result.describe();
  EXPECT_LT(result.elapsed, testing_support::kPatience) << result.describe();
}

TEST(FailureTest, ErrorFilesAreNamedByWholePathsAndAnEmptyTmpdirIsNone) {
  LauncherJob job;
  job.options().folder = job.folder();
  job.options().environment["TMPDIR"] = "";
  for (const char* option : {"--log_dir=logs", "--nproc_per_node=1"}) {
    const CommandResult result = job.run({option, "sh", "-c", "echo $TORCHELASTIC_ERROR_FILE"});
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    const std::string folder = option[2] == 'l' ? job.folder() + "/logs/" : "/dev/shm/dtrun_";
    EXPECT_EQ(result.out.rfind(folder, 0), 0U) << result.out;
  }
}

TEST(FailureTest, TheOthersGetSigtermAndTheirOutputStillComes) {
  const LauncherJob job;
  // Rank 2 fails once the others have set their traps and said so: opening a fifo waits for its
  // other side.
  const std::string script =
      "cd " + job.folder() +
      "; trap 'echo saved $RANK; exit 0' TERM; "
      "[ $RANK = 2 ] && { read a <up0; read a <up1; exit 6; }; echo up >up$RANK; "
      "while :; do sleep 0.05; done";
  for (const char* name : {"/up0", "/up1"})
    ASSERT_EQ(::mkfifo((job.folder() + name).c_str(), 0600), 0);
  const CommandResult result = job.run({"--nproc_per_node=3", "sh", "-c", script});
  EXPECT_EQ(result.exit_code, 6) << result.describe();
  EXPECT_THAT(result.out, HasSubstr("saved 0\n"));
  EXPECT_THAT(result.out, HasSubstr("saved 1\n"));
  EXPECT_THAT(result.err, HasSubstr("<NO_OTHER_FAILURES>"));
}

TEST(FailureTest, ARankThatIgnoresSigtermIsKilledAfterTheGraceAndNotBlamed) {
  LauncherJob job;
  const std::string fifo = job.folder() + "/ready";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  // Rank 1 fails when rank 0 ignores the signal, not before.
  const CommandResult result =
      job.run({"--nproc_per_node=2", "--shutdown-timeout=0.3", "sh", "-c",
               "trap '' TERM; cd " + job.folder() +
                   "; [ $RANK = 1 ] && { read a <ready; exit 6; }; echo up >ready; "
                   "while :; do sleep 0.05; done"});
  EXPECT_EQ(result.exit_code, 6) << result.describe();
  EXPECT_GT(result.elapsed.count(), 0.29);
  EXPECT_LT(result.elapsed, testing_support::kPatience);
  EXPECT_THAT(result.err, HasSubstr("exitcode  : -9"));
}

TEST(FailureTest, AStoppedRankDoesNotHoldUpTheEnd) {
  LauncherJob job;
  const std::string fifo = job.folder() + "/pid";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const CommandResult result =
      job.run({"--nproc_per_node=2", "sh", "-c",
               "[ $RANK = 0 ] && echo $$ >" + fifo + " && exec sleep 100; read pid <" + fifo +
                   "; kill -STOP $pid; exit 6"});
  EXPECT_EQ(result.exit_code, 6) << result.describe();
  EXPECT_LT(result.elapsed, testing_support::kPatience);
}

TEST(FailureTest, ARankKilledInACollectiveIsTheOneReportedThoughItsPeersFailAtOnce) {
  for (int run = 0; run < 10; ++run) {
    const CommandResult result =
        run_pages({"wait-in-collective", "wait-in-collective", "kill-self", "wait-in-collective"});
    ASSERT_EQ(result.exit_code, 137) << result.describe();
    ASSERT_THAT(result.err, HasSubstr("Root Cause (first observed failure):\n[0]:\n"));
    const std::string root = result.err.substr(result.err.find("Root Cause"));
    ASSERT_THAT(root, HasSubstr("rank      : 2 (local_rank: 2)"));
  }
}

TEST(FailureTest, VictimsThatComeFirstWaitForTheOneTheyAccuse) {
  const CommandResult result = run_pages({"victim-of-1", "root-after-victims", "victim-of-1"});
  EXPECT_EQ(result.exit_code, 9) << result.describe();
  EXPECT_THAT(result.err.substr(result.err.find("Root Cause")), HasSubstr("rank      : 1 "));
}

TEST(FailureTest, WhereOnlyVictimsFailTheFirstOfThemIsReported) {
  const CommandResult result = run_pages({"victim-of-1", "leave"});
  EXPECT_EQ(result.exit_code, 1) << result.describe();
  EXPECT_THAT(result.err, HasSubstr("rank      : 0 "));
}

// Of ranks that time out, through one that itself waited.
TEST(FailureTest, TheRankThatDidNotComeIsTheCauseAndNotThoseThatWaited) {
  const CommandResult result = run_pages({"victim-of-1", "victim-of-2", "late", "victim-of-1"});
  EXPECT_EQ(result.exit_code, 1) << result.describe();
  const std::string root = result.err.substr(result.err.find("Root Cause"));
  EXPECT_THAT(root, AllOf(HasSubstr("rank      : 2 "),
                          HasSubstr(" was in all_reduce #41 of group 'world' when rank 0 (pid ")));
  EXPECT_THAT(result.err, Not(HasSubstr("were ended by dtrun")));
}

TEST(FailureTest, ARankThatGoesBeforeInitWhileOthersWaitFailsTheJobAndBothSidesAreNamed) {
  const CommandResult result = run_pages({"wait-in-init", "exit-before-init", "wait-in-init"});
  EXPECT_EQ(result.exit_code, 1) << result.describe();
  EXPECT_LT(result.elapsed, testing_support::kPatience);
  EXPECT_THAT(result.err, HasSubstr("rank 1 (pid "));
  EXPECT_THAT(result.err, HasSubstr("exited with code 0 before it joined, while ranks 0 and 2 "
                                    "waited for it in init"));
}

TEST(FailureTest, ARankThatGoesInsideInitOrACollectiveOrWithoutLeavingFailsTheJob) {
  EXPECT_THAT(run_pages({"wait-in-init", "exit-in-init"}).err, HasSubstr("inside init"));
  EXPECT_THAT(run_pages({"wait-in-collective", "exit-in-collective"}).err,
              HasSubstr("exited with code 0 inside all_reduce #41 of group 'world'"));
  const CommandResult result = run_pages({"wait-in-collective", "exit-without-leaving"});
  EXPECT_EQ(result.exit_code, 1) << result.describe();
  EXPECT_THAT(result.err, HasSubstr("without leaving, while rank 0 waited in all_reduce #41"));
}

TEST(FailureTest, ARankThatOnlyRanLaterThanOneThatHasGoneMissesNobody) {
  const CommandResult result = run_pages({"finish-after-the-others", "exit-without-leaving"});
  EXPECT_EQ(result.exit_code, 0) << result.describe();
}

TEST(FailureTest, ARankThatSpoilsThePageDoesNotEndTheGuard) {
  const CommandResult result = run_pages({"spoil", "fail-when-spoilt"});
  EXPECT_EQ(result.exit_code, 7) << result.describe();
  EXPECT_THAT(result.err.substr(result.err.find("Root Cause")), HasSubstr("rank      : 1 "));
}

TEST(FailureTest, RanksThatLeaveOrNeverTouchThePageMayExitAsTheyLike) {
  EXPECT_EQ(run_pages({"leave", "leave"}).exit_code, 0);
  EXPECT_EQ(run_ranks(3, "[ $RANK = 0 ] || sleep 0.2").exit_code, 0);
}

TEST(FailureTest, AnErrorFileThatIsAFifoOrEndlessIsNotWaitedFor) {
  for (const char* const make :
       {"mkfifo $TORCHELASTIC_ERROR_FILE", "truncate -s 1T $TORCHELASTIC_ERROR_FILE"}) {
    const CommandResult result = run_ranks(1, std::string(make) + "; exit 3");
    EXPECT_EQ(result.exit_code, 3) << result.describe();
    EXPECT_THAT(result.err, testing::AnyOf(HasSubstr("is no regular file"),
                                           HasSubstr("is longer than 1048576 bytes")));
  }
}

class StopTest : public testing::TestWithParam<int> {};

TEST_P(StopTest, OneSignalStopsTheJobCleanly) {
  LauncherJob job;
  const char* const script =
      "trap 'echo bye $RANK; exit 0' INT TERM HUP QUIT; echo up $RANK; "
      "while :; do sleep 0.05; done";
  Command command(std::vector<std::string>{DTRUN_BINARY, "--nproc_per_node=2", "sh", "-c", script},
                  job.options());
  ASSERT_TRUE(command.wait_for_output("up 0") && command.wait_for_output("up 1"));
  command.signal(GetParam());
  const CommandResult result = command.finish();
  EXPECT_EQ(result.exit_code, 128 + GetParam()) << result.describe();
  EXPECT_THAT(result.out, AllOf(HasSubstr("bye 0"), HasSubstr("bye 1")));
  EXPECT_THAT(result.err, HasSubstr("stopped by " + base::signal_name(GetParam())));
  EXPECT_THAT(job.left_behind(), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Signals, StopTest, testing::Values(SIGINT, SIGTERM, SIGHUP, SIGQUIT),
                         [](const auto& signal) { return base::signal_name(signal.param); });

TEST(StopTwiceTest, TheSecondSignalDoesNotWaitForTheGrace) {
  LauncherJob job;
  Command command(std::vector<std::string>{DTRUN_BINARY, "--nproc_per_node=2", "sh", "-c",
                                           "trap 'echo no' INT TERM; echo up $RANK; "
                                           "while :; do sleep 0.05; done"},
                  job.options());
  ASSERT_TRUE(command.wait_for_output("up 0") && command.wait_for_output("up 1"));
  command.signal(SIGINT);
  ASSERT_TRUE(command.wait_for_output("no\n"));
  command.signal(SIGINT);
  const CommandResult result = command.finish();
  EXPECT_EQ(result.exit_code, 130) << result.describe();
  EXPECT_LT(result.elapsed, testing_support::kPatience);
}

TEST(StopTwiceTest, SighupThatWasIgnoredAtTheStartStaysIgnored) {
  LauncherJob job;
  Command command(
      std::vector<std::string>{"sh", "-c",
                               "trap '' HUP; exec " DTRUN_BINARY
                               " sh -c 'echo up; read x < /proc/$PPID/comm; sleep 0.5; exit 3'"},
      job.options());
  ASSERT_TRUE(command.wait_for_output("up"));
  command.signal(SIGHUP);
  EXPECT_EQ(command.finish().exit_code, 3);
}

}  // namespace
}  // namespace dtrun::launcher
