#include "dtrun/rendezvous/worker_env.h"

#include <fmt/core.h>

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "dtrun/base/error.h"

namespace dtrun::rendezvous {
namespace {

using base::Environment;
using base::Error;
using base::ErrorCode;

constexpr const char* kHowToStart =
    "start me with `dtrun --nproc_per_node=N program`, or set these by hand (rank and world_size "
    "can "
    "also be arguments of init)";

struct Range {
  long long lowest;
  long long highest;
};
constexpr Range kCount{1, 1 << 30};
constexpr Range kIndex{0, (1 << 30) - 1};

// What Open MPI and the launchers of MPICH's family (Hydra, Slurm's pmi2) tell their processes.
struct MpiNames {
  const char* ours;
  const char* open_mpi;
  const char* mpich;
};
constexpr MpiNames kMpiNames[] = {
    {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"},
    {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"},
    {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"},
    {"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"},
};

struct Variable {
  std::string name;  ///< under which it was found
  std::string text;
};

std::optional<Variable> find_variable(const Environment& environment, const char* name) {
  std::vector<const char*> names = {name};
  // If RANK is set, a launcher has numbered the ranks, and mpirun's numbers mean something else.
  const bool numbered_by_hand = !environment.get("RANK").value_or("").empty();
  for (const MpiNames& mpi : kMpiNames)
    if (!numbered_by_hand && std::string_view(mpi.ours) == name)
      names.insert(names.end(), {mpi.open_mpi, mpi.mpich});
  for (const char* candidate : names) {
    std::optional<std::string> text = environment.get(candidate);
    // An empty value counts as unset: shells write it for a variable that they do not have.
    if (text && !text->empty()) return Variable{candidate, std::move(*text)};
  }
  return std::nullopt;
}

std::optional<std::string> text_of(const Environment& environment, const char* name) {
  std::optional<Variable> found = find_variable(environment, name);
  if (!found) return std::nullopt;
  return std::move(found->text);
}

int number_of(const Environment& environment, const char* name, Range range, int fallback) {
  const std::optional<Variable> found = find_variable(environment, name);
  if (!found) return fallback;
  const std::optional<long long> number = base::parse_integer(found->text);
  if (!number || *number < range.lowest || *number > range.highest)
    throw Error(
        ErrorCode::kUsage, fmt::format("the environment has {}={}", found->name, found->text),
        fmt::format("it must be a whole number from {} to {}", range.lowest, range.highest),
        fmt::format("set {} to such a number, or start me with `dtrun --nproc_per_node=N program`",
                    found->name));
  return static_cast<int>(*number);
}

void demand_all_needed(const Environment& environment, MasterAddress master) {
  std::vector<const char*> needed = {"RANK", "WORLD_SIZE"};
  if (master == MasterAddress::needed) needed.insert(needed.end(), {"MASTER_ADDR", "MASTER_PORT"});
  std::string missing;
  for (const char* name : needed) {
    if (text_of(environment, name)) continue;
    if (!missing.empty()) missing += ", ";
    missing += name;
  }
  if (!missing.empty())
    throw Error(ErrorCode::kUsage, fmt::format("the environment lacks {}", missing),
                "a worker learns its place in the job from them", kHowToStart);
}

void demand_below(const char* index_name, int index, const char* count_name, int count) {
  if (index < count) return;
  throw Error(
      ErrorCode::kUsage,
      fmt::format("the environment has {}={}, but {}={}", index_name, index, count_name, count),
      fmt::format("{} counts from 0, so it must be less than {}", index_name, count_name),
      "correct the two, or start me with `dtrun --nproc_per_node=N program`");
}

}  // namespace

void write_worker_env(const WorkerEnv& worker, Environment& environment) {
  const std::pair<const char*, int> numbers[] = {
      {"RANK", worker.rank},
      {"LOCAL_RANK", worker.local_rank},
      {"WORLD_SIZE", worker.world_size},
      {"LOCAL_WORLD_SIZE", worker.local_world_size},
      {"GROUP_RANK", worker.group_rank},
      {"GROUP_WORLD_SIZE", worker.group_world_size},
      {"ROLE_RANK", worker.role_rank},
      {"ROLE_WORLD_SIZE", worker.role_world_size},
      {"MASTER_PORT", worker.master_port},
      {"TORCHELASTIC_RESTART_COUNT", worker.restart_count},
      {"TORCHELASTIC_MAX_RESTARTS", worker.max_restarts},
  };
  for (const auto& [name, value] : numbers) environment.set(name, std::to_string(value));
  environment.set("ROLE_NAME", worker.role_name);
  environment.set("MASTER_ADDR", worker.master_addr);
  environment.set("TORCHELASTIC_RUN_ID", worker.run_id);
  environment.set("TORCHELASTIC_USE_AGENT_STORE", worker.use_agent_store ? "True" : "False");
  environment.set("TORCHELASTIC_ERROR_FILE", worker.error_file);
  if (!environment.contains("TORCH_NCCL_ASYNC_ERROR_HANDLING"))
    environment.set("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
  // A launcher inside a job must not hand on the page of the job around it, nor its token.
  environment.unset("DTRUN_STORE_TOKEN");
  if (!worker.store_token.empty()) environment.set("DTRUN_STORE_TOKEN", worker.store_token);
  forget_job_page(environment);
  if (worker.job_page_fd >= 0)
    environment.set("DTRUN_JOB_PAGE_FD", std::to_string(worker.job_page_fd));
  if (!worker.job_page_id.empty()) environment.set("DTRUN_JOB_PAGE_ID", worker.job_page_id);
}

void forget_job_page(Environment& environment) {
  for (const char* name : kJobPageNames) environment.unset(name);
}

std::string mpirun_folder(const Environment& environment) {
  const auto value = [&](const char* name) { return environment.get(name).value_or(""); };
  for (const char* by_hand : {"RANK", "MASTER_ADDR", "MASTER_PORT"})
    if (!value(by_hand).empty()) return "";
  if (value("OMPI_COMM_WORLD_SIZE") != value("OMPI_COMM_WORLD_LOCAL_SIZE")) return "";
  return value("OMPI_COMM_WORLD_SIZE").empty() ? "" : value("PMIX_SERVER_TMPDIR");
}

WorkerEnv read_worker_env(const Environment& environment, MasterAddress master) {
  demand_all_needed(environment, master);
  const auto number = [&](const char* name, Range range, int fallback) {
    return number_of(environment, name, range, fallback);
  };
  WorkerEnv worker;
  worker.rank = number("RANK", kIndex, 0);
  worker.world_size = number("WORLD_SIZE", kCount, 1);
  worker.local_rank = number("LOCAL_RANK", kIndex, worker.rank);
  worker.local_world_size = number("LOCAL_WORLD_SIZE", kCount, worker.world_size);
  const int nodes = (worker.world_size - 1) / worker.local_world_size + 1;
  worker.group_rank = number("GROUP_RANK", kIndex, 0);
  worker.group_world_size = number("GROUP_WORLD_SIZE", kCount, nodes);
  worker.role_rank = number("ROLE_RANK", kIndex, worker.rank);
  worker.role_world_size = number("ROLE_WORLD_SIZE", kCount, worker.world_size);
  worker.role_name = text_of(environment, "ROLE_NAME").value_or(worker.role_name);
  worker.master_addr = text_of(environment, "MASTER_ADDR").value_or("");
  worker.master_port = static_cast<std::uint16_t>(number("MASTER_PORT", {1, 65535}, 0));
  worker.restart_count = number("TORCHELASTIC_RESTART_COUNT", kIndex, 0);
  worker.max_restarts = number("TORCHELASTIC_MAX_RESTARTS", kIndex, 0);
  worker.run_id = text_of(environment, "TORCHELASTIC_RUN_ID").value_or(worker.run_id);
  worker.use_agent_store = environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True";
  worker.error_file = environment.get("TORCHELASTIC_ERROR_FILE").value_or("");
  worker.store_token = text_of(environment, "DTRUN_STORE_TOKEN").value_or("");
  worker.job_page_fd = number("DTRUN_JOB_PAGE_FD", kIndex, -1);
  worker.job_page_id = environment.get("DTRUN_JOB_PAGE_ID").value_or("");

  demand_below("RANK", worker.rank, "WORLD_SIZE", worker.world_size);
  demand_below("LOCAL_RANK", worker.local_rank, "LOCAL_WORLD_SIZE", worker.local_world_size);
  demand_below("GROUP_RANK", worker.group_rank, "GROUP_WORLD_SIZE", worker.group_world_size);
  if (worker.local_world_size > worker.world_size)
    throw Error(ErrorCode::kUsage,
                fmt::format("the environment has LOCAL_WORLD_SIZE={}, but WORLD_SIZE={}",
                            worker.local_world_size, worker.world_size),
                "one node cannot have more workers than the job", kHowToStart);
  return worker;
}

}  // namespace dtrun::rendezvous
