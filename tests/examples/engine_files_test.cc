// The files of examples/ for Slurm, MPI and Kubernetes: that the linters find nothing in them, that
// dtrun reads the lines in them as they mean it where they run, and that mpirun runs its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "options/options.h"
#include "sources/option_sources.h"
#include "support/command.h"

namespace dtrun {
namespace {

using launcher::Options;
using testing::HasSubstr;
using testing_support::CommandOptions;
using testing_support::CommandResult;
using testing_support::run_command;

const std::string kExamples = DTRUN_SOURCE_DIR "/examples/";

std::vector<std::string> files_of(const std::vector<std::string>& folders) {
  std::vector<std::string> files;
  for (const std::string& folder : folders)
    for (const auto& entry : std::filesystem::directory_iterator(kExamples + folder))
      if (entry.path().filename().string()[0] != '.') files.push_back(entry.path());
  return files;
}

bool is_here(const std::string& program) {
  return run_command({"sh", "-c", "command -v " + program}).exit_code == 0;
}

TEST(EngineFiles, PleaseTheLinters) {
  if (!is_here("shellcheck") || !is_here("yamllint"))
    GTEST_SKIP() << "no shellcheck, yamllint: scripts/install-packages --lab";
  std::vector<std::string> shell = {"shellcheck"};
  for (std::string& file : files_of({"slurm", "mpi"})) shell.push_back(std::move(file));
  const CommandResult scripts = run_command(shell);
  EXPECT_EQ(scripts.exit_code, 0) << scripts.describe();
  const CommandResult manifests =
      run_command({"yamllint", "--strict", "-c", kExamples + "k8s/.yamllint", kExamples + "k8s"});
  EXPECT_EQ(manifests.exit_code, 0) << manifests.describe();
}

// "command: [dtrun, --nnodes=2, ./app]", also over two lines.
std::vector<std::string> dtrun_line_of(const std::string& path) {
  std::ifstream in(path);
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  const auto begin = text.find("[dtrun, ");
  if (begin == std::string::npos) return {};
  std::istringstream words(text.substr(begin + 8, text.find(']', begin) - begin - 8));
  std::vector<std::string> result;
  for (std::string word; words >> word;) {
    if (word.back() == ',') word.pop_back();
    result.push_back(word);
  }
  return result;
}

TEST(EngineFiles, ManifestsHaveLinesThatMeanTwoPodsOfFourRanks) {
  const std::map<std::string, std::map<std::string, std::string>> pods = {
      {"indexed-job", {{"JOB_COMPLETION_INDEX", "1"}}},
      {"jobset", {{"JOB_COMPLETION_INDEX", "1"}}},
      {"trainjob",
       {{"PET_NNODES", "2"},
        {"PET_NPROC_PER_NODE", "4"},
        {"PET_NODE_RANK", "1"},
        {"PET_MASTER_ADDR", "app-node-0-0.app"},
        {"PET_MASTER_PORT", "29400"},
        {"JOB_COMPLETION_INDEX", "1"}}},
      {"pytorchjob",
       {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "app-master-0"}, {"MASTER_PORT", "2"}}},
      {"lws",
       {{"LWS_LEADER_ADDRESS", "app-0.app.default"},
        {"LWS_WORKER_INDEX", "1"},
        {"LWS_GROUP_SIZE", "2"}}},
  };
  EXPECT_EQ(files_of({"k8s"}).size(), pods.size());
  for (const auto& [name, variables] : pods) {
    base::Environment environment;
    for (const auto& [variable, value] : variables) environment.set(variable, value);
    const auto line = dtrun_line_of(kExamples + "k8s/" + name + ".yaml");
    ASSERT_FALSE(line.empty()) << name;
    const Options options = launcher::parse_options("dtrun", line, environment);
    EXPECT_EQ(options.rounds.min_nodes, 2) << name;
    EXPECT_EQ(options.rounds.max_nodes, 2) << name;
    EXPECT_EQ(options.node_rank, 1) << name;
    EXPECT_EQ(options.programs.front().local_ranks, "4") << name;
    EXPECT_THAT(options.master_addr, HasSubstr("app-")) << name;
    EXPECT_EQ(options.programs.front().words.front(), "./app") << name;
  }
}

TEST(EngineFiles, TheLineThatTorchXWritesIsReadWordByWord) {
  const Options options =
      launcher::parse_options("dtrun",
                              {"--rdzv_backend", "c10d", "--rdzv_endpoint", "localhost:0",
                               "--rdzv_id", "app-x1", "--nnodes", "1", "--nproc_per_node", "2",
                               "--tee", "3", "--role", "", "-m", "app.main", "--lr", "0.1"},
                              {});
  EXPECT_EQ(options.role, "");
  EXPECT_TRUE(options.module);
  EXPECT_EQ(options.run_id, "app-x1");
  EXPECT_EQ(options.programs.front().words, (std::vector<std::string>{"app.main", "--lr", "0.1"}));
}

void expect_ranks_twice(const std::string& script, const std::string& mpirun) {
  if (!is_here(mpirun)) GTEST_SKIP() << "no " << mpirun << " here";
  CommandOptions options;
  options.environment = {{"PATH", DTRUN_BIN ":/usr/local/bin:/usr/bin:/bin"},
                         {"MPIEXEC", mpirun},
                         {"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                         {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}};
  options.environment["PORT"] = "29417";
  // Two mpiruns that make and remove the one in /tmp at once: "File exists".
  std::string folder = testing::TempDir() + "dtrun_mpi_XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  options.environment["OMPI_MCA_orte_tmpdir_base"] = folder;
  const CommandResult result =
      run_command({kExamples + "mpi/" + script, DTRUN_BIN "/hello"}, options);
  std::filesystem::remove_all(folder);
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  for (const std::string rank : {"0", "1"}) {
    const std::string line = "hello from rank " + rank + " (local rank " + rank + ") of 2";
    const auto first = result.out.find(line);
    ASSERT_NE(first, std::string::npos) << result.describe();
    EXPECT_NE(result.out.find(line, first + 1), std::string::npos) << result.describe();
  }
}

TEST(EngineFiles, OpenMpisScriptRunsBothWays) {
  expect_ranks_twice("openmpi.sh", "mpirun.openmpi");
}

TEST(EngineFiles, MpichsScriptRunsBothWays) {
  expect_ranks_twice("mpich.sh", "mpiexec.hydra");
}

}  // namespace
}  // namespace dtrun
