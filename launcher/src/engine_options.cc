#include "engine_options.h"

#include <fmt/core.h>

#include <algorithm>

#include "dtrun/base/error.h"

namespace dtrun::launcher {
namespace {

using base::Error;
using base::ErrorCode;

constexpr const char* kMeeting[] = {"nnodes",       "node-rank",     "master-addr", "master-port",
                                    "rdzv-backend", "rdzv-endpoint", "standalone"};

void check_tasks(const Engine& engine) {
  if (engine.tasks_on_node == 1) return;
  throw Error(ErrorCode::kUsage,
              fmt::format("{} has started {} dtruns on this node, and each would be a job of its "
                          "own",
                          engine.name, engine.tasks_on_node),
              "one dtrun per node starts the ranks of its node",
              fmt::format("start one task per node (srun --ntasks-per-node=1, mpirun --npernode 1) "
                          "and dtrun with --nproc_per_node={}; or, if they are to be jobs of their "
                          "own, with --standalone",
                          engine.tasks_on_node));
}

void check_head(const Engine& engine) {
  if (!engine.head_host.empty()) return;
  throw Error(ErrorCode::kUsage,
              fmt::format("{} has started dtrun on {} nodes and does not tell where they can meet",
                          engine.name, engine.nodes),
              "",
              "--nnodes=N --rdzv_backend=c10d --rdzv_endpoint=HOST:PORT, with HOST one of the "
              "nodes");
}

}  // namespace

void add_engine_options(const Engine& engine, CommandLine& line) {
  const auto given = [&](const char* name) { return line.values.contains(name); };
  const auto add = [&](const char* name, std::string value) {
    if (!given(name)) line.values[name] = {std::move(value), engine.name + "'s " + name};
  };
  if (engine.gpus_on_node.value_or(0) > 0)
    add("nproc-per-node", std::to_string(*engine.gpus_on_node));
  if (std::any_of(std::begin(kMeeting), std::end(kMeeting), given)) return;
  check_tasks(engine);
  if (engine.nodes == 1) return;
  check_head(engine);
  add("nnodes", std::to_string(engine.nodes));
  add("node-rank", std::to_string(engine.node_index));
  add("rdzv-backend", "c10d");
  add("rdzv-endpoint", fmt::format("{}:{}", engine.head_host, engine.port.value()));
  if (!engine.job_id.empty()) add("rdzv-id", engine.job_id);
}

}  // namespace dtrun::launcher
