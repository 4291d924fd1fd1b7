// The tutorial's own line on two Slurm nodes: srun dtrun --nnodes=2 --nproc_per_node=2
// --rdzv_backend c10d --rdzv_endpoint HOST:12345 PROGRAM; and what goes wrong with it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>

#include "support/slurm_lab.h"

namespace dtrun {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing_support::Command;
using testing_support::CommandResult;
using testing_support::SlurmLab;

class SlurmTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { lab_ = std::make_unique<SlurmLab>(2); }
  static void TearDownTestSuite() { lab_.reset(); }
  void SetUp() override { REQUIRE_SLURM(*lab_); }

  // The line with other options before the program.
  static std::vector<std::string> line(std::vector<std::string> rest) {
    std::vector<std::string> words = lab_->launch_line();
    words.insert(words.end(), rest.begin(), rest.end());
    return words;
  }

  // Nothing of a job is left on either node; processes of a job that has just ended may be about to
  // go.
  static void expect_nothing_left(const std::string& program) {
    for (const int node : {1, 2}) {
      const CommandResult left =
          lab_->run_on(node, {DTRUN_BIN "/await_ends", "5", "/" + program, "/dtrun "});
      EXPECT_EQ(left.exit_code, 0) << "node" << node << ": " << left.describe();
    }
  }

  static std::unique_ptr<SlurmLab> lab_;
};

std::unique_ptr<SlurmLab> SlurmTest::lab_;

TEST_F(SlurmTest, TheTutorialsLineRunsOneWorldOfFourRanks) {
  const CommandResult shell = lab_->run_on_all(
      {"sh", "-c", "echo $RANK $WORLD_SIZE $GROUP_RANK $(hostname) $MASTER_ADDR:$MASTER_PORT"});
  EXPECT_EQ(shell.exit_code, 0) << shell.describe();
  EXPECT_EQ(shell.sorted_lines(),
            (std::vector<std::string>{"0 4 0 node1 node1:12345", "1 4 0 node1 node1:12345",
                                      "2 4 1 node2 node1:12345", "3 4 1 node2 node1:12345"}));
  const CommandResult transports = lab_->run_on_all({DTRUN_BIN "/transports"});
  EXPECT_EQ(transports.exit_code, 0) << transports.describe();
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_THAT(transports.out, HasSubstr("rank " + std::to_string(rank) +
                                          " sum right shared memory some tcp some\n"))
        << transports.describe();
}

TEST_F(SlurmTest, TheClustersMungeKeepsOthersOut) {
  const std::string realm = "DTRUN_MUNGE_SOCKET=" + lab_->folder() + "/slurm/munge.sock";
  const auto start = [&](int node, const std::string& conf) {
    return lab_->start_on(node, {"env", realm, "sh", "-c", "exec \"$@\" 2>&1", "sh",
                                 DTRUN_BIN "/dtrun", "-v", "--nnodes=2", "--rdzv_backend=c10d",
                                 "--rdzv_endpoint=node1:12345", conf, DTRUN_BIN "/hello"});
  };
  const auto head = start(1, "--rdzv_conf=token=munge");
  ASSERT_TRUE(head->wait_for_output("hosts the rendezvous"));
  const CommandResult stranger = start(2, "--rdzv_conf=token=none")->finish();
  EXPECT_EQ(stranger.exit_code, 64) << stranger.describe();
  EXPECT_THAT(stranger.out, HasSubstr("this job demands a token of munge"));
  // Where munge runs it is taken without a word.
  const CommandResult member = start(2, "--rdzv_id=none")->finish();
  for (const CommandResult& result : {member, head->finish()}) {
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    EXPECT_THAT(result.out, HasSubstr(" of 2"));
  }
  // The same in a step.
  std::vector<std::string> step = {"env", realm};
  for (std::string& word : line({"--rdzv_conf=token=munge", DTRUN_BIN "/hello"}))
    step.push_back(std::move(word));
  const CommandResult all = lab_->run(step);
  EXPECT_EQ(all.exit_code, 0) << all.describe();
  EXPECT_THAT(all.out, HasSubstr("of 4")) << all.describe();
}

TEST_F(SlurmTest, TheTutorialsLineMayBeElastic) {
  // With both nodes there at once; and one of them alone, when the last call is over.
  std::vector<std::string> words = lab_->launch_line();
  for (std::string& word : words)
    if (word == "--nnodes=2") word = "--nnodes=1:2";
  for (const char* word : {"--rdzv_conf=last_call_timeout=20", DTRUN_BIN "/hello"})
    words.emplace_back(word);
  const CommandResult both = lab_->run(words);
  EXPECT_EQ(both.exit_code, 0) << both.describe();
  EXPECT_THAT(both.out, HasSubstr("hello from rank 3 (local rank 1) of 4")) << both.describe();
  EXPECT_LT(both.elapsed.count(), 15.0);
  // One line of each node says who hosts.
  EXPECT_THAT(both.err, AllOf(HasSubstr("node1 hosts the rendezvous at node1:12345"),
                              HasSubstr("node2 joins the rendezvous at node1:12345: node1 (")));
  const CommandResult alone = lab_->run_on(
      1, {DTRUN_BIN "/dtrun", "--nnodes=1:2", "--nproc_per_node=2", "--rdzv_backend=c10d",
          "--rdzv_endpoint=node1:12345", "--rdzv_conf=last_call_timeout=0.1", DTRUN_BIN "/hello"});
  EXPECT_EQ(alone.exit_code, 0) << alone.describe();
  EXPECT_THAT(alone.out, HasSubstr("of 2")) << alone.describe();
}

TEST_F(SlurmTest, AnEndpointOnAMachineWithoutAJobsNodeIsGivenUpSoon) {
  std::vector<std::string> words = lab_->launch_line();
  words.back() = "head:12345";
  words.emplace_back("true");
  const CommandResult result = lab_->run(words);
  EXPECT_EQ(result.exit_code, 69) << result.describe();
  EXPECT_THAT(result.err, AllOf(HasSubstr("cannot reach head:12345 for 1"),
                                HasSubstr("no name of this Slurm step's nodes, node[1-2]")));
  EXPECT_LT(result.elapsed.count(), 20.0);
}

TEST_F(SlurmTest, InsideAStepNoOptionIsNeeded) {
  const std::vector<std::string> program = {
      DTRUN_BIN "/dtrun", "--nproc_per_node=2", "sh", "-c",
      "echo $RANK $WORLD_SIZE $GROUP_RANK $(hostname) $MASTER_ADDR"};
  std::vector<std::string> words = {"srun", "-N2", "--ntasks-per-node=1"};
  words.insert(words.end(), program.begin(), program.end());
  const CommandResult result = lab_->run(words);
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_EQ(result.sorted_lines(),
            (std::vector<std::string>{"0 4 0 node1 node1", "1 4 0 node1 node1", "2 4 1 node2 node1",
                                      "3 4 1 node2 node1"}))
      << result.describe();
}

TEST_F(SlurmTest, TwoTasksOnANodeAreNotTwoWorlds) {
  const CommandResult result =
      lab_->run({"srun", "-N1", "-n2", "--overcommit", DTRUN_BIN "/dtrun", "true"});
  EXPECT_EQ(result.exit_code, 64) << result.describe();
  EXPECT_THAT(result.err, HasSubstr("has started 2 dtruns on this node")) << result.describe();
}

TEST_F(SlurmTest, AnExampleOfFourRanksPrintsOnTwoNodesWhatItPrintsOnOne) {
  for (const char* program :
       {DTRUN_BIN "/full_tensor_example", DTRUN_BIN "/gather_shards_and_concat"}) {
    const CommandResult two_nodes = lab_->run_on_all({program});
    EXPECT_EQ(two_nodes.exit_code, 0) << two_nodes.describe();
    const CommandResult one_node =
        lab_->run_on(1, {DTRUN_BIN "/dtrun", "--nproc_per_node=4", program});
    EXPECT_EQ(two_nodes.sorted_lines(), one_node.sorted_lines()) << two_nodes.describe();
    EXPECT_FALSE(two_nodes.out.empty());
  }
  EXPECT_EQ(lab_->run_on_all({DTRUN_BIN "/hello"}).sorted_lines(),
            (std::vector<std::string>{
                "hello from rank 0 (local rank 0) of 4", "hello from rank 1 (local rank 1) of 4",
                "hello from rank 2 (local rank 0) of 4", "hello from rank 3 (local rank 1) of 4"}));
}

TEST_F(SlurmTest, TheLastNodeCanHostAndIsNodeZero) {
  std::vector<std::string> words = lab_->launch_line(1);
  words.back() = "node2";
  for (const char* word : {"sh", "-c", "echo $RANK $(hostname) $MASTER_ADDR:$MASTER_PORT"})
    words.emplace_back(word);
  const CommandResult result = lab_->run(words);
  EXPECT_EQ(result.sorted_lines(),
            (std::vector<std::string>{"0 node2 node2:29400", "1 node1 node2:29400"}))
      << result.describe();
}

TEST_F(SlurmTest, ANameThatMeansTheLoopbackOnItsOwnMachineStillServesTheOthers) {
  // Debian's installer writes 127.0.1.1 for the machine's own name. In place: the file is mounted.
  const std::string path = lab_->folder() + "/host1/hosts";
  std::ifstream in(path);
  const std::string before((std::istreambuf_iterator<char>(in)), {});
  std::ofstream(path) << "127.0.0.1 localhost\n127.0.1.1 node1\n10.88.0.2 node2\n";
  const CommandResult result = lab_->run_on_all({DTRUN_BIN "/transports"});
  std::ofstream(path) << before;
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_THAT(result.out, AllOf(HasSubstr("rank 0 sum right"), HasSubstr("rank 3 sum right")));
}

TEST_F(SlurmTest, ARankKilledOnOneNodeIsNamedOnBothAndNothingIsLeft) {
  const CommandResult result =
      lab_->run_on_all({DTRUN_BIN "/misbehave", "kill-in-collective", "3"});
  EXPECT_EQ(result.exit_code, 137) << result.describe();
  EXPECT_THAT(result.err, AllOf(HasSubstr("rank      : 3 (local_rank: 1)"),
                                HasSubstr("rank 3 on node 1 (node2) failed: SIGKILL")))
      << result.describe();
  EXPECT_LT(result.elapsed.count(), 20.0);
  expect_nothing_left("misbehave");
}

TEST_F(SlurmTest, ACancelledJobLeavesNothing) {
  std::vector<std::string> words = line({DTRUN_BIN "/misbehave", "loop"});
  words.insert(words.begin() + 1, "--job-name=to_cancel");
  const auto job = lab_->start(words);
  ASSERT_TRUE(job->wait_for_output("has reduced"));
  EXPECT_EQ(lab_->run({"scancel", "--name=to_cancel"}).exit_code, 0);
  const CommandResult result = job->finish();
  EXPECT_NE(result.exit_code, 0) << result.describe();
  EXPECT_LT(result.elapsed.count(), 20.0);
  expect_nothing_left("misbehave");
}

TEST_F(SlurmTest, ANodeThatVanishesStopsTheOtherWithItsName) {
  const auto first =
      lab_->start_on(1, {DTRUN_BIN "/dtrun", "--nnodes=2", "--rdzv_backend=c10d",
                         "--rdzv_endpoint=node1:12346", DTRUN_BIN "/misbehave", "loop"});
  const auto second =
      lab_->start_on(2, {DTRUN_BIN "/dtrun", "--nnodes=2", "--rdzv_backend=c10d",
                         "--rdzv_endpoint=node1:12346", DTRUN_BIN "/misbehave", "loop"});
  ASSERT_TRUE(first->wait_for_output("has reduced") && second->wait_for_output("has reduced"));
  lab_->run_on(2, {"pkill", "-KILL", "-f", "/[d]trun "});
  const CommandResult result = first->finish();
  EXPECT_NE(result.exit_code, 0) << result.describe();
  EXPECT_THAT(result.err, HasSubstr("node 1 (node2)")) << result.describe();
  second->finish();
  expect_nothing_left("misbehave");
}

TEST_F(SlurmTest, AnEndpointThatIsNoNodeOfTheJobIsSaidOnBoth) {
  std::vector<std::string> words = lab_->launch_line();
  words.back() = "head:12345";
  for (const char* word : {"--rdzv_conf=join_timeout=1", "true"}) words.emplace_back(word);
  const CommandResult result = lab_->run(words);
  EXPECT_EQ(result.exit_code, 69) << result.describe();
  for (const char* text : {"no dtrun hosts the rendezvous: cannot reach head:12345 for 1",
                           "Connection refused; head (10.88.0.254) is no address of this machine "
                           "(127.0.0.1, 10.88.0.1",
                           "(127.0.0.1, 10.88.0.2"})
    EXPECT_THAT(result.err, HasSubstr(text));
  words = lab_->launch_line();
  words.back() = "nodde1:12345";
  words.insert(words.end(), {"--join_timeout=0.2", "true"});
  const CommandResult unknown = lab_->run(words);
  EXPECT_EQ(unknown.exit_code, 69) << unknown.describe();
  EXPECT_THAT(unknown.err, AllOf(HasSubstr("'nodde1' of --rdzv_endpoint is not known on node1"),
                                 HasSubstr("is not known on node2")));
}

TEST_F(SlurmTest, ANodeThatDoesNotComeIsMissed) {
  const CommandResult result =
      lab_->run_on(1, {DTRUN_BIN "/dtrun", "--nnodes=2", "--rdzv_backend=c10d",
                       "--rdzv_endpoint=node1:12347", "--join_timeout=0.2", "true"});
  EXPECT_EQ(result.exit_code, 75) << result.describe();
  EXPECT_THAT(result.err, AllOf(HasSubstr("1 of 2 nodes have joined in 2"),
                                HasSubstr(" ms (node1)"), HasSubstr("cannot reach node1:12347")));
}

TEST_F(SlurmTest, ANodeOfAnotherJobIsSentAwayByName) {
  // The id comes from a variable that differs per task, as in a script that is wrong.
  std::vector<std::string> words = lab_->launch_line();
  words.erase(words.begin(), words.begin() + 4);
  std::string command = "exec";
  for (const std::string& word : words) command += " " + word;
  command += " --rdzv_id=job$SLURM_PROCID true";
  const CommandResult result =
      lab_->run({"srun", "-K1", "-N2", "-n2", "--ntasks-per-node=1", "sh", "-c", command});
  EXPECT_NE(result.exit_code, 0) << result.describe();
  EXPECT_THAT(result.err, HasSubstr("it belongs to job 'job1', and this is job 'job0'"))
      << result.describe();
  EXPECT_LT(result.elapsed.count(), 20.0);
  expect_nothing_left("true");
}

}  // namespace
}  // namespace dtrun
