#include "support/slurm_lab.h"

#include <stdlib.h>
#include <unistd.h>

#include <filesystem>

namespace dtrun::testing_support {
namespace {

std::string script(const std::string& name) {
  return DTRUN_SOURCE_DIR "/tests/lab/slurm/" + name;
}

std::vector<std::string> concatenate(std::vector<std::string> words,
                                     const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

bool is_installed(const std::string& program) {
  for (const char* folder : {"/usr/bin/", "/usr/sbin/", "/usr/local/bin/", "/usr/local/sbin/"})
    if (::access((folder + program).c_str(), X_OK) == 0) return true;
  return false;
}

}  // namespace

SlurmLab::SlurmLab(int nodes, std::vector<std::string> options) : nodes_(nodes) {
  if (::geteuid() != 0) {
    reason_ = "it needs root, to make hosts in network namespaces";
    return;
  }
  for (const char* program : {"srun", "slurmctld", "slurmd", "munged"})
    if (!is_installed(program)) {
      reason_ = std::string(program) + " is not installed: scripts/install-packages --lab";
      return;
    }
  // In /tmp: Slurm's sockets lie in it, and their paths must be short.
  folder_ = "/tmp/dtrun_slurm_XXXXXX";
  if (::mkdtemp(folder_.data()) == nullptr) ::abort();
  options_.environment["LAB_DIR"] = folder();
  options_.environment["OMP_NUM_THREADS"] = "1";
  const CommandResult up =
      run_command(concatenate(concatenate({script("slurm-up"), "--netns", "--ttl", "600"}, options),
                              {std::to_string(nodes)}),
                  options_);
  if (up.exit_code != 0) reason_ = up.describe();
}

SlurmLab::~SlurmLab() {
  if (folder_.empty()) return;
  run_command({script("slurm-down")}, options_);
  std::error_code ignored;  // what cannot be removed is of a host that still ends
  std::filesystem::remove_all(folder_, ignored);
}

std::vector<std::string> SlurmLab::launch_line(int ranks_per_node) const {
  const std::string nodes = std::to_string(nodes_);
  return {"srun",
          "-N" + nodes,
          "-n" + nodes,
          "--ntasks-per-node=1",
          DTRUN_BIN "/dtrun",
          "--nnodes=" + nodes,
          "--nproc_per_node=" + std::to_string(ranks_per_node),
          "--rdzv_backend",
          "c10d",
          "--rdzv_endpoint",
          "node1:12345"};
}

CommandResult SlurmLab::run_on_all(std::vector<std::string> program, int ranks_per_node) {
  return run(concatenate(launch_line(ranks_per_node), program));
}

CommandResult SlurmLab::run(std::vector<std::string> command) {
  return run_command(on_head(std::move(command)), options_);
}

std::unique_ptr<Command> SlurmLab::start(std::vector<std::string> command) {
  return std::make_unique<Command>(on_head(std::move(command)), options_);
}

CommandResult SlurmLab::run_on(int node, std::vector<std::string> command) {
  return run_command(on_node(node, std::move(command)), options_);
}

std::unique_ptr<Command> SlurmLab::start_on(int node, std::vector<std::string> command) {
  return std::make_unique<Command>(on_node(node, std::move(command)), options_);
}

std::vector<std::string> SlurmLab::on_head(std::vector<std::string> command) const {
  return concatenate({script("slurm-exec")}, command);
}

std::vector<std::string> SlurmLab::on_node(int node, std::vector<std::string> command) const {
  return concatenate({script("hosts-exec"), std::to_string(node)}, command);
}

}  // namespace dtrun::testing_support
