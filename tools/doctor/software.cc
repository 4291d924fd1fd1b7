#include <fmt/core.h>
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "doctor/examinations.h"
#include "doctor/text_files.h"
#include "dtrun/base/env.h"

namespace dtrun::doctor {
namespace {

Finding dtrun_itself() {
  std::error_code none;
  const std::filesystem::path own =
      std::filesystem::read_symlink("/proc/self/exe", none).parent_path() / "dtrun";
  Finding finding{"dtrun", Verdict::good, fmt::format("{}, {}", DTRUN_VERSION, own.string())};
  const std::string other = in_path("dtrun");
  if (!std::filesystem::exists(own, none)) {
    finding.verdict = Verdict::bad;
    finding.found = "not beside this program";
    finding.meaning = "this installation is not whole";
    finding.remedy = "scripts/install";
  } else if (other.empty()) {
    finding.meaning = "PATH has none: scripts and other hosts need the whole path";
  } else if (!std::filesystem::equivalent(own, other, none)) {
    finding.verdict = Verdict::warning;
    finding.found += ", and " + other + " in PATH";
    finding.meaning = "nodes of one job must have the same version";
    finding.remedy =
        "remove one of the two, or put " + own.parent_path().string() + " first in PATH";
  }
  return finding;
}

/// Variables that are set, of those.
std::vector<std::string> set_of(const std::vector<const char*>& names) {
  std::vector<std::string> found;
  for (const char* const name : names) {
    if (const auto value = base::get_env(name)) found.push_back(fmt::format("{}={}", name, *value));
  }
  return found;
}

Finding slurm() {
  const std::vector<std::string> variables =
      set_of({"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_NNODES", "SLURM_NTASKS",
              "SLURM_STEP_TASKS_PER_NODE"});
  const std::string srun = in_path("srun");
  Finding finding{"Slurm", Verdict::good, srun.empty() ? "no srun" : srun};
  if (variables.empty()) {
    if (!srun.empty()) finding.meaning = "salloc -N2 srun dtrun ./app starts a job of two nodes";
    return finding;
  }
  finding.found += fmt::format(", {}", fmt::join(variables, " "));
  if (srun.empty() && !base::get_env("SLURM_STEP_ID")) {
    finding.verdict = Verdict::warning;
    finding.meaning =
        "this is a job of Slurm, and srun, which starts dtrun on each node, is not in PATH";
    finding.remedy = "PATH with Slurm's programs";
  } else {
    finding.meaning = "dtrun takes nodes, ranks and their addresses from it";
  }
  return finding;
}

Finding process_managers() {
  const std::vector<std::string> variables =
      set_of({"PMI_RANK", "PMI_SIZE", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PALS_NODEID"});
  Finding finding{"PMI", Verdict::good,
                  variables.empty() ? "none" : fmt::format("{}", fmt::join(variables, " "))};
  if (!variables.empty())
    finding.meaning = "this is a process of mpirun or srun: dtrun --adopt makes ranks of such";
  return finding;
}

Finding stack_tools() {
  std::vector<std::string> found;
  for (const char* const name : {"eu-stack", "gdb", "py-spy"})
    if (!in_path(name).empty()) found.emplace_back(name);
  Finding finding{
      "stacks", Verdict::good,
      found.empty() ? "no eu-stack, gdb or py-spy" : fmt::format("{}", fmt::join(found, ", "))};
  const std::string scope = first_line("/proc/sys/kernel/yama/ptrace_scope").value_or("0");
  if (found.empty()) {
    finding.meaning = "nothing here shows where a rank hangs; elfutils and gdb do";
  } else if (scope != "0" && ::geteuid() != 0) {
    finding.meaning = "kernel.yama.ptrace_scope=" + scope +
                      ": only root can look into a rank, and large messages between ranks take two "
                      "copies";
  }
  return finding;
}

}  // namespace

Findings examine_software() {
  return {dtrun_itself(), slurm(), process_managers(), stack_tools()};
}

}  // namespace dtrun::doctor
