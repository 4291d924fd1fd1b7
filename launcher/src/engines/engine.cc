#include "engines/engine.h"

#include <fmt/core.h>

#include <algorithm>

#include "dtrun/base/error.h"
#include "dtrun/rendezvous/round_messages.h"
#include "engines/engine_table.h"
#include "engines/engine_variables.h"

namespace dtrun::launcher {
namespace {

using base::Environment;
using base::Error;
using base::ErrorCode;

bool is_here(const EngineRow& row, const Environment& environment) {
  if (row.never != nullptr && row.never(environment)) return false;
  return std::all_of(std::begin(row.signs), std::end(row.signs), [&](const char* name) {
    return name == nullptr || !engine_text(environment, name).empty();
  });
}

std::optional<int> number_of(const Environment& environment, const char* name) {
  return name == nullptr ? std::nullopt : engine_number_if_any(environment, name);
}

std::string text_of(const Environment& environment, const char* name) {
  return name == nullptr ? "" : engine_text(environment, name);
}

void demand_in_range(const Engine& engine) {
  constexpr int kMost = rendezvous::rounds::kMostLocalRanks;
  if (engine.tasks_on_node > kMost)
    throw Error(ErrorCode::kUsage,
                fmt::format("{} says that it has started {} dtruns on this node", engine.name,
                            engine.tasks_on_node),
                fmt::format("{} are the most that a node can have", kMost),
                "start dtrun by the engine itself, or with --scheduler=none");
  const bool in_job = !engine.tasks || engine.task < *engine.tasks;
  if (in_job && engine.task_on_node < engine.tasks_on_node && engine.tasks_on_node > 0) return;
  throw Error(ErrorCode::kUsage,
              fmt::format("{} contradicts itself: this is task {} of {}, and on its node {} of {}",
                          engine.name, engine.task, engine.tasks.value_or(0), engine.task_on_node,
                          engine.tasks_on_node),
              "tasks are counted from 0",
              "start dtrun by the engine itself, or with --scheduler=none");
}

// If each machine has as many tasks as this one, this machine's number follows from the way they
// are dealt out: machine by machine, or in turn.
void find_node(Engine& engine) {
  if (engine.node || !engine.tasks || *engine.tasks % engine.tasks_on_node != 0) return;
  const int nodes = engine.nodes.value_or(*engine.tasks / engine.tasks_on_node);
  if (nodes * engine.tasks_on_node != *engine.tasks) return;
  if (engine.task % engine.tasks_on_node == engine.task_on_node) {
    engine.node = engine.task / engine.tasks_on_node;
  } else if (engine.task / nodes == engine.task_on_node) {
    engine.node = engine.task % nodes;
  } else {
    return;
  }
  engine.nodes = nodes;
}

std::string filled_in(const char* line, const Engine& engine) {
  return fmt::format(fmt::runtime(line), fmt::arg("K", engine.tasks_on_node),
                     fmt::arg("N", engine.tasks.value_or(engine.tasks_on_node)));
}

Engine read_engine(const EngineRow& row, const Environment& environment) {
  Engine engine;
  engine.key = row.key;
  engine.name = row.name;
  engine.kind = row.kind;
  engine.head_by_hand = row.head_by_hand;
  engine.nodes = number_of(environment, row.nodes);
  if (row.task != nullptr) engine.task = engine_number(environment, row.task);
  if (row.tasks != nullptr) engine.tasks = engine_number(environment, row.tasks);
  engine.task_on_node = number_of(environment, row.task_on_node).value_or(0);
  engine.tasks_on_node = number_of(environment, row.tasks_on_node).value_or(1);
  engine.head_host = text_of(environment, row.head_host);
  if (row.port != nullptr)
    if (const auto port = engine_number_if_any(environment, row.port, 65535))
      engine.port = static_cast<std::uint16_t>(*port);
  engine.run_id = text_of(environment, row.run_id);
  engine.gpus_on_node = number_of(environment, row.gpus);
  if (row.complete != nullptr) row.complete(environment, engine);
  demand_in_range(engine);
  find_node(engine);
  // A pod has its ports for itself.
  if (!engine.port && engine.kind == EngineKind::kTasks && !engine.run_id.empty())
    engine.port = port_of_job_name(engine.run_id);
  engine.one_per_node = filled_in(row.one_per_node, engine);
  engine.per_rank = filled_in(row.per_rank, engine);
  return engine;
}

std::string names_of_engines() {
  std::string result = "auto, none";
  for (const EngineRow& row : engine_table()) result += fmt::format(", {}", row.key);
  return result;
}

Engine read_named_engine(std::string_view key, const Environment& environment) {
  for (const EngineRow& row : engine_table()) {
    if (key != row.key) continue;
    if (is_here(row, environment)) return read_engine(row, environment);
    std::string missing;
    for (const char* name : row.signs)
      if (name != nullptr && engine_text(environment, name).empty())
        missing += (missing.empty() ? "" : ", ") + std::string(name);
    throw Error(
        ErrorCode::kUsage,
        fmt::format("--scheduler={}, but {} has not started this dtrun", key, row.name),
        fmt::format("not set: {}", missing),
        fmt::format("start it so: {}; or leave --scheduler out", filled_in(row.one_per_node, {})));
  }
  throw Error(ErrorCode::kUsage, fmt::format("--scheduler={}: dtrun knows no such engine", key), "",
              "one of " + names_of_engines());
}

}  // namespace

std::string Engine::describe() const {
  const char* what = kind == EngineKind::kTasks ? "task" : "node";
  if (!tasks) return fmt::format("{}: {} {}", name, what, task);
  return fmt::format("{}: {} {} of {}", name, what, task, *tasks);
}

std::optional<Engine> detect_engine(const Environment& environment, std::string_view scheduler) {
  if (scheduler == "none") return std::nullopt;
  if (scheduler != "auto") return read_named_engine(scheduler, environment);
  // A rank that starts a job of its own.
  if (!engine_text(environment, "TORCHELASTIC_RUN_ID").empty()) return std::nullopt;
  for (const EngineRow& row : engine_table())
    if (row.detection == EngineDetection::kAutomatic && is_here(row, environment))
      return read_engine(row, environment);
  return std::nullopt;
}

}  // namespace dtrun::launcher
