#include "engines/slurm_step.h"

#include <fmt/core.h>

#include "dtrun/base/error.h"
#include "engines/engine_variables.h"
#include "engines/node_list.h"

namespace dtrun::launcher {
namespace {

using base::Environment;
using base::Error;
using base::ErrorCode;

// Slurm gives these step numbers to what is no step: batch, extern, interactive, pending.
constexpr long long kFirstShellStep = 0xfffffff0;

void refuse_several_components(const Environment& environment, const Engine& engine) {
  const int components = engine_number_if_any(environment, "SLURM_HET_SIZE").value_or(1);
  if (components == 1) return;
  throw Error(
      ErrorCode::kUsage,
      fmt::format("{} is part of a heterogeneous job of {} components", engine.name, components),
      "Slurm numbers nodes and tasks within each component, so dtrun cannot tell where "
      "this one stands among all",
      "tell it on every component: srun ... dtrun --scheduler=none --nnodes=N "
      "--nproc_per_node=K --rdzv_backend=c10d --rdzv_endpoint=HOST:PORT ./app, with the "
      "same HOST:PORT; --nproc_per_node may differ");
}

// "0,2-3" are 3.
int count_listed(const std::string& list) {
  return static_cast<int>(expand_node_list("[" + list + "]").size());
}

std::optional<int> count_gpus_of_step(const Environment& environment) {
  // Those of the job on this node; the step can have fewer.
  const std::optional<int> on_node = engine_number_if_any(environment, "SLURM_GPUS_ON_NODE");
  const std::string of_step = engine_text(environment, "SLURM_STEP_GPUS");
  return of_step.empty() ? on_node : count_listed(of_step);
}

}  // namespace

bool is_slurm_shell(const Environment& environment) {
  const auto step = base::parse_integer(engine_text(environment, "SLURM_STEP_ID"));
  return engine_text(environment, "SLURM_STEP_NODELIST").empty() ||
         (step && *step >= kFirstShellStep);
}

void complete_slurm_step(const Environment& environment, Engine& engine) {
  const int job = engine_number(environment, "SLURM_JOB_ID");
  const int step = engine_number_if_any(environment, "SLURM_STEP_ID").value_or(0);
  engine.name = fmt::format("Slurm step {}.{}", job, step);
  refuse_several_components(environment, engine);
  const std::string list = engine_text(environment, "SLURM_STEP_NODELIST");
  engine.nodes = engine_number(environment, "SLURM_STEP_NUM_NODES");
  engine.node = engine_number(environment, "SLURM_NODEID");
  const std::vector<std::string> names = expand_node_list(list);
  if (static_cast<int>(names.size()) != *engine.nodes || *engine.node >= *engine.nodes)
    throw Error(ErrorCode::kUsage,
                fmt::format("{} contradicts itself: SLURM_STEP_NUM_NODES={}, SLURM_NODEID={}, "
                            "SLURM_STEP_NODELIST={}",
                            engine.name, *engine.nodes, *engine.node, list.substr(0, 200)),
                "", "start dtrun by srun itself, or with --scheduler=none");
  const std::vector<int> counts =
      expand_counts(environment.get("SLURM_STEP_TASKS_PER_NODE").value_or("1"));
  if (*engine.node < static_cast<int>(counts.size()))
    engine.tasks_on_node = counts[static_cast<std::size_t>(*engine.node)];
  engine.node_list = list;
  engine.head_host = names.front();
  // Steps of one job may run side by side.
  constexpr long long kStepStride = 257;
  engine.port = port_of_job(job + kStepStride * step);
  // Slurm may have requeued the job while a node that is cut off still runs the old one.
  const int requeues = engine_number_if_any(environment, "SLURM_RESTART_COUNT").value_or(0);
  engine.run_id = fmt::format("{}.{}", job, step);
  if (requeues > 0) engine.run_id += fmt::format(".{}", requeues);
  engine.gpus_on_node = count_gpus_of_step(environment);
}

std::optional<SlurmShell> find_slurm_shell(const Environment& environment) {
  if (engine_text(environment, "SLURM_JOB_ID").empty() || !is_slurm_shell(environment))
    return std::nullopt;
  const int nodes = engine_number_if_any(environment, "SLURM_JOB_NUM_NODES").value_or(1);
  if (nodes < 2) return std::nullopt;
  return SlurmShell{engine_text(environment, "SLURM_JOB_ID"), nodes,
                    engine_text(environment, "SLURM_JOB_NODELIST")};
}

std::chrono::nanoseconds slurm_signal_spread(const Environment& environment) {
  // It usually takes microseconds, and more on a busy machine.
  constexpr auto kSpread = std::chrono::milliseconds(200);
  return engine_text(environment, "SLURM_JOB_ID").empty() ? std::chrono::nanoseconds{} : kSpread;
}

std::string first_slurm_node(const Environment& environment) {
  const std::string list = engine_text(environment, "SLURM_JOB_NODELIST");
  return list.empty() ? "" : expand_node_list(list).front();
}

}  // namespace dtrun::launcher
