// The engine table: the engines that may have started dtrun, and the variables of each. One row per
// engine, the innermost first: mpirun starts its daemons by srun. docs/engines.md explains the
// rows.
#pragma once

#include <span>

#include "dtrun/base/env.h"
#include "engines/engine.h"

namespace dtrun::launcher {

enum class EngineDetection { kAutomatic, kOnlyIfNamed };

/// Names of variables; nullptr: this engine has no such one.
struct EngineRow {
  const char* key;
  const char* name;
  EngineKind kind = EngineKind::kTasks;
  EngineDetection detection = EngineDetection::kAutomatic;
  const char* signs[3] = {};  ///< where all of these are set, it is this engine
  const char* task = nullptr;
  const char* tasks = nullptr;
  const char* task_on_node = nullptr;
  const char* tasks_on_node = nullptr;
  const char* nodes = nullptr;
  const char* head_host = nullptr;
  const char* port = nullptr;
  const char* run_id = nullptr;
  const char* gpus = nullptr;
  const char* one_per_node = "";  ///< the line; {K}: ranks per node, {N}: in all
  const char* per_rank = "";      ///< the same; empty: not by this engine
  const char* head_by_hand = "";  ///< how its line gives MASTER_ADDR to all
  bool (*never)(const base::Environment& environment) = nullptr;
  /// Reads the facts that are no plain value of a variable.
  void (*complete)(const base::Environment& environment, Engine& engine) = nullptr;
};

std::span<const EngineRow> engine_table();

}  // namespace dtrun::launcher
