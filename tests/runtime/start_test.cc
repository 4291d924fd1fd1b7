// How a worker comes into its world: by hand, alone, with half an environment, with a wrong one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <boost/json/object.hpp>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <vector>

#include "dtrun/base/json.h"
#include "dtrun/base/socket.h"
#include "runtime/programs.h"
#include "support/command.h"
#include "support/own_port.h"
#include "support/promptness.h"

namespace dtrun::runtime {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing_support::Command;
using testing_support::CommandOptions;
using testing_support::CommandResult;
using testing_support::run_command;

// Jobs started by hand must name one.
std::string free_port() {
  static std::vector<testing_support::OwnPort> ports;  // each is kept to the test's end
  return ports.emplace_back().text();
}

CommandOptions by_hand(int rank, int world_size, const std::string& port) {
  CommandOptions options;
  options.environment = {{"RANK", std::to_string(rank)},
                         {"WORLD_SIZE", std::to_string(world_size)},
                         {"MASTER_ADDR", "127.0.0.1"},
                         {"MASTER_PORT", port}};
  return options;
}

// In the order in which they came.
testing::Matcher<std::string> names_both_sizes() {
  return testing::AnyOf(HasSubstr("rank 1 says 3, rank 0 says 2"),
                        HasSubstr("rank 0 says 2, rank 1 says 3"));
}

TEST(StartTest, WithoutAnEnvironmentAllMissingNamesAreListedAndTheRemedyIsGiven) {
  const CommandResult result = run_command({kHello});
  EXPECT_EQ(result.exit_code, 1) << result.describe();
  for (const char* name :
       {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "dtrun --nproc_per_node="})
    EXPECT_THAT(result.err, HasSubstr(name));
}

TEST(StartTest, OnlyTheNamesThatAreMissingAreListed) {
  CommandOptions options = by_hand(0, 1, "1");
  options.environment["MASTER_ADDR"] = std::nullopt;
  const CommandResult result = run_command({kHello}, options);
  EXPECT_EQ(result.exit_code, 1) << result.describe();
  EXPECT_THAT(result.err, HasSubstr("MASTER_ADDR"));
  EXPECT_THAT(result.err, Not(HasSubstr("MASTER_PORT,")));
}

TEST(StartTest, AloneWithWorldSizeOneByHand) {
  const CommandResult result = run_command({kHello}, by_hand(0, 1, free_port()));
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_EQ(result.out, "hello from rank 0 (local rank 0) of 1\n");
}

TEST(StartTest, TwoRanksByHandMeetAtTheStoreOfRankZero) {
  const std::string port = free_port();
  Command first({kHello}, by_hand(0, 2, port));
  Command second({kHello}, by_hand(1, 2, port));
  const CommandResult results[] = {first.finish(), second.finish()};
  for (const CommandResult& result : results) EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_EQ(results[1].out, "hello from rank 1 (local rank 1) of 2\n");
}

TEST(StartTest, RanksWithDifferentWorldSizesBothFailAndBothValuesAreNamed) {
  const std::string port = free_port();
  Command first({kHello}, by_hand(0, 2, port));
  Command second({kHello}, by_hand(1, 3, port));
  const CommandResult results[] = {first.finish(), second.finish()};
  for (const CommandResult& result : results) {
    EXPECT_NE(result.exit_code, 0) << result.describe();
    EXPECT_LT(result.elapsed.count(), 30.0);
    EXPECT_FALSE(result.killed_at_limit);
  }
  // Rank 1 may find the store gone, which rank 0 held.
  EXPECT_THAT(results[0].err, names_both_sizes());
}

TEST(StartTest, UnderDtrunRanksWithDifferentWorldSizesFailTheJobAndBothValuesAreNamed) {
  const CommandResult result =
      run_command({DTRUN_BIN "/dtrun", "--nproc_per_node=2", "sh", "-c",
                   "export WORLD_SIZE=$((WORLD_SIZE + RANK)); exec " + kHello});
  EXPECT_EQ(result.exit_code, 1) << result.describe();
  EXPECT_THAT(result.err, names_both_sizes());
  EXPECT_LT(result.elapsed, testing_support::kPatience);
}

TEST(StartTest, ASecondRankZeroIsToldOfThePortAndWhoMayHoldIt) {
  const base::UniqueFd holder = base::listen_tcp("127.0.0.1", 0);
  const std::string port = std::to_string(base::local_port(holder.get()));
  const CommandResult result = run_command({kHello}, by_hand(0, 2, port));
  EXPECT_EQ(result.exit_code, 1) << result.describe();
  EXPECT_THAT(result.err, HasSubstr("rank 0 cannot serve the job's store at 127.0.0.1:" + port));
  EXPECT_THAT(result.err, HasSubstr("EADDRINUSE"));
  EXPECT_THAT(result.err, HasSubstr("another process that is rank 0 of this job"));
}

TEST(StartTest, TwoProcessesThatAreTheSameRankFailAtOnceWithAllWhoWaitForTheMissingOne) {
  const std::string port = free_port();
  Command ranks[] = {Command({kHello}, by_hand(0, 3, port)), Command({kHello}, by_hand(1, 3, port)),
                     Command({kHello}, by_hand(1, 3, port))};
  int told = 0;
  for (Command& rank : ranks) {
    const CommandResult result = rank.finish();
    EXPECT_EQ(result.exit_code, 1) << result.describe();
    EXPECT_LT(result.elapsed.count(), 30.0);
    told += testing::Value(result.err, HasSubstr("two processes are rank 1 of group 'world'"));
  }
  // Whoever comes last may find the store gone, which rank 0 held.
  EXPECT_GE(told, 1);
}

TEST(StartTest, AnImpossibleRankIsRefusedByName) {
  const CommandResult result = run_command({kHello}, by_hand(3, 2, "29500"));
  EXPECT_EQ(result.exit_code, 1) << result.describe();
  EXPECT_THAT(result.err, HasSubstr("RANK"));
}

// dtrun's own variable counts first, and a wrong name is no reason to take the other.
TEST(InterfaceTest, AnInterfaceThatIsNotThereFailsByNameAndGloosIsReadOnlyWithoutDtruns) {
  const std::string dtrun = DTRUN_BIN "/dtrun";
  CommandOptions options;
  options.environment = {{"DTRUN_SOCKET_IFNAME", "nosuch0"}, {"GLOO_SOCKET_IFNAME", "lo"}};
  const CommandResult wrong = run_command({dtrun, "--nproc_per_node=2", kHello}, options);
  EXPECT_EQ(wrong.exit_code, 1) << wrong.describe();
  EXPECT_THAT(wrong.err, HasSubstr("DTRUN_SOCKET_IFNAME=nosuch0: no such interface of "));
  options.environment = {{"DTRUN_SOCKET_IFNAME", "lo"}, {"GLOO_SOCKET_IFNAME", "nosuch0"}};
  const CommandResult right = run_command({dtrun, "--nproc_per_node=2", kHello}, options);
  EXPECT_EQ(right.exit_code, 0) << right.describe();
  options.environment = {{"DTRUN_SOCKET_IFNAME", std::nullopt}, {"GLOO_SOCKET_IFNAME", "nosuch0"}};
  const CommandResult gloos = run_command({dtrun, "--nproc_per_node=2", kHello}, options);
  EXPECT_EQ(gloos.exit_code, 1) << gloos.describe();
  EXPECT_THAT(gloos.err, HasSubstr("GLOO_SOCKET_IFNAME=nosuch0: no such interface of "));
}

// All ranks of a world that meets as `method` says.
void expect_meeting(const std::string& method, int world_size, CommandOptions options = {}) {
  std::vector<std::unique_ptr<Command>> ranks;
  const std::string size = std::to_string(world_size);
  for (int rank = 0; rank < world_size; ++rank)
    ranks.push_back(std::make_unique<Command>(
        std::vector<std::string>{kMeet, method, std::to_string(rank), size}, options));
  for (int rank = 0; rank < world_size; ++rank) {
    const CommandResult result = ranks[static_cast<std::size_t>(rank)]->finish();
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    EXPECT_EQ(result.out,
              "rank " + std::to_string(rank) + " of " + size + ": tensor([" + size + ".])\n");
    EXPECT_EQ(result.err, "");
  }
}

TEST(InitMethodStartTest, RanksMeetByTcpAndByAnEnvironmentThatTheProgramSets) {
  expect_meeting("tcp://localhost:" + free_port(), 2);
  expect_meeting("setenv:" + free_port(), 2);
}

TEST(InitMethodStartTest, RanksMeetAtAFileThatIsGoneAfterThemAndWhateverAnEarlierJobLeftInIt) {
  const std::string path = testing::TempDir() + "dtrun_meet_" + std::to_string(::getpid());
  expect_meeting("file://" + path, 3);
  EXPECT_FALSE(std::filesystem::exists(path));
  {
    Command alone({kMeet, "file://" + path, "0", "2"});
    while (!std::filesystem::exists(path) || std::filesystem::file_size(path) < 100)
      ::sched_yield();
  }  // killed
  EXPECT_TRUE(std::filesystem::exists(path));
  expect_meeting("file://" + path, 2);
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(InitMethodStartTest, UnderDtrunAFileServesAsWell) {
  const std::string path = testing::TempDir() + "dtrun_meet_" + std::to_string(::getpid());
  const CommandResult result =
      run_command({DTRUN_BIN "/dtrun", "--nproc_per_node=2", "sh", "-c",
                   "exec " + kMeet + " file://" + path + " $RANK $WORLD_SIZE"});
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_THAT(result.out, HasSubstr("rank 1 of 2: tensor([2.])"));
}

TEST(InitMethodStartTest, WhatIsMissingComesBeforeWhatIsNotBuiltIn) {
  const CommandResult result = run_command({kMeet, "env://", "0", "1", "nccl"});
  EXPECT_EQ(result.exit_code, 1) << result.describe();
  EXPECT_THAT(result.err, HasSubstr("the environment lacks MASTER_ADDR, MASTER_PORT\n"));
  EXPECT_THAT(result.err, HasSubstr("[rank0]: "));
  EXPECT_THAT(result.err, HasSubstr("dtrun --nproc_per_node="));
  EXPECT_THAT(result.err, Not(HasSubstr("nccl")));
}

TEST(InitMethodStartTest, AMethodOrPlaceThatCannotBeEndsTheProgramByName) {
  const std::vector<std::vector<std::string>> cases = {
      {"zoo://n0:2181", "0", "1", "there is no kind 'zoo'"},
      {"file:///no/such/folder/store", "0", "1", "/no/such/folder/store"},
      {"tcp://127.0.0.1:1", "2", "2", "rank 2 and world_size 2"},
  };
  for (const auto& arguments : cases) {
    const CommandResult result = run_command({kMeet, arguments[0], arguments[1], arguments[2]});
    EXPECT_EQ(result.exit_code, 1) << result.describe();
    EXPECT_THAT(result.err, HasSubstr(arguments[3]));
  }
}

TEST(InitMethodStartTest, UnderMpirunOnOneMachineNothingNeedsToBeSaid) {
  if (run_command({"sh", "-c", "command -v mpirun.openmpi"}).exit_code != 0)
    GTEST_SKIP() << "Open MPI's mpirun is not here";
  // Two mpiruns that make and remove the one in /tmp at once: "File exists".
  std::string folder = testing::TempDir() + "dtrun_mpi_XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const CommandResult result =
      run_command({"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--mca",
                   "orte_tmpdir_base", folder, "-n", "2", kHello});
  std::filesystem::remove_all(folder);
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_EQ(result.sorted_lines(),
            (std::vector<std::string>{"hello from rank 0 (local rank 0) of 2",
                                      "hello from rank 1 (local rank 1) of 2"}));
}

class EscapedExceptionTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "dtrun_error_XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  CommandResult run(const std::string& how) {
    CommandOptions options = by_hand(0, 1, free_port());
    options.environment["TORCHELASTIC_ERROR_FILE"] = folder_ + "/error.json";
    return run_command({kMisbehave, how, "0"}, options);
  }
  std::string folder_;
};

TEST_F(EscapedExceptionTest, ItsTextGoesToStderrLineByLineAndToErrorJson) {
  const CommandResult result = run("throw");
  EXPECT_EQ(result.exit_code, 1) << result.describe();
  EXPECT_THAT(result.err, HasSubstr("[rank0]: std::runtime_error: the data is\n[rank0]: bad\n"));
  const auto report = base::read_json_file(folder_ + "/error.json");
  EXPECT_EQ(report.at("message").at("message").as_string(), "std::runtime_error: the data is\nbad");
  EXPECT_FALSE(report.at("message").at("extraInfo").at("timestamp").as_string().empty());
}

TEST_F(EscapedExceptionTest, WhatIsNoStdExceptionIsNamedByItsType) {
  const CommandResult result = run("throw-int");
  EXPECT_EQ(result.exit_code, 1) << result.describe();
  EXPECT_THAT(result.err, HasSubstr("[rank0]: an exception of type int\n"));
}

TEST_F(EscapedExceptionTest, AFullDiskUnderErrorJsonIsSaidAndHidesNothing) {
  if (::mount("tmpfs", folder_.c_str(), "tmpfs", 0, "size=4k,nr_inodes=1") != 0)
    GTEST_SKIP() << "needs root, to mount a full file system";
  const CommandResult result = run("throw");
  EXPECT_EQ(::umount(folder_.c_str()), 0);
  EXPECT_EQ(result.exit_code, 1) << result.describe();
  EXPECT_THAT(result.err, HasSubstr("the data is"));
  EXPECT_THAT(result.err, HasSubstr("could not be saved"));
  EXPECT_THAT(result.err, HasSubstr("ENOSPC"));
}

// A connection or a mapping per peer would take more.
TEST(StartTest, ManyRanksOfANodeStartWithFewDescriptors) {
  const CommandResult result = run_command(
      {"sh", "-c", "ulimit -S -n 40 && exec " DTRUN_BIN "/dtrun --nproc_per_node=120 " + kHello});
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  for (int rank = 0; rank < 120; ++rank)
    EXPECT_THAT(result.out, HasSubstr("hello from rank " + std::to_string(rank) + " "));
}

}  // namespace
}  // namespace dtrun::runtime
