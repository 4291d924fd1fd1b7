// LaunchPlan: everything that is decided before anything happens: which program, how many ranks,
// with which environment. Made once from the options and the facts of this machine; read by agent
// and guard. Pure.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dtrun/base/child_process.h"
#include "dtrun/base/env.h"
#include "dtrun/rendezvous/proof.h"
#include "dtrun/rendezvous/worker_env.h"
#include "options/options.h"
#include "plan/machine_facts.h"
#include "plan/planned_program.h"
#include "terminal/debug_terminal.h"
#include "terminal/foreground.h"

namespace dtrun::launcher {

/// Who serves the store at which the ranks meet.
enum class StoreServer { kAgent, kRankZero };
/// What a terminal can show.
enum class Letters { kAscii, kUtf8 };

struct LaunchPlan {
  Options options;
  int local_ranks = 1;  ///< of all programs
  std::string run_id;
  std::vector<PlannedProgram> programs{1};  ///< at least one, in the order of their ranks
  base::ChildCommand debug_command;         ///< of the rank that is debugged, if there is one
  /// Its terminal, once the job begins.
  std::shared_ptr<DebugTerminal> debug_terminal;
  std::size_t descriptors_of_guard = 0;  ///< the most that it has open at once
  std::size_t descriptors_of_agent = 0;  ///< the same for the agent, when all nodes have come
  std::string nccl_async;  ///< TORCH_NCCL_ASYNC_ERROR_HANDLING of this environment; may be ""
  /// How agents prove that they belong to the job; none: anybody who names the job may join.
  rendezvous::Proof proof;
  /// The token that the ranks' store asks for, where all ranks are known to have it; empty: none.
  std::string store_token;
  StoreServer store_server = StoreServer::kAgent;
  std::string report_file;            ///< this launcher's own TORCHELASTIC_ERROR_FILE; empty: none
  std::vector<RankBinding> bindings;  ///< for each local rank
  std::vector<int> omp_shares;  ///< OMP_NUM_THREADS of each; empty: the same for all, or unset
  /// CUDA_VISIBLE_DEVICES of each, which has LOCAL_RANK=0 then; empty: the same for all.
  std::vector<std::string> virtual_devices;
  Letters letters = Letters::kAscii;             ///< what the terminal can surely show
  std::shared_ptr<const Foreground> foreground;  ///< none: output and errors go to no terminal
  bool shows_status = false;                     ///< whether there is a status line
  std::vector<std::string> warnings;

  /// Whether the status line may stand in the terminal's last line now.
  bool may_stand_on_status() const { return shows_status && foreground && foreground->is_ours(); }
  /// Which program the rank runs: an index of `programs`.
  std::size_t program_of(int local_rank) const;
  /// For reports: as every node is started by the same line, the program of any node's rank. All
  /// names where the rank is not known (-1), or is one that this node has not.
  std::string program_name(int local_rank) const;
  /// The number of this node in lines and messages: `group_rank`, or for an adopted rank the
  /// engine's number of the machine.
  int shown_node(int group_rank) const;
};

/// Only decides: the same facts give the same plan, on whatever machine.
/// @param facts of look_at_machine() with the same options and environment
/// @throws Error (kUsage, kUnavailable, kSystem), SpawnError where gdb is needed and not there
LaunchPlan make_plan(Options options, const base::Environment& environment,
                     const MachineFacts& facts);

/// The command with `${local_rank}` in its arguments replaced, as torchrun does.
base::ChildCommand command_of_rank(const LaunchPlan& plan, int local_rank);

/// What one rank has beside the common environment.
std::vector<std::string> rank_environment(const LaunchPlan& plan,
                                          const rendezvous::WorkerEnv& worker);

}  // namespace dtrun::launcher
