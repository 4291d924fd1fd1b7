#include "engine.h"

#include <fmt/core.h>

#include <algorithm>

#include "dtrun/base/error.h"
#include "node_list.h"

namespace dtrun::launcher {
namespace {

using base::Environment;
using base::Error;
using base::ErrorCode;

int number(const Environment& environment, const char* name) {
  const std::optional<std::string> text = environment.get(name);
  if (!text)
    throw Error(ErrorCode::kUsage, fmt::format("{} is not set, though its neighbours are", name),
                "the environment of srun or mpirun has come here in part only",
                "start dtrun by srun or mpirun itself, or unset all of its variables");
  const auto value = base::parse_integer(*text);
  if (!value || *value < 0 || *value > 1'000'000)
    throw Error(ErrorCode::kUsage, fmt::format("{} is '{}'", name, *text),
                "it must be a number from 0 to 1000000");
  return static_cast<int>(*value);
}

std::optional<int> number_if_any(const Environment& environment, const char* name) {
  if (!environment.get(name)) return std::nullopt;
  return number(environment, name);
}

// As JAX does: jobs of one cluster rarely share nodes, and never share numbers.
std::uint16_t port_of_job(int job) {
  constexpr int kFirst = 61440, kCount = 4096;
  return static_cast<std::uint16_t>(kFirst + job % kCount);
}

Engine read_slurm(const Environment& environment) {
  Engine engine;
  const int job = number(environment, "SLURM_JOB_ID");
  engine.job_id = std::to_string(job);
  engine.name =
      fmt::format("Slurm step {}.{}", job, environment.get("SLURM_STEP_ID").value_or("?"));
  engine.nodes = number(environment, "SLURM_STEP_NUM_NODES");
  engine.node_index = number(environment, "SLURM_NODEID");
  const std::string list = environment.get("SLURM_STEP_NODELIST").value_or("");
  const std::vector<std::string> names = expand_node_list(list);
  if (static_cast<int>(names.size()) != engine.nodes || engine.node_index >= engine.nodes)
    throw Error(ErrorCode::kUsage,
                fmt::format("{} contradicts itself: SLURM_STEP_NUM_NODES={}, SLURM_NODEID={}, "
                            "SLURM_STEP_NODELIST={}",
                            engine.name, engine.nodes, engine.node_index, list.substr(0, 200)),
                "", "start dtrun by srun itself");
  const auto tasks = environment.get("SLURM_STEP_TASKS_PER_NODE");
  if (tasks) {
    const std::vector<int> counts = expand_counts(*tasks);
    if (engine.node_index < static_cast<int>(counts.size()))
      engine.tasks_on_node = counts[static_cast<std::size_t>(engine.node_index)];
  }
  engine.head_host = names.front();
  engine.port = port_of_job(job);
  engine.gpus_on_node = number_if_any(environment, "SLURM_GPUS_ON_NODE");
  engine.restart_count = number_if_any(environment, "SLURM_RESTART_COUNT").value_or(0);
  return engine;
}

// One dtrun per node: its rank there is the node's number.
Engine read_mpi(const Environment& environment, const char* name, const char* rank,
                const char* size, const char* local_size) {
  Engine engine;
  engine.name = name;
  engine.nodes = number(environment, size);
  engine.node_index = number(environment, rank);
  engine.tasks_on_node = number_if_any(environment, local_size).value_or(1);
  return engine;
}

}  // namespace

std::optional<Engine> detect_engine(const Environment& environment) {
  const auto has = [&](const char* name) { return environment.get(name).has_value(); };
  // mpirun inside an allocation starts its daemons by srun: the innermost one is who started us.
  if (has("OMPI_COMM_WORLD_RANK"))
    return read_mpi(environment, "Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                    "OMPI_COMM_WORLD_LOCAL_SIZE");
  if (has("PMI_RANK") && has("MPI_LOCALRANKID"))
    return read_mpi(environment, "MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS");
  if (has("SLURM_JOB_ID") && has("SLURM_PROCID") && has("SLURM_STEP_NODELIST"))
    return read_slurm(environment);
  return std::nullopt;
}

}  // namespace dtrun::launcher
