// Cases of torchrun's own suite (its agents as processes), and of what it does not try, that no
// other test here has. The rest of them is in the tests of each part, and in
// tests/launcher_conformance.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <fstream>

#include "launcher/elastic_node.h"
#include "launcher/launcher_job.h"
#include "launcher/living_processes.h"
#include "support/own_port.h"

namespace dtrun::launcher {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing_support::Command;
using testing_support::CommandResult;

class AgentsTest : public testing::Test {
 protected:
  std::unique_ptr<Command> start(std::vector<std::string> options,
                                 std::vector<std::string> program = {kWorker}) {
    std::vector<std::string> words = {"sh",
                                      "-c",
                                      "exec \"$@\" 2>&1",
                                      "sh",
                                      DTRUN_BINARY,
                                      "--rdzv_backend=c10d",
                                      "--rdzv_endpoint=127.0.0.1:" + port_.text()};
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(), program.begin(), program.end());
    return std::make_unique<Command>(words, job_.options());
  }

  testing_support::OwnPort port_;
  LauncherJob job_;
};

// double_agent_fault_tolerance: one agent is killed and started again; both end with 0.
TEST_F(AgentsTest, AKilledAgentThatIsStartedAgainTakesPartAgain) {
  const std::vector<std::string> options = {"--nnodes=2", "--max_restarts=2", "-v"};
  const auto host = start(options);
  ASSERT_TRUE(host->wait_for_output("hosts the rendezvous"));
  const auto killed = start(options);
  ASSERT_EQ(next_place_among(*host, 2).restart, 0);
  ASSERT_EQ(next_place_among(*killed, 2).restart, 0);
  killed->signal(SIGKILL);
  const auto again = start(options);
  const Place place = next_place_among(*host, 2);
  EXPECT_EQ(place.restart, 1);
  EXPECT_EQ(next_place_among(*again, 2).restart, 1);
  finish_round(place);
  for (const auto* node : {&host, &again}) {
    const CommandResult result = (*node)->finish();
    EXPECT_EQ(result.exit_code, 0) << result.describe();
  }
}

// double_agent_elastic: of one to two agents one is killed; the other ends with 0.
TEST_F(AgentsTest, WhenOneOfTwoElasticAgentsIsKilledTheOtherEndsWell) {
  const std::vector<std::string> options = {"--nnodes=1:2", "--max_restarts=2", "-v",
                                            "--rdzv_conf=last_call_timeout=0.3"};
  const auto host = start(options);
  ASSERT_TRUE(host->wait_for_output("hosts the rendezvous"));
  const auto killed = start(options);
  ASSERT_EQ(next_place_among(*killed, 2).nodes, 2);
  ASSERT_EQ(next_place_among(*host, 2).nodes, 2);
  killed->signal(SIGKILL);
  const Place alone = next_place_among(*host, 1);
  ASSERT_EQ(alone.nodes, 1);
  finish_round(alone);
  const CommandResult result = host->finish();
  EXPECT_EQ(result.exit_code, 0) << result.describe();
}

// correct_rank_assignment_heterogeneous: roles of several agents with different numbers of ranks.
TEST_F(AgentsTest, RanksAreContiguousInTheWorldAndInTheirRoles) {
  const std::pair<const char*, int> agents[] = {
      {"master", 1}, {"trainer", 2}, {"trainer", 3}, {"ps", 2}};
  std::vector<std::unique_ptr<Command>> nodes;
  for (const auto& [role, ranks] : agents)
    nodes.push_back(start(
        {"--nnodes=4", std::string("--role=") + role, "--nproc_per_node=" + std::to_string(ranks)},
        {"sh", "-c", "echo at $ROLE_NAME $ROLE_RANK/$ROLE_WORLD_SIZE $RANK/$WORLD_SIZE"}));
  std::vector<std::string> roles;
  std::vector<int> ranks;
  for (const auto& node : nodes) {
    const CommandResult result = node->finish();
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    std::vector<int> of_agent, in_role;
    for (const std::string& line : result.sorted_lines()) {
      char role[32] = "";
      int role_rank = 0, role_size = 0, rank = 0, size = 0;
      if (std::sscanf(line.c_str(), "at %31s %d/%d %d/%d", role, &role_rank, &role_size, &rank,
                      &size) != 5)
        continue;
      EXPECT_EQ(size, 8);
      roles.push_back(std::string(role) + ' ' + std::to_string(role_rank) + '/' +
                      std::to_string(role_size));
      ranks.push_back(rank);
      of_agent.push_back(rank);
      in_role.push_back(role_rank);
    }
    for (std::vector<int>* list : {&of_agent, &in_role}) {
      std::ranges::sort(*list);
      EXPECT_EQ(list->back() - list->front() + 1, static_cast<int>(list->size()));
    }
  }
  std::ranges::sort(roles);
  EXPECT_THAT(roles, ElementsAre("master 0/1", "ps 0/2", "ps 1/2", "trainer 0/5", "trainer 1/5",
                                 "trainer 2/5", "trainer 3/5", "trainer 4/5"));
  std::ranges::sort(ranks);
  EXPECT_THAT(ranks, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

// The agents speak for themselves: a rank that stands still is nobody's loss, however long.
TEST_F(AgentsTest, ARankThatIsStoppedIsWaitedForAndBlamedForNothing) {
  const std::vector<std::string> options = {
      "--nnodes=2", "-v", "--rdzv_conf=keep_alive_interval=0.4,keep_alive_max_attempt=5"};
  const auto host = start(options);
  ASSERT_TRUE(host->wait_for_output("hosts the rendezvous"));
  const auto member = start(options);
  const Place place = next_place_among(*host, 2), stopped = next_place_among(*member, 2);
  const pid_t rank = rank_called(stopped.pid, member->pid());
  ASSERT_GT(rank, 0);
  ::kill(rank, SIGSTOP);
  finish_round(place);
  // The rank of the host ends meanwhile, and a window of silence passes.
  ASSERT_TRUE(host->wait_for_output("all ranks of this node have ended well"));
  testing_support::run_command({"sleep", "2.2"});
  std::string stat;
  std::getline(std::ifstream("/proc/" + std::to_string(rank) + "/stat"), stat);
  EXPECT_THAT(stat, HasSubstr(") T "));
  ::kill(rank, SIGCONT);
  for (const auto* node : {&host, &member}) {
    const CommandResult result = (*node)->finish();
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    EXPECT_THAT(result.out, testing::AllOf(Not(HasSubstr("FAILED")), Not(HasSubstr("is gone"))));
  }
}

TEST(CrowdTest, FiveHundredAndTwelveRanksStartAndEndWell) {
  const CommandResult result = run_dtrun({"--nproc_per_node=512", "sh", "-c", "echo $RANK"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  std::vector<int> ranks;
  for (const std::string& line : result.sorted_lines()) ranks.push_back(std::stoi(line));
  std::ranges::sort(ranks);
  ASSERT_EQ(ranks.size(), 512u);
  for (int rank = 0; rank < 512; ++rank) EXPECT_EQ(ranks[static_cast<std::size_t>(rank)], rank);
}

// A hundred in all; fewer under sanitizers, where each takes its time.
TEST(CrowdTest, JobsFourAtATimeNeverTakeEachOthersPort) {
  const CommandResult result = testing_support::run_command(
      {"sh", "-c",
       "for i in $(seq " + std::to_string(DTRUN_JOBS_IN_A_ROW) +
           "); do "
           "for option in --standalone --nnodes=1 --rdzv_backend=static --rdzv_id=a; do "
           "{ $0 $option true || echo failed $?; } & done; wait; done",
       DTRUN_BINARY});
  EXPECT_EQ(result.out + result.err, "");
}

}  // namespace
}  // namespace dtrun::launcher
