// SlurmLab: a real Slurm cluster on this machine, node1, node2, ..., each with its own network,
// host name, pids and /dev/shm, from tests/lab/slurm. Up in 0.3 s, down in 0.04 s, several side by
// side. Needs root and Slurm (scripts/install-packages --lab); where it cannot start, reason() says
// why.
//
// For tests that run a line of a document. In tests.cmake: LINKS dtrun_slurm_lab. In the test:
//
//   class TutorialTest : public testing::Test {
//    protected:
//     static void SetUpTestSuite() { lab_ = std::make_unique<SlurmLab>(2); }
//     static void TearDownTestSuite() { lab_.reset(); }
//     void SetUp() override { REQUIRE_SLURM(*lab_); }
//     static std::unique_ptr<SlurmLab> lab_;
//   };
//   TEST_F(TutorialTest, ...) {
//     // srun -N2 -n2 --ntasks-per-node=1 dtrun --nnodes=2 --nproc_per_node=2 --rdzv_backend c10d
//     //   --rdzv_endpoint node1:12345 PROGRAM: 4 ranks, 0 and 1 on node1, 2 and 3 on node2
//     const CommandResult result = lab_->run_on_all({DTRUN_BIN "/hello"});
//     EXPECT_EQ(result.exit_code, 0) << result.describe();
//     EXPECT_THAT(result.sorted_lines(), ElementsAre(...));   // of all ranks
//   }
//
// A whole job takes some 60 ms more than on one node. CTest starts a program once per test: list
// the program with dtrun_lab_test(), which runs it whole, so that the cluster is started once.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "support/command.h"

namespace dtrun::testing_support {

class SlurmLab {
 public:
  /// @param options of tests/lab/slurm/slurm-up: {"--gpus", "2"}
  explicit SlurmLab(int nodes, std::vector<std::string> options = {});
  ~SlurmLab();
  SlurmLab(const SlurmLab&) = delete;
  SlurmLab& operator=(const SlurmLab&) = delete;

  /// Why there is no cluster; empty: there is one.
  const std::string& reason() const { return reason_; }

  /// The line of the tutorial, up to the program: "srun", ..., "--rdzv_endpoint", "node1:12345".
  std::vector<std::string> launch_line(int ranks_per_node = 2) const;
  /// That line with the program and its arguments, run to its end.
  CommandResult run_on_all(std::vector<std::string> program, int ranks_per_node = 2);

  /// A command on the head host: srun, sbatch, squeue, scancel ...
  CommandResult run(std::vector<std::string> command);
  std::unique_ptr<Command> start(std::vector<std::string> command);
  /// A command on node 1, 2, ... itself, without Slurm.
  CommandResult run_on(int node, std::vector<std::string> command);
  std::unique_ptr<Command> start_on(int node, std::vector<std::string> command);

  /// What lies above the machine's environment; OMP_NUM_THREADS=1 is there from the start.
  CommandOptions& options() { return options_; }
  /// The folder of the cluster: hostI/hosts is /etc/hosts of node I.
  std::string folder() const { return folder_ + "/lab"; }

 private:
  std::vector<std::string> on_head(std::vector<std::string> command) const;
  std::vector<std::string> on_node(int node, std::vector<std::string> command) const;

  int nodes_;
  std::string folder_;
  std::string reason_;
  CommandOptions options_;
};

}  // namespace dtrun::testing_support

#define REQUIRE_SLURM(lab) \
  if (!(lab).reason().empty()) GTEST_SKIP() << "no Slurm cluster here: " << (lab).reason()
