#include "engines/engine_table.h"

#include <fmt/core.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/string.hpp>
#include <string_view>
#include <vector>

#include "dtrun/base/error.h"
#include "dtrun/base/json.h"
#include "engines/engine_variables.h"
#include "engines/slurm_step.h"

namespace dtrun::launcher {
namespace {

using base::Environment;
using base::Error;
using base::ErrorCode;

// Engines like mpirun do not say where rank 0 is. The allocation around them may, or the user must.
void complete_mpi(const Environment& environment, Engine& engine) {
  if (engine.tasks == engine.tasks_on_node) {
    engine.head_host = "127.0.0.1";
    engine.nodes = 1;
    engine.node = 0;
  } else {
    engine.head_host = engine_text(environment, "MASTER_ADDR");
    if (engine.head_host.empty()) engine.head_host = first_slurm_node(environment);
  }
  if (const auto port = engine_number_if_any(environment, "MASTER_PORT", 65535))
    engine.port = static_cast<std::uint16_t>(*port);
}

// An engine that speaks PMI-1 can be asked. MASTER_ADDR and MASTER_PORT go before its answer.
void complete_by_pmi(const Environment& environment, Engine& engine) {
  complete_mpi(environment, engine);
  if (engine_text(environment, "MASTER_ADDR").empty() &&
      engine_text(environment, "MASTER_PORT").empty())
    engine.pmi_fd = engine_number_if_any(environment, "PMI_FD");
}

// Intel's Hydra says the same as MPICH's, and in what package it is.
void complete_hydra(const Environment& environment, Engine& engine) {
  if (!engine_text(environment, "I_MPI_MPIRUN").empty()) engine.name = "Intel MPI";
  complete_by_pmi(environment, engine);
}

// mpiexec -pmi-port sets this; the number of processes is asked for at that port.
void complete_hydra_port(const Environment& environment, Engine& engine) {
  complete_hydra(environment, engine);
  engine.pmi_port = engine_text(environment, "PMI_PORT");
}

// Slurm's mpi/cray_shasta sets the variables of PALS, too, and calls the step the application.
bool is_slurms_pals(const Environment& environment) {
  const std::string job = engine_text(environment, "SLURM_JOB_ID");
  return !job.empty() && engine_text(environment, "PALS_APID") ==
                             job + "." + engine_text(environment, "SLURM_STEP_ID");
}

// Cray's PMI is not PMI-1. The same facts are in a file, which exists before any task runs.
void complete_pals(const Environment& environment, Engine& engine) {
  complete_by_pmi(environment, engine);
  if (engine.tasks == engine.tasks_on_node) return;
  engine.places_file = engine_text(environment, "PALS_APINFO");
  const std::string folder = engine_text(environment, "PALS_SPOOL_DIR");
  if (engine.places_file.empty() && !folder.empty()) engine.places_file = folder + "/apinfo";
  if (engine.places_file.empty() && !engine.run_id.empty())
    engine.places_file = fmt::format("/var/run/palsd/{}/apinfo", engine.run_id);
}

// Flux tells how many nodes there are, not how many tasks are on this one.
void complete_flux(const Environment& environment, Engine& engine) {
  const int nodes = std::max(1, engine.nodes.value_or(1));
  engine.tasks_on_node = std::max(engine.task_on_node + 1, *engine.tasks / nodes);
  complete_by_pmi(environment, engine);
}

// "batch 1 node1 42 node2 42": the first is where the batch script runs, on systems with jsrun.
void complete_jsrun(const Environment& environment, Engine& engine) {
  complete_mpi(environment, engine);
  if (!engine.head_host.empty()) return;
  const std::string all = engine_text(environment, "LSB_MCPU_HOSTS");
  std::string_view hosts = all;
  for (int word = 0; word < 2; ++word) {
    const auto space = hosts.find(' ');
    if (space == std::string_view::npos) return;
    hosts.remove_prefix(space + 1);
  }
  engine.head_host = std::string(hosts.substr(0, hosts.find(' ')));
}

void complete_pmix(const Environment& environment, Engine& engine) {
  engine.head_host = engine_text(environment, "MASTER_ADDR");
}

// The main node is told everything but its own address.
void complete_aws_batch(const Environment& environment, Engine& engine) {
  const int main = engine_number_if_any(environment, "AWS_BATCH_JOB_MAIN_NODE_INDEX").value_or(0);
  engine.head_is_here = engine.task == main;
  // Node 0 hosts.
  const int nodes = std::max(1, *engine.tasks);
  engine.task = (engine.task - main % nodes + nodes) % nodes;
}

void complete_skypilot(const Environment& environment, Engine& engine) {
  const std::string addresses = engine_text(environment, "SKYPILOT_NODE_IPS");
  engine.head_host = addresses.substr(0, addresses.find('\n'));
}

Error sagemaker_error(const std::string& hosts, const std::string& why) {
  return Error(ErrorCode::kUsage, fmt::format("SM_HOSTS is '{}'", hosts.substr(0, 200)), why,
               "it must be a JSON list of host names in which SM_CURRENT_HOST stands");
}

void complete_sagemaker(const Environment& environment, Engine& engine) {
  const std::string text = engine_text(environment, "SM_HOSTS");
  boost::json::value list;
  try {
    list = base::parse_json(text, "SM_HOSTS");
  } catch (const Error& error) {
    throw sagemaker_error(text, error.why());
  }
  std::vector<std::string> hosts;
  if (!list.is_array()) throw sagemaker_error(text, "it is no list");
  for (const boost::json::value& host : list.get_array()) {
    if (!host.is_string()) throw sagemaker_error(text, "not all of it are strings");
    hosts.emplace_back(host.get_string().c_str());
  }
  const auto own =
      std::find(hosts.begin(), hosts.end(), engine_text(environment, "SM_CURRENT_HOST"));
  if (own == hosts.end())
    throw sagemaker_error(
        text, fmt::format("SM_CURRENT_HOST={}", engine_text(environment, "SM_CURRENT_HOST")));
  engine.task = static_cast<int>(own - hosts.begin());
  engine.tasks = static_cast<int>(hosts.size());
  engine.head_host = hosts.front();
}

// Its first version calls the master "localhost" on the master itself.
void complete_pytorch_job(const Environment&, Engine& engine) {
  engine.head_is_here = engine.task == 0 && engine.head_host == "localhost";
}

constexpr EngineRow kRows[] = {
    {.key = "openmpi",
     .name = "Open MPI",
     .signs = {"OMPI_COMM_WORLD_RANK"},
     .task = "OMPI_COMM_WORLD_RANK",
     .tasks = "OMPI_COMM_WORLD_SIZE",
     .task_on_node = "OMPI_COMM_WORLD_LOCAL_RANK",
     .tasks_on_node = "OMPI_COMM_WORLD_LOCAL_SIZE",
     .run_id = "PMIX_NAMESPACE",
     .one_per_node = "mpirun --npernode 1 dtrun --nproc_per_node={K} ./app",
     .per_rank = "mpirun -n {N} dtrun --adopt ./app",
     .head_by_hand = "mpirun -x MASTER_ADDR=HOST",
     .complete = complete_mpi},
    {.key = "mvapich",
     .name = "MVAPICH",
     .signs = {"MV2_COMM_WORLD_RANK"},
     .task = "MV2_COMM_WORLD_RANK",
     .tasks = "MV2_COMM_WORLD_SIZE",
     .task_on_node = "MV2_COMM_WORLD_LOCAL_RANK",
     .tasks_on_node = "MV2_COMM_WORLD_LOCAL_SIZE",
     .one_per_node = "mpiexec -ppn 1 dtrun --nproc_per_node={K} ./app",
     .per_rank = "mpiexec -n {N} dtrun --adopt ./app",
     .head_by_hand = "mpiexec -genv MASTER_ADDR HOST",
     .complete = complete_by_pmi},
    {.key = "mpich",
     .name = "MPICH",
     .signs = {"PMI_RANK", "MPI_LOCALRANKID"},
     .task = "PMI_RANK",
     .tasks = "PMI_SIZE",
     .task_on_node = "MPI_LOCALRANKID",
     .tasks_on_node = "MPI_LOCALNRANKS",
     .one_per_node = "mpiexec -ppn 1 dtrun --nproc_per_node={K} ./app",
     .per_rank = "mpiexec -n {N} dtrun --adopt ./app",
     .head_by_hand = "mpiexec -genv MASTER_ADDR HOST",
     .complete = complete_hydra},
    {.key = "mpich-port",
     .name = "MPICH",
     .signs = {"PMI_PORT", "PMI_ID", "MPI_LOCALRANKID"},
     .task = "PMI_ID",
     .task_on_node = "MPI_LOCALRANKID",
     .tasks_on_node = "MPI_LOCALNRANKS",
     .one_per_node = "mpiexec -ppn 1 dtrun --nproc_per_node={K} ./app",
     .per_rank = "mpiexec -n {N} dtrun --adopt ./app",
     .head_by_hand = "mpiexec -genv MASTER_ADDR HOST",
     .complete = complete_hydra_port},
    {.key = "jsrun",
     .name = "LSF's jsrun",
     .signs = {"JSM_NAMESPACE_RANK"},
     .task = "JSM_NAMESPACE_RANK",
     .tasks = "JSM_NAMESPACE_SIZE",
     .task_on_node = "JSM_NAMESPACE_LOCAL_RANK",
     .tasks_on_node = "JSM_NAMESPACE_LOCAL_SIZE",
     .run_id = "LSB_JOBID",
     .one_per_node = "jsrun -r 1 -a 1 -c ALL_CPUS -g ALL_GPUS dtrun --nproc_per_node={K} ./app",
     .per_rank = "jsrun -n {N} -a 1 dtrun --adopt ./app",
     .head_by_hand = "jsrun -E MASTER_ADDR=HOST",
     .complete = complete_jsrun},
    {.key = "flux",
     .name = "Flux",
     .signs = {"FLUX_TASK_RANK", "FLUX_JOB_SIZE"},
     .task = "FLUX_TASK_RANK",
     .tasks = "FLUX_JOB_SIZE",
     .task_on_node = "FLUX_TASK_LOCAL_ID",
     .nodes = "FLUX_JOB_NNODES",
     .run_id = "FLUX_JOB_ID",
     .one_per_node = "flux run -N NODES -n NODES --exclusive dtrun --nproc_per_node={K} ./app",
     .per_rank = "flux run -n {N} dtrun --adopt ./app",
     .head_by_hand = "flux run --env=MASTER_ADDR=HOST",
     .complete = complete_flux},
    {.key = "pals",
     .name = "Cray PALS",
     .signs = {"PALS_RANKID", "PMI_SIZE"},
     .task = "PALS_RANKID",
     .tasks = "PMI_SIZE",
     .task_on_node = "PALS_LOCAL_RANKID",
     .tasks_on_node = "PALS_LOCAL_SIZE",
     .run_id = "PALS_APID",
     .one_per_node = "mpiexec --ppn 1 dtrun --nproc_per_node={K} ./app",
     .per_rank = "mpiexec -n {N} dtrun --adopt ./app",
     .head_by_hand = "mpiexec --env MASTER_ADDR=$(head -n1 $PBS_NODEFILE)",
     .never = is_slurms_pals,
     .complete = complete_pals},
    {.key = "slurm",
     .name = "Slurm",
     .signs = {"SLURM_JOB_ID", "SLURM_PROCID", "SLURM_STEP_NODELIST"},
     .task = "SLURM_PROCID",
     .tasks = "SLURM_STEP_NUM_TASKS",
     .task_on_node = "SLURM_LOCALID",
     .one_per_node = "srun --ntasks-per-node=1 dtrun --nproc_per_node={K} ./app",
     .per_rank = "srun --ntasks-per-node={K} dtrun --adopt ./app",
     .never = is_slurm_shell,
     .complete = complete_slurm_step},
    {.key = "pmix",
     .name = "PMIx",
     .signs = {"PMIX_RANK", "PMIX_NAMESPACE"},
     .task = "PMIX_RANK",
     .run_id = "PMIX_NAMESPACE",
     .one_per_node = "prterun --map-by ppr:1:node dtrun --nnodes=N --nproc_per_node={K} ./app",
     .head_by_hand = "prterun -x MASTER_ADDR=HOST",
     .complete = complete_pmix},
    {.key = "sagemaker",
     .name = "SageMaker",
     .kind = EngineKind::kNodes,
     .signs = {"SM_HOSTS", "SM_CURRENT_HOST"},
     .run_id = "TRAINING_JOB_NAME",
     .gpus = "SM_NUM_GPUS",
     .one_per_node = "as SageMaker's entry point, dtrun ./app",
     .complete = complete_sagemaker},
    {.key = "aws-batch",
     .name = "AWS Batch",
     .kind = EngineKind::kNodes,
     .signs = {"AWS_BATCH_JOB_NODE_INDEX", "AWS_BATCH_JOB_NUM_NODES"},
     .task = "AWS_BATCH_JOB_NODE_INDEX",
     .tasks = "AWS_BATCH_JOB_NUM_NODES",
     .head_host = "AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS",
     .one_per_node = "as the command of a multi-node job, dtrun --nproc_per_node={K} ./app",
     .complete = complete_aws_batch},
    {.key = "skypilot",
     .name = "SkyPilot",
     .kind = EngineKind::kNodes,
     .signs = {"SKYPILOT_NODE_RANK", "SKYPILOT_NUM_NODES"},
     .task = "SKYPILOT_NODE_RANK",
     .tasks = "SKYPILOT_NUM_NODES",
     .run_id = "SKYPILOT_TASK_ID",
     .gpus = "SKYPILOT_NUM_GPUS_PER_NODE",
     .one_per_node = "in the task's run:, dtrun ./app",
     .complete = complete_skypilot},
    {.key = "lws",
     .name = "LeaderWorkerSet",
     .kind = EngineKind::kNodes,
     .signs = {"LWS_LEADER_ADDRESS", "LWS_WORKER_INDEX", "LWS_GROUP_SIZE"},
     .task = "LWS_WORKER_INDEX",
     .tasks = "LWS_GROUP_SIZE",
     .head_host = "LWS_LEADER_ADDRESS",
     .one_per_node = "as the containers' command, dtrun --nproc_per_node={K} ./app"},
    {.key = "pytorchjob",
     .name = "PyTorchJob",
     .kind = EngineKind::kNodes,
     .detection = EngineDetection::kOnlyIfNamed,
     .signs = {"RANK", "WORLD_SIZE", "MASTER_ADDR"},
     .task = "RANK",
     .tasks = "WORLD_SIZE",
     .head_host = "MASTER_ADDR",
     .port = "MASTER_PORT",
     .one_per_node = "as the containers' command, dtrun --scheduler=pytorchjob ./app",
     .complete = complete_pytorch_job},
    // It does not say how many pods there are, so a job of several needs --nnodes.
    {.key = "indexed-job",
     .name = "Kubernetes Indexed Job",
     .kind = EngineKind::kNodes,
     .signs = {"JOB_COMPLETION_INDEX"},
     .task = "JOB_COMPLETION_INDEX",
     .one_per_node = "dtrun --nnodes=N --master_addr=JOB-0.SERVICE ./app"},
};

}  // namespace

std::span<const EngineRow> engine_table() {
  return kRows;
}

}  // namespace dtrun::launcher
