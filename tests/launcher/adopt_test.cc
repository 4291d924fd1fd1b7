// --adopt: a dtrun for each rank that an engine has started. Two machines of two tasks each, all of
// them on this one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "dtrun/base/socket.h"
#include "dtrun/rendezvous/master_address.h"
#include "launcher/launcher_job.h"

namespace dtrun::launcher {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing_support::Command;
using testing_support::CommandResult;

// By which other machines would come: the loopback is refused. Empty: there is none.
std::string own_address() {
  for (const std::string& address : base::interface_addresses())
    if (!rendezvous::is_loopback(address) && address.find(':') == std::string::npos) return address;
  return "";
}

class AdoptTest : public testing::Test {
 protected:
  void SetUp() override {
    if (own_address().empty()) GTEST_SKIP() << "this machine has no IPv4 address but the loopback";
  }
};

// As mpirun sets them.
std::map<std::string, std::optional<std::string>> variables(int rank, int ranks, int on_node,
                                                            int here, const std::string& port) {
  return {{"OMPI_COMM_WORLD_RANK", std::to_string(rank)},
          {"OMPI_COMM_WORLD_SIZE", std::to_string(ranks)},
          {"OMPI_COMM_WORLD_LOCAL_RANK", std::to_string(on_node)},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", std::to_string(here)},
          {"MASTER_ADDR", own_address()},
          {"MASTER_PORT", port}};
}

std::string free_port() {
  return std::to_string(base::local_port(base::listen_tcp(own_address(), 0).get()));
}

// What all of them say. @param here the tasks of each task's machine
std::vector<CommandResult> run_adopted(const std::vector<int>& here,
                                       const std::vector<std::string>& words) {
  LauncherJob job;
  const std::string port = free_port();
  std::vector<std::unique_ptr<Command>> dtruns;
  for (std::size_t rank = 0; rank < here.size(); ++rank) {
    const int number = static_cast<int>(rank);
    auto options = job.options();
    for (auto& [name, value] :
         variables(number, static_cast<int>(here.size()), number % here[rank], here[rank], port))
      options.environment[name] = value;
    std::vector<std::string> line = {DTRUN_BINARY, "--adopt"};
    line.insert(line.end(), words.begin(), words.end());
    dtruns.push_back(std::make_unique<Command>(line, options));
  }
  std::vector<CommandResult> results;
  for (const auto& dtrun : dtruns) results.push_back(dtrun->finish());
  return results;
}

std::vector<std::string> outputs(const std::vector<CommandResult>& results) {
  std::vector<std::string> all;
  for (const CommandResult& result : results) all.push_back(result.out);
  return all;
}

TEST_F(AdoptTest, LinesHaveTheNumberOfTheMachine) {
  EXPECT_THAT(outputs(run_adopted({2, 2, 2, 2},
                                  {"--tag=always", "--tag-template=${node}.${rank}.${local_rank} ",
                                   "sh", "-c", "echo here"})),
              ElementsAre("0.0.0 here\n", "0.1.1 here\n", "1.2.0 here\n", "1.3.1 here\n"));
}

TEST_F(AdoptTest, ObjectsAndMessagesHaveTheNumberOfTheMachine) {
  const std::vector<CommandResult> results =
      run_adopted({2, 2, 2, 2}, {"--log-format=json", "-v", "sh", "-c", "echo here"});
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    EXPECT_EQ(results[rank].exit_code, 0) << results[rank].describe();
    const std::string node = std::to_string(rank / 2);
    EXPECT_THAT(results[rank].out, HasSubstr("\"node\":" + node + ","));
    EXPECT_THAT(results[rank].err, HasSubstr("\"node\":" + node + ","));
    EXPECT_THAT(results[rank].err, HasSubstr("round 0: node " + node + " ("));
  }
}

TEST_F(AdoptTest, AFailureIsToldWithTheNumberOfTheMachine) {
  const std::vector<CommandResult> results =
      run_adopted({2, 2, 2, 2}, {"sh", "-c", "test $RANK != 3 || exit 7; exec sleep 60"});
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    EXPECT_EQ(results[rank].exit_code, 7) << results[rank].describe();
    // It says so to the others.
    const char* const told = rank == 3 ? "sh FAILED" : "rank 3 on node 1 (";
    EXPECT_THAT(results[rank].err, HasSubstr(told));
  }
}

// A machine of two and one of one: mpirun does not tell which is which.
TEST_F(AdoptTest, WhereTheMachineIsNotKnownLinesHaveTheNumberOfTheDtrun) {
  EXPECT_THAT(outputs(run_adopted({2, 2, 1}, {"--tag=always", "--tag-template=${node}.${rank} ",
                                              "sh", "-c", "echo here"})),
              ElementsAre("0.0 here\n", "1.1 here\n", "2.2 here\n"));
}

}  // namespace
}  // namespace dtrun::launcher
