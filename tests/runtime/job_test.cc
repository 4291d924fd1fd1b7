// Whole jobs in which one rank fails: dtrun, its guard and the ranks together. Who is reported,
// with which exit code, and how soon.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "launcher/living_processes.h"
#include "runtime/programs.h"
#include "support/command.h"
#include "support/own_port.h"
#include "support/promptness.h"

namespace dtrun::runtime {
namespace {

using testing::AnyOf;
using testing::HasSubstr;
using testing_support::Command;
using testing_support::CommandOptions;
using testing_support::CommandResult;
using testing_support::run_command;

const std::string kDtrun = DTRUN_BIN "/dtrun";

// By a sentence, or in the failure table.
testing::Matcher<std::string> names_rank(int rank) {
  const std::string number = std::to_string(rank);
  return AnyOf(HasSubstr("rank " + number), HasSubstr("rank      : " + number + " ("));
}

CommandResult run_job(std::vector<std::string> arguments, const std::string& exit_code = "0") {
  std::vector<std::string> command = {kDtrun, "--nproc_per_node=4", kMisbehave};
  command.insert(command.end(), arguments.begin(), arguments.end());
  CommandOptions options;
  options.environment["EXIT_CODE"] = exit_code;
  return run_command(command, options);
}

/// What it says after "(pid " once it has reduced.
pid_t pid_of_rank(Command& job, int rank) {
  const std::string words = "rank " + std::to_string(rank) + " (pid ";
  const std::optional<std::string> line = job.next_line(words);
  return line ? std::stoi(line->substr(words.size())) : 0;
}

// From outside, at any moment of all_reduce after all_reduce: short and long ones, through shared
// memory, by TCP alone, and by both.
TEST(JobKillTest, ARankKilledDuringAllReducesIsTheOneReportedAndNothingIsLeft) {
  constexpr unsigned kSeed = 1;
  constexpr unsigned kLongestDelay = 5000;  // us
  const std::string elements[] = {"1", "4000", "16384", "300000"};
  const std::string ranks_of_a_machine[] = {"4", "1", "2"};
  std::printf("%d kills, seed %u\n", DTRUN_RANK_KILLS, kSeed);
  std::mt19937 random(kSeed);
  for (unsigned run = 0; run < DTRUN_RANK_KILLS; ++run) {
    const auto victim = static_cast<int>(random() % 4);
    const std::chrono::microseconds delay(random() % kLongestDelay);
    const std::string token = launcher::unique_token();
    Command job({kDtrun, "--nproc_per_node=4", kMisbehave, "loop", "2", token, elements[run % 4],
                 ranks_of_a_machine[run % 3]});
    const pid_t pid = pid_of_rank(job, victim);
    ASSERT_GT(pid, 0) << "run " << run << ": " << job.finish().describe();
    const auto moment = std::chrono::steady_clock::now() + delay;
    while (std::chrono::steady_clock::now() < moment) ::sched_yield();
    ASSERT_EQ(::kill(pid, SIGKILL), 0);
    const CommandResult result = job.finish();
    const std::string number = std::to_string(victim);
    ASSERT_EQ(result.exit_code, 137) << "run " << run << ": " << result.describe();
    ASSERT_THAT(result.err, HasSubstr("rank      : " + number + " (local_rank: " + number + ")"))
        << "run " << run;
    ASSERT_THAT(result.err, HasSubstr("SIGKILL")) << "run " << run;
    ASSERT_TRUE(launcher::all_gone_within(token, testing_support::kPatience))
        << "run " << run << ": " << launcher::describe_processes_with(token);
  }
}

// Agent or guard dies while the ranks are in all_reduce after all_reduce.
void expect_nothing_left(bool kill_guard) {
  for (int run = 0; run < DTRUN_LAUNCHER_KILLS; ++run) {
    const std::string token = launcher::unique_token();
    Command job({kDtrun, "--nproc_per_node=4", kMisbehave, "loop", "2", token});
    ASSERT_TRUE(job.wait_for_output("has reduced"));
    ::kill(kill_guard ? launcher::wait_for_guard(job.pid()).guard : job.pid(), SIGKILL);
    if (kill_guard) {
      EXPECT_EQ(job.finish().exit_code, 125) << "run " << run;
    }
    EXPECT_TRUE(launcher::all_gone_within(token, testing_support::kPatience))
        << "run " << run << ": " << launcher::describe_processes_with(token);
    if (!kill_guard) job.finish();
  }
}

TEST(JobKillTest, NothingIsLeftWhenTheAgentDiesDuringACollective) {
  expect_nothing_left(/*kill_guard=*/false);
}

TEST(JobKillTest, NothingIsLeftWhenTheGuardDiesDuringACollective) {
  expect_nothing_left(/*kill_guard=*/true);
}

// A wrapper that closes descriptors (Python's subprocess), or whose own file has taken the number.
TEST(JobTest, RanksWhosePageWasClosedOrReplacedByAnotherFileWarnOnceAndGoOn) {
  for (const char* const what : {">&-", "</etc/passwd"}) {
    const CommandResult result = run_command(
        {kDtrun, "--nproc_per_node=2", "bash", "-c",
         "eval \"exec $DTRUN_JOB_PAGE_FD" + std::string(what) + "\"; exec " DTRUN_BIN "/hello"});
    EXPECT_EQ(result.exit_code, 0) << what << result.describe();
    EXPECT_THAT(result.err, HasSubstr("this rank goes on without dtrun's job page"));
    const auto first = result.err.find("is no job page"), last = result.err.rfind("is no job page");
    EXPECT_NE(first, last) << "each of the two ranks says so";
    EXPECT_EQ(result.err.find("is no job page", first + 1), last) << "once";
  }
}

TEST(JobTest, ARankThatThrowsIsTheOneReportedThoughItsPeersFailToo) {
  const CommandResult result = run_job({"throw", "1"});
  EXPECT_EQ(result.exit_code, 1) << result.describe();
  EXPECT_THAT(result.err, HasSubstr("the data is"));
}

TEST(JobTest, AClassThatIsNoneIsReportedByItsRowInTheWholeAndNoRankWaitsForOthers) {
  const CommandResult result = run_job({"wrong-class", "1"});
  EXPECT_EQ(result.exit_code, 1) << result.describe();
  EXPECT_LT(result.elapsed, testing_support::kPatience) << result.describe();
  EXPECT_THAT(result.err, HasSubstr("cross_entropy: row 3 has class 9")) << result.describe();
  EXPECT_THAT(result.err, names_rank(1)) << result.describe();
}

TEST(JobTest, ARankThatExitsBeforeInitFailsTheJobWithinASecondAndBothSidesAreNamed) {
  for (const char* code : {"0", "3"}) {
    testing_support::expect_promptness(std::chrono::seconds(2), [&] {  // with the start
      const CommandResult result = run_job({"exit-before-init", "2", code});
      EXPECT_NE(result.exit_code, 0) << result.describe();
      EXPECT_THAT(result.err, names_rank(2)) << result.describe();
      return result.elapsed;
    });
  }
}

TEST(JobTest, ARankThatExitsInsideACollectiveFailsTheJob) {
  for (const char* code : {"0", "7"}) {
    const CommandResult result = run_job({"exit-in-collective", "2"}, code);
    EXPECT_NE(result.exit_code, 0) << result.describe();
    EXPECT_LT(result.elapsed, testing_support::kPatience) << result.describe();
    EXPECT_THAT(result.err, names_rank(2)) << result.describe();
  }
}

TEST(JobTest, ARankThatLeavesWhileOthersNeedItIsNamedByThem) {
  const CommandResult result = run_job({"leave-early", "2"});
  EXPECT_NE(result.exit_code, 0) << result.describe();
  EXPECT_THAT(result.err, names_rank(2)) << result.describe();
  EXPECT_LT(result.elapsed, testing_support::kPatience);
}

TEST(JobTest, AVictimOnAnotherNodeFailsTheJobOnBothNodes) {
  const testing_support::OwnPort port;
  std::unique_ptr<Command> nodes[2];
  for (int node = 0; node < 2; ++node)
    nodes[node] = std::make_unique<Command>(std::vector<std::string>{
        kDtrun, "--nnodes=2", "--node_rank=" + std::to_string(node), "--master_addr=127.0.0.1",
        "--master_port=" + port.text(), kMisbehave, "leave-early", "0"});
  for (const auto& node : nodes) {
    const CommandResult result = node->finish();
    EXPECT_EQ(result.exit_code, 1) << result.describe();
  }
}

TEST(JobTest, TensorsOfDifferentShapeInOneAllReduceAreNamedOnBothSides) {
  const CommandResult result = run_job({"other-shape"});
  EXPECT_NE(result.exit_code, 0) << result.describe();
  EXPECT_THAT(result.err, HasSubstr("f32 x 4"));
  EXPECT_THAT(result.err, HasSubstr("f32 x 5"));
  EXPECT_THAT(result.err, HasSubstr("misbehave.cc:"));
}

TEST(JobTest, DifferentCollectivesAreNamedOnBothSides) {
  const CommandResult result = run_job({"other-operation"});
  EXPECT_NE(result.exit_code, 0) << result.describe();
  EXPECT_THAT(result.err, HasSubstr("barrier"));
  EXPECT_THAT(result.err, HasSubstr("all_reduce"));
  EXPECT_LT(result.elapsed, testing_support::kPatience);
}

TEST(JobTest, AnInterruptStopsAJobThatIsInACollective) {
  for (const int signal_number : {SIGINT, SIGTERM}) {
    Command job({kDtrun, "--nproc_per_node=4", kMisbehave, "loop"});
    ASSERT_TRUE(job.wait_for_output("has reduced"));
    job.signal(signal_number);
    const CommandResult result = job.finish();
    EXPECT_EQ(result.exit_code, 128 + signal_number) << result.describe();
    EXPECT_LT(result.elapsed.count(), 20.0);
  }
}

}  // namespace
}  // namespace dtrun::runtime
