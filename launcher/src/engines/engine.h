// Engine: the program that started dtrun on several machines at once (srun, mpirun, Kubernetes
// ...). Its environment variables say how many dtruns there are, which one this is, where they can
// meet. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "dtrun/base/env.h"

namespace dtrun::launcher {

/// What the engine's processes are: tasks can be several per node, as ranks are; pods and their
/// like are nodes.
enum class EngineKind { kTasks, kNodes };

struct Engine {
  std::string key;   ///< as --scheduler names it
  std::string name;  ///< for messages: "Slurm step 17.0", "Open MPI"
  EngineKind kind = EngineKind::kTasks;
  std::string one_per_node;  ///< the line by which it starts one dtrun per node
  std::string per_rank;      ///< one per rank; empty: it cannot
  std::string head_by_hand;  ///< how its line tells all of them MASTER_ADDR; empty: it does not
  int task = 0;              ///< this dtrun's number
  std::optional<int> tasks;  ///< dtruns in all; none: the engine does not tell
  int task_on_node = 0;
  int tasks_on_node = 1;
  std::optional<int> node;            ///< this machine's number; none: not told, or not clear
  std::optional<int> nodes;           ///< machines in all
  std::string node_list;              ///< names of all machines (node_list.h); empty: not told
  std::string head_host;              ///< where task 0 is; empty: the engine does not tell
  bool head_is_here = false;          ///< this machine's name serves as head_host
  std::optional<std::uint16_t> port;  ///< the same for all tasks
  std::string run_id;                 ///< empty: the engine does not tell
  std::optional<int> gpus_on_node;
  std::optional<int> pmi_fd;  ///< by which the rest can be asked for (pmi_meeting.h)
  std::string pmi_port;       ///< HOST:PORT, which also knows `tasks`; empty: none
  std::string places_file;    ///< the file with the rest (pals_places.h); empty: none
  std::string no_places;      ///< why it could not be read; empty: it could, or there is none

  /// "Slurm step 17.0: task 1 of 4"
  std::string describe() const;
};

/// The place of the one rank that --adopt has, where this node and others have several dtruns.
struct AdoptedRank {
  int local_rank = 0;
  int local_world_size = 1;
  int group_rank = 0;
  int group_world_size = 1;
  std::optional<int> node;  ///< the machine's number, as far as the engine tells it
};

/// What is in no variable and no file: only the engine itself can say it (meet_engine()).
enum class EngineQuestion { kNone, kTasks, kHead };

struct EngineFindings {
  std::optional<Engine> engine;
  std::string note;     ///< what was detected, and what it decides; empty: nothing
  std::string decided;  ///< " --nnodes=2 ...", the options that it decides; may be empty
  EngineQuestion open = EngineQuestion::kNone;  ///< the options that wait for it are not decided
  std::optional<AdoptedRank> adopted;
  /// How long after a signal to dtrun the engine may send the same to the ranks.
  std::chrono::nanoseconds shared_signal_wait{};
};

/// nullopt: nobody has. A batch script's own shell is no step; a process that a launcher has
/// started as a rank was not started by the engine around that launcher.
/// @param scheduler "auto"; "none"; or the key of one of engine_table.h, which must then be there
/// @throws Error kUsage when the variables contradict each other or cannot be read
std::optional<Engine> detect_engine(const base::Environment& environment,
                                    std::string_view scheduler = "auto");

}  // namespace dtrun::launcher
