// --on-restart and --health-check.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

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

using Words = std::vector<std::string>;

// The first round fails, a restart ends well.
const Words kFailsOnce = {"sh", "-c",
                          "echo round $TORCHELASTIC_RESTART_COUNT >&2; "
                          "exit $((1 - TORCHELASTIC_RESTART_COUNT))"};

CommandResult run_once_failing(const LauncherJob& job, Words options) {
  options.emplace_back("--max-restarts=1");
  options.insert(options.end(), kFailsOnce.begin(), kFailsOnce.end());
  return job.run(options);
}

TEST(RestartCommandsTest, TheyRunBetweenTheRoundsAndKnowWhy) {
  LauncherJob job;
  const CommandResult result =
      run_once_failing(job, {"--rdzv-id=seven", "--on-restart",
                             "echo told $DTRUN_RUN_ID $DTRUN_RESTART $DTRUN_NODE_RANK "
                             "$DTRUN_FAILED_RANK $DTRUN_FAILED_EXIT_CODE: $DTRUN_RESTART_CAUSE",
                             "--health-check", "echo well"});
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_THAT(result.out, IsEmpty());
  const auto place = [&](const std::string& text) { return result.err.find(text); };
  const auto told = place("told seven 1 0 0 1: rank 0 on node 0 (");
  EXPECT_LT(place("round 0\n"), told) << result.describe();
  EXPECT_LT(told, place("well\n"));
  EXPECT_LT(place("well\n"), place("round 1\n"));
  EXPECT_NE(place("round 1\n"), std::string::npos);
}

TEST(RestartCommandsTest, AJobThatDoesNotRestartRunsNone) {
  LauncherJob job;
  for (const char* code : {"0", "3"}) {
    const CommandResult result =
        job.run({"--on-restart=echo told", "sh", "-c", std::string("exit ") + code});
    EXPECT_EQ(result.exit_code, std::stoi(code)) << result.describe();
    EXPECT_THAT(result.err, Not(HasSubstr("told")));
  }
}

TEST(RestartCommandsTest, AFailureOfTheFirstIsToldAndOneOfTheCheckEndsTheNode) {
  LauncherJob job;
  const CommandResult told = run_once_failing(job, {"--on-restart=exit 5"});
  EXPECT_EQ(told.exit_code, 0) << told.describe();
  EXPECT_THAT(told.err, HasSubstr("--on-restart 'exit 5' failed: exit code 5; the job is restarted "
                                  "all the same\n"));
  const CommandResult ill = run_once_failing(job, {"--health-check=exit 5"});
  EXPECT_EQ(ill.exit_code, 1) << ill.describe();
  EXPECT_THAT(ill.err, AllOf(HasSubstr("drops out: --health-check 'exit 5' failed: exit code 5"),
                             Not(HasSubstr("round 1\n"))));
}

TEST(RestartCommandsTest, WhatTakesTooLongIsKilledWithAllThatItStarted) {
  LauncherJob job;
  const std::string token = unique_token();
  const std::string command = "sh -c 'sleep 100; true' " + token + "; true";
  const CommandResult result =
      run_once_failing(job, {"--restart-command-timeout=0.2", "--health-check=" + command});
  EXPECT_EQ(result.exit_code, 1) << result.describe();
  EXPECT_THAT(result.err, HasSubstr("has not ended within 200 ms"));
  EXPECT_THAT(processes_with(token), IsEmpty());
}

TEST(RestartCommandsTest, ASignalEndsTheJobAndTheCommand) {
  LauncherJob job;
  const std::string token = unique_token();
  Words line = {"sh",
                "-c",
                "exec \"$@\" 2>&1",
                "sh",
                DTRUN_BINARY,
                "--max-restarts=1",
                "--on-restart=echo begun; sh -c 'sleep 100; true' " + token + "; true"};
  line.insert(line.end(), kFailsOnce.begin(), kFailsOnce.end());
  Command command(line, job.options());
  ASSERT_TRUE(command.wait_for_output("begun"));
  command.signal(SIGINT);
  const CommandResult result = command.finish();
  EXPECT_EQ(result.exit_code, 128 + SIGINT) << result.describe();
  EXPECT_THAT(processes_with(token), IsEmpty());
}

TEST(RestartCommandsTest, TheOtherNodesGoOnWithoutTheOneThatIsIll) {
  LauncherJob job;
  const testing_support::OwnPort port;
  const auto start = [&](const std::string& check, const std::string& program) {
    return Command({"sh", "-c", "exec \"$@\" 2>&1", "sh", DTRUN_BINARY, "-v", "--nnodes=1:2",
                    "--rdzv_backend=c10d", "--rdzv_endpoint=127.0.0.1:" + port.text(),
                    "--rdzv_conf=last_call_timeout=1", "--max-restarts=1",
                    "--health-check=" + check, "sh", "-c", program},
                   job.options());
  };
  Command well = start(
      "true", "[ $TORCHELASTIC_RESTART_COUNT = 1 ] || exec sleep 100; echo ranks $WORLD_SIZE");
  ASSERT_TRUE(well.wait_for_output("hosts the rendezvous"));
  Command ill = start("exit 5", "exit 1");
  const CommandResult of_ill = ill.finish(), of_well = well.finish();
  EXPECT_EQ(of_ill.exit_code, 1) << of_ill.describe();
  EXPECT_THAT(of_ill.out, HasSubstr("drops out: --health-check 'exit 5' failed: exit code 5"));
  EXPECT_EQ(of_well.exit_code, 0) << of_well.describe();
  EXPECT_THAT(of_well.out, HasSubstr("\nranks 1\n"));
}

}  // namespace
}  // namespace dtrun::launcher
