// What dtrun takes from real Slurm, and from mpirun in a Slurm allocation, without a further flag:
// docs/engines.md.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/slurm_lab.h"

namespace dtrun {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing_support::CommandResult;
using testing_support::SlurmLab;

const std::string kDtrun = DTRUN_BIN "/dtrun";
const std::string kShow =
    "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE "
    "$GROUP_RANK/$GROUP_WORLD_SIZE $(hostname) $MASTER_ADDR $CUDA_VISIBLE_DEVICES";

class SlurmEngineTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    lab_ = std::make_unique<SlurmLab>(2, std::vector<std::string>{"--gpus", "2"});
  }
  static void TearDownTestSuite() { lab_.reset(); }
  void SetUp() override { REQUIRE_SLURM(*lab_); }

  static CommandResult run(const std::vector<std::string>& words) { return lab_->run(words); }

  static std::unique_ptr<SlurmLab> lab_;
};

std::unique_ptr<SlurmLab> SlurmEngineTest::lab_;

TEST_F(SlurmEngineTest, AStepWithGpusNeedsNoFlagAtAll) {
  const CommandResult two = run({"srun", "-N2", "--gpus-per-node=2", kDtrun, "sh", "-c", kShow});
  EXPECT_EQ(two.exit_code, 0) << two.describe();
  EXPECT_THAT(two.sorted_lines(),
              ElementsAre("0/4 0/2 0/2 node1 node1 0,1", "1/4 1/2 0/2 node1 node1 0,1",
                          "2/4 0/2 1/2 node2 node1 0,1", "3/4 1/2 1/2 node2 node1 0,1"))
      << two.describe();
  EXPECT_THAT(two.err, HasSubstr(": task 0 of 2, hence --nproc_per_node=2 --nnodes=2"));
  // One node, and fewer GPUs than it has: nothing to meet.
  const CommandResult one = run({"srun", "-N1", "--gpus-per-node=1", kDtrun, "sh", "-c", kShow});
  EXPECT_THAT(one.sorted_lines(), ElementsAre("0/1 0/1 0/1 node1 127.0.0.1 0")) << one.describe();
}

TEST_F(SlurmEngineTest, RanksThatSrunHasStartedAreAdopted) {
  const std::vector<std::string> step = {"srun", "-N2", "--ntasks-per-node=2", kDtrun, "--adopt"};
  const auto adopted = [&](std::vector<std::string> program) {
    std::vector<std::string> words = step;
    words.insert(words.end(), program.begin(), program.end());
    return run(words);
  };
  const CommandResult shell = adopted({"sh", "-c", kShow});
  EXPECT_EQ(shell.exit_code, 0) << shell.describe();
  EXPECT_THAT(shell.sorted_lines(),
              ElementsAre("0/4 0/2 0/2 node1 node1", "1/4 1/2 0/2 node1 node1",
                          "2/4 0/2 1/2 node2 node1", "3/4 1/2 1/2 node2 node1"))
      << shell.describe();
  const CommandResult tagged = adopted(
      {"--tag=always", "--tag-template=${node}.${rank}.${local_rank} ", "sh", "-c", "echo here"});
  EXPECT_THAT(tagged.sorted_lines(),
              ElementsAre("0.0.0 here", "0.1.1 here", "1.2.0 here", "1.3.1 here"))
      << tagged.describe();
  const CommandResult transports = adopted({DTRUN_BIN "/transports"});
  for (const char* rank : {"0", "1", "2", "3"})
    EXPECT_THAT(transports.out,
                HasSubstr(std::string("rank ") + rank + " sum right shared memory some tcp some\n"))
        << transports.describe();
  // A rank's end is the job's: its code, and the others are told.
  const CommandResult failed = adopted({"sh", "-c", "test $RANK != 3 || exit 7; exec sleep 60"});
  EXPECT_EQ(failed.exit_code, 7) << failed.describe();
  EXPECT_THAT(failed.err, AllOf(HasSubstr("rank 3 on node 1 (node2) failed: exit code 7"),
                                HasSubstr("  rank      : 3 (local_rank: 1)\n"),
                                HasSubstr("  rank      : 2 (local_rank: 0)\n")))
      << failed.describe();
}

TEST_F(SlurmEngineTest, WhatContradictsTheStepIsRefusedWithTheLineThatDoesNot) {
  const auto refused = [&](std::vector<std::string> step, std::vector<std::string> options) {
    step.push_back(kDtrun);
    step.insert(step.end(), options.begin(), options.end());
    step.emplace_back("true");
    const CommandResult result = run(step);
    EXPECT_EQ(result.exit_code, 64) << result.describe();
    return result.err;
  };
  EXPECT_THAT(refused({"srun", "-N2", "--ntasks-per-node=2"}, {}),
              AllOf(HasSubstr("has started 2 dtruns on this node"),
                    HasSubstr("srun --ntasks-per-node=2 dtrun --adopt ./app")));
  EXPECT_THAT(refused({"srun", "-N2"}, {"--nnodes=1"}), HasSubstr("has started dtrun on 2 nodes"));
  EXPECT_THAT(refused({"srun", "-N2"}, {"--nnodes=2", "--node_rank=2", "--master_addr=node1"}),
              HasSubstr("--node_rank=2, but this is Slurm step"));
  EXPECT_THAT(refused({"srun", "-N1", "-n1", ":", "-N1", "-n1"}, {}),
              HasSubstr("part of a heterogeneous job of 2 components"));
  const CommandResult shell =
      run({"sbatch", "--wait", "-N2", "--output=" + lab_->folder() + "/shell.out", "--wrap",
           kDtrun + " true"});
  EXPECT_EQ(shell.exit_code, 64) << shell.describe();
  EXPECT_THAT(run({"cat", lab_->folder() + "/shell.out"}).out,
              AllOf(HasSubstr("has 2 nodes, and dtrun was started on this machine only"),
                    HasSubstr("try: srun dtrun ./app")));
}

TEST_F(SlurmEngineTest, MpirunInAnAllocationBeginsOnItsFirstNode) {
  if (!run({"sh", "-c", "command -v mpirun.openmpi"}).out.size())
    GTEST_SKIP() << "no Open MPI here";
  const std::vector<std::string> mpirun = {
      "salloc", "-Q", "-N2", "--ntasks-per-node=2", "mpirun.openmpi", "--allow-run-as-root"};
  const auto started = [&](std::vector<std::string> rest) {
    std::vector<std::string> words = mpirun;
    words.insert(words.end(), rest.begin(), rest.end());
    return run(words);
  };
  const CommandResult per_node =
      started({"--npernode", "1", kDtrun, "--tag=never", "--nproc_per_node=2", "sh", "-c", kShow});
  EXPECT_EQ(per_node.exit_code, 0) << per_node.describe();
  EXPECT_THAT(per_node.sorted_lines(),
              ElementsAre("0/4 0/2 0/2 node1 node1", "1/4 1/2 0/2 node1 node1",
                          "2/4 0/2 1/2 node2 node1", "3/4 1/2 1/2 node2 node1"))
      << per_node.describe();
  const CommandResult per_rank = started({kDtrun, "--adopt", DTRUN_BIN "/transports"});
  EXPECT_EQ(per_rank.exit_code, 0) << per_rank.describe();
  EXPECT_THAT(per_rank.out, HasSubstr("rank 3 sum right shared memory some tcp some\n"))
      << per_rank.describe();
}

TEST_F(SlurmEngineTest, MpichsMpiexecIsAskedWhereItsFirstTaskIs) {
  if (!run({"sh", "-c", "command -v mpiexec.hydra"}).out.size()) GTEST_SKIP() << "no MPICH here";
  const CommandResult per_rank = run({"salloc", "-Q", "-N2", "mpiexec.hydra", "-ppn", "2", "-n",
                                      "4", kDtrun, "--adopt", "sh", "-c", kShow});
  EXPECT_EQ(per_rank.exit_code, 0) << per_rank.describe();
  EXPECT_THAT(per_rank.sorted_lines(),
              ElementsAre(HasSubstr("0/4 0/2 0/2 node1 10."), HasSubstr("1/4 1/2 0/2 node1 10."),
                          HasSubstr("2/4 0/2 1/2 node2 10."), HasSubstr("3/4 1/2 1/2 node2 10.")))
      << per_rank.describe();
  const CommandResult per_node =
      run({"salloc", "-Q", "-N2", "mpiexec.hydra", "-ppn", "1", "-n", "2", kDtrun, "--tag=never",
           "--nproc_per_node=2", "sh", "-c", kShow});
  EXPECT_EQ(per_node.exit_code, 0) << per_node.describe();
  EXPECT_THAT(per_node.sorted_lines(),
              ElementsAre(HasSubstr("0/4 0/2 0/2 node1 10."), HasSubstr("1/4 1/2 0/2 node1 10."),
                          HasSubstr("2/4 0/2 1/2 node2 10."), HasSubstr("3/4 1/2 1/2 node2 10.")))
      << per_node.describe();
}

}  // namespace
}  // namespace dtrun
