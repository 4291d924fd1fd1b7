// MachineFacts: what of this machine a LaunchPlan is decided by. look_at_machine() finds it out; a
// test makes a machine of its own.
#pragma once

#include <sys/resource.h>

#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "cpus/binding.h"
#include "dtrun/base/child_process.h"
#include "dtrun/base/env.h"
#include "dtrun/rendezvous/proof.h"
#include "options/options.h"
#include "plan/program_facts.h"
#include "terminal/foreground.h"

namespace dtrun::launcher {

/// Where dtrun reads and writes. A shell with job control keeps the keys of its terminal to itself
/// while dtrun is in the background.
struct StandardStreams {
  bool input_is_terminal = false;
  bool output_is_terminal = false;
  bool output_is_pipe = false;  ///< or a socket: somebody reads who may write to the same terminal
  bool error_is_terminal = false;
  bool input_is_the_shells = false;
};

/// What was not looked at is as it is here.
struct MachineFacts {
  std::vector<ProgramFacts> programs{1};  ///< in the options' order
  rlimit open_files{RLIM_INFINITY, RLIM_INFINITY};
  std::string fresh_run_id;                     ///< that no other job has
  std::optional<rendezvous::Token> file_token;  ///< of Options::token_file
  std::shared_ptr<rendezvous::Realm> munge;     ///< none: munged does not run here
  MachineTopology topology;                     ///< the CPUs that this process may use
  MemoryRights memory;
  StandardStreams streams;
  std::shared_ptr<const Foreground> foreground;  ///< of this process, where a stream is a terminal
  std::variant<std::string, base::SpawnError> gdb;  ///< its path, or why there is none
};

/// Looks at no more than the options need, because the start of a job waits for it. Changes
/// nothing, asks no other machine, and waits for nobody but munged where that is the proof.
/// @throws Error, SpawnError: a program, the token's file, munge or hwloc is not to be had
MachineFacts look_at_machine(const Options& options, const base::Environment& environment);

}  // namespace dtrun::launcher
