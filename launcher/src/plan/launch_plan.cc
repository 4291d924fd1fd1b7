#include "plan/launch_plan.h"

#include <fmt/core.h>

#include <algorithm>

#include "cpus/device_count.h"
#include "cpus/virtual_devices.h"
#include "plan/proof_source.h"

namespace dtrun::launcher {
namespace {

using base::Error;
using base::ErrorCode;

// Of the rank's program, from 0; where there are several.
constexpr const char* kProgramNumber = "DTRUN_APP_NUM";
constexpr const char* kPythonFaults = "PYTHONFAULTHANDLER";
constexpr const char* kNcclAsync = "TORCH_NCCL_ASYNC_ERROR_HANDLING";

// Two pipes, two files and a pidfd for each rank, with --stdin=all another pipe, and its own.
std::size_t descriptors_of_guard(const Options& options, int local_ranks) {
  constexpr std::size_t kOwn = 64;
  const std::size_t per_rank =
      (options.output.any_files() ? 5 : 3) + (options.output.stdin_to_all ? 2 : 0);
  return kOwn + per_rank * static_cast<std::size_t>(local_ranks);
}

// If this agent becomes the head, it also needs one for each client of the store and each other
// agent.
std::size_t descriptors_of_agent(const Options& options, int local_ranks) {
  constexpr std::size_t kOwn = 64, kMost = 1 << 16;
  const std::size_t of_node = static_cast<std::size_t>(local_ranks) + 1;
  return std::min(kOwn + of_node * static_cast<std::size_t>(options.rounds.max_nodes), kMost);
}

// Of this process and its children, as they are started.
std::size_t open_files_limit(const rlimit& limit, std::size_t needed, int local_ranks) {
  if (limit.rlim_max < needed)
    throw Error(ErrorCode::kSystem, fmt::format("{} ranks need {} open files", local_ranks, needed),
                fmt::format("the limit is {}", limit.rlim_max),
                "raise the limit of open files (ulimit -n), or start fewer ranks");
  return limit.rlim_cur;
}

// If the user says nothing, torchrun's rule holds. Called as torchrun, dtrun prints torchrun's
// text, because people search for it.
void limit_omp_threads(int ranks_on_node, Options& options, base::Environment& environment,
                       std::vector<std::string>& warnings) {
  const std::optional<OmpThreads>& wish = options.omp_threads;
  if (wish && wish->count > 0)
    return environment.set("OMP_NUM_THREADS", std::to_string(wish->count));
  if (wish) return environment.unset("OMP_NUM_THREADS");  // each rank gets its own
  if (ranks_on_node == 1 || environment.contains("OMP_NUM_THREADS")) return;
  environment.set("OMP_NUM_THREADS", "1");
  if (!is_torchs_name(options.called_as)) {
    options.notes.emplace_back(
        "OMP_NUM_THREADS=1 for each rank, because several share this node's cores; "
        "--omp-threads=share gives each as many threads as it has cores");
    return;
  }
  warnings.push_back(
      "\n*****************************************\n"
      "Setting OMP_NUM_THREADS environment variable for each process to be 1 in default, to avoid "
      "your system being overloaded, please further tune the variable for optimal performance in "
      "your application as needed. \n"
      "*****************************************");
}

void name_interface(const std::string& name, base::Environment& environment) {
  if (name.empty()) return;
  environment.set("DTRUN_SOCKET_IFNAME", name);
  if (!environment.contains("GLOO_SOCKET_IFNAME")) environment.set("GLOO_SOCKET_IFNAME", name);
  // NCCL takes prefixes of names unless told otherwise.
  if (!environment.contains("NCCL_SOCKET_IFNAME"))
    environment.set("NCCL_SOCKET_IFNAME", "=" + name);
}

// The proof is for the job's agents only. Ranks do not get it: environments get into child
// processes and logs.
rendezvous::Proof make_proof(ProofSource source, const base::Environment& environment,
                             const MachineFacts& facts) {
  if (source == ProofSource::kVariable)
    return rendezvous::Token(environment.get(kTokenVariable).value(), kTokenVariable);
  if (source == ProofSource::kFile) return facts.file_token.value();
  if (source == ProofSource::kNone || facts.munge == nullptr) return {};
  return facts.munge;
}

// In a job of one node no other agent can present a token, so its store gets none.
void warn_of_unused_proof(const Options& options, std::vector<std::string>& warnings) {
  if (options.rounds.max_nodes > 1) return;
  const char* unused = nullptr;
  if (!options.token_file.empty()) unused = "token_file";
  if (options.store_token.value_or(false)) unused = "store_token=true";
  if (unused == nullptr) return;
  warnings.push_back(fmt::format(
      "--rdzv_conf {} has no effect in a job of one node, whose store listens without a token",
      unused));
}

// PyTorch's clients cannot present a token, and nobody knows what a script or a wrapper starts. So
// the store demands a token only if the program file itself shows that its ranks can present one.
bool demands_store_token(Options& options, const LaunchPlan& plan, const MachineFacts& facts) {
  const bool have_token = std::holds_alternative<rendezvous::Token>(plan.proof);
  if (options.store_token.value_or(false) && !have_token && options.rounds.max_nodes > 1)
    throw Error(ErrorCode::kUsage,
                "--rdzv_conf store_token=true: the agents have no token, of which the ranks' "
                "store would make its own",
                "", "give them one: DTRUN_TOKEN, or token_file in --rdzv_conf");
  if (!have_token || options.store_token) return have_token && *options.store_token;
  for (const ProgramFacts& program : facts.programs) {
    if (program.presents_store_token) continue;
    options.notes.push_back(fmt::format(
        "the ranks' store asks for no token: {} is no program with dtrun's runtime linked into it "
        "(--rdzv_conf store_token=true on all nodes if all ranks are)",
        program.path));
    return false;
  }
  return true;
}

// Derived from the agents' token, so that it is the same on all nodes; the ranks must not know the
// agents' token itself.
std::string make_store_token(const LaunchPlan& plan) {
  std::string text;
  for (const unsigned char byte :
       std::get<rendezvous::Token>(plan.proof).code_of("dtrun store of job " + plan.run_id))
    text += fmt::format("{:02x}", byte);
  return text;
}

// For each rank the number of cores that it is bound to; without binding, its share of all cores.
std::vector<int> shares_of_cores(const MachineTopology& machine,
                                 const std::vector<RankBinding>& bindings) {
  std::vector<int> shares;
  for (const RankBinding& binding : bindings) {
    const auto same = std::count(bindings.begin(), bindings.end(), binding);
    shares.push_back(std::max(1, cores_of(machine, binding) / static_cast<int>(same)));
  }
  return shares;
}

Letters letters_of(const base::Environment& environment) {
  std::string locale;
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"})
    if (locale.empty()) locale = environment.get(name).value_or("");
  const bool utf8 =
      locale.find("UTF-8") != std::string::npos || locale.find("utf8") != std::string::npos;
  return utf8 ? Letters::kUtf8 : Letters::kAscii;
}

// Rank 0 reads standard input, as with mpirun and srun. A dtrun in the background of a terminal
// must leave the keys to the shell: no SIGTTIN would stop the rank, because it has no controlling
// terminal.
std::optional<int> default_stdin_rank(const Options& options, const StandardStreams& streams) {
  if (options.rounds.max_nodes > 1 || options.adopted || streams.input_is_the_shells)
    return std::nullopt;
  return 0;
}

// With several nodes it is known only later which node has which ranks.
void check_stdin_rank(const Options& options, int local_ranks) {
  const auto& rank = options.output.stdin_rank;
  if (!rank || options.rounds.max_nodes > 1 || *rank < local_ranks) return;
  throw Error(ErrorCode::kUsage, fmt::format("--stdin={} names a rank that the job has not", *rank),
              fmt::format("it has ranks 0 to {}", local_ranks - 1), "name one of these, or none");
}

// The other ranks of this node belong to other dtruns, which would print the same.
void keep_adopted(const AdoptedRank& adopted, LaunchPlan& plan) {
  const auto place = static_cast<std::size_t>(adopted.local_rank);
  plan.bindings = {plan.bindings[place]};
  if (!plan.omp_shares.empty()) plan.omp_shares = {plan.omp_shares[place]};
  if (!plan.virtual_devices.empty()) plan.virtual_devices = {plan.virtual_devices[place]};
  if (adopted.local_rank + adopted.group_rank > 0) plan.warnings.clear();
}

// What each rank has of this node.
void place_ranks(const Options& options, const base::Environment& environment, int ranks_on_node,
                 const MachineFacts& facts, LaunchPlan& plan) {
  plan.bindings =
      bind_ranks(facts.topology, facts.memory, options.binding, ranks_on_node, plan.warnings);
  if (options.omp_threads && options.omp_threads->count == 0)
    plan.omp_shares = shares_of_cores(facts.topology, plan.bindings);
  if (options.virtual_local_rank)
    plan.virtual_devices = virtual_devices(ranks_on_node, environment.get(kVisibleDevices));
  if (options.adopted) keep_adopted(*options.adopted, plan);
}

// With --adopt each rank has a dtrun of its own, which knows no other rank.
rendezvous::WorkerEnv with_place_on_node(rendezvous::WorkerEnv worker, const Options& options) {
  if (!options.adopted) return worker;
  worker.local_rank = options.adopted->local_rank;
  worker.local_world_size = options.adopted->local_world_size;
  worker.group_rank = options.adopted->group_rank;
  worker.group_world_size = options.adopted->group_world_size;
  return worker;
}

// torchrun's way out of sharing its store with the ranks. Its static rendezvous, which it takes for
// several nodes and for a port that is named, does not know it: that port is the agent's.
StoreServer decide_store_server(const Options& options, const base::Environment& environment,
                                std::vector<std::string>& warnings) {
  constexpr const char* kVariable = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE";
  if (environment.get(kVariable) != "1") return StoreServer::kAgent;
  const bool one_at_a_free_port = options.rounds.max_nodes == 1 && !options.master_port;
  if (options.rendezvous != Rendezvous::kStatic || one_at_a_free_port)
    return StoreServer::kRankZero;
  warnings.push_back(
      fmt::format("dtrun: {}=1 is without effect, as with torchrun: at the port of the static "
                  "rendezvous dtrun itself serves the store; --rdzv_backend=c10d has ports of its "
                  "own",
                  kVariable));
  return StoreServer::kAgent;
}

// Nothing else may use the terminal, or end the job while somebody thinks.
void prepare_debugging(const StandardStreams& streams, int local_ranks, Options& options) {
  const auto refuse = [&](const char* why, const char* remedy) {
    throw Error(ErrorCode::kUsage, fmt::format("rank {} cannot be debugged", *options.debug_rank),
                why, remedy);
  };
  if (options.rounds.max_nodes > 1 || options.one_of_hosts || options.adopted)
    refuse("--debug-rank is for a job of one node that dtrun itself starts",
           "on several nodes: dtrun ps there, and gdb -p PID");
  if (*options.debug_rank >= local_ranks)
    refuse("the job has no such rank", "ranks count from 0 to --nproc_per_node minus 1");
  if (options.output.stdin_is_given && (options.output.stdin_rank || options.output.stdin_to_all))
    refuse("--stdin gives the standard input to a program, which the debugger needs",
           "leave --stdin out");
  if (options.dry_run == DryRun::kNo && !(streams.input_is_terminal && streams.output_is_terminal))
    refuse("standard input and output are no terminal",
           "start dtrun from a shell, without a pipe; under Slurm: srun --pty");
  options.output.stdin_rank.reset();
  options.output.status = StatusWish::kNever;
  if (options.stop.progress_timeout.count() > 0 || options.rounds.max_restarts > 0)
    options.warnings.emplace_back(
        "--debug-rank: the job is not restarted, and not looked at for progress");
  options.stop.progress_timeout = {};
  options.rounds.max_restarts = 0;
}

base::ChildCommand make_debug_command(PlannedProgram program, const MachineFacts& facts) {
  base::ChildCommand& command = program.command;
  if (program.is_python) {  // behind the interpreter and -u
    command.arguments.insert(command.arguments.begin() + 2, {"-m", "pdb"});
    return command;
  }
  std::vector<std::string> arguments = {"gdb", "-q", "-return-child-result", "--args",
                                        command.path};
  arguments.insert(arguments.end(), command.arguments.begin() + 1, command.arguments.end());
  command.arguments = std::move(arguments);
  if (const auto* const error = std::get_if<base::SpawnError>(&facts.gdb))
    throw base::SpawnError(Error(error->code(), "--debug-rank needs gdb, which is not in PATH",
                                 error->why(), "install gdb (Debian: apt-get install gdb)"),
                           error->error_number());
  command.path = std::get<std::string>(facts.gdb);
  return command;
}

void plan_programs(const Options& options, const base::Environment& environment,
                   const MachineFacts& facts, LaunchPlan& plan) {
  std::int64_t ranks = 0;
  plan.programs.clear();
  for (std::size_t number = 0; number < options.programs.size(); ++number) {
    const ProgramOptions& program = options.programs[number];
    plan.programs.push_back(plan_program(options, program, environment, facts.programs.at(number)));
    ranks += plan.programs.back().local_ranks;
  }
  constexpr int kMost = rendezvous::rounds::kMostLocalRanks;
  if (ranks > kMost)
    throw Error(ErrorCode::kUsage,
                fmt::format("{} programs with {} ranks on each node", plan.programs.size(), ranks),
                fmt::format("a node has at most {}", kMost), "start fewer");
  plan.local_ranks = static_cast<int>(ranks);
}

// It is wanted, and the reader of standard output does not write to the same terminal.
bool shows_status(const Options& options, const StandardStreams& streams) {
  // With -v agent and guard log much, and with --adopt there is a dtrun for each rank.
  const bool alone = !options.verbose && !options.adopted;
  return options.output.status == StatusWish::kOnTerminal && alone && streams.error_is_terminal &&
         !streams.output_is_pipe;
}

// What its ranks share.
std::vector<std::string> environment_of_program(const Options& options, std::size_t number,
                                                base::Environment common) {
  for (const auto& [name, value] : options.programs[number].variables) common.set(name, value);
  // Variables that each rank gets a value of its own for must not be inherited.
  base::Environment own;
  rendezvous::write_worker_env({}, own);
  for (const auto& [name, value] : own.variables()) common.unset(name);
  if (options.virtual_local_rank) common.unset(kVisibleDevices);
  if (options.omp_threads && options.omp_threads->count == 0) common.unset("OMP_NUM_THREADS");
  common.unset("TORCHELASTIC_ERROR_FILE");
  rendezvous::forget_job_page(common);
  common.unset("DTRUN_STORE_TOKEN");
  // Ranks do not inherit this connection. An MPI program would write to whatever descriptor has its
  // number.
  common.unset("PMI_FD");
  common.unset("PMI_PORT");
  common.unset("PMI_ID");
  common.unset("DTRUN_IS_DEBUGGED");
  common.unset(kTokenVariable);
  common.unset(kProgramNumber);
  if (options.programs.size() > 1) common.set(kProgramNumber, std::to_string(number));
  common.set("TORCHELASTIC_SIGNALS_TO_HANDLE", options.stop.handled);
  // A Python rank that crashes says where, and the failure table shows it.
  if (!common.get(kPythonFaults)) common.set(kPythonFaults, "1");
  if (options.debug_rank) common.set("DTRUN_IS_DEBUGGED", "1");
  return common.as_strings();
}

}  // namespace

int LaunchPlan::shown_node(int group_rank) const {
  return options.adopted ? options.adopted->node.value_or(group_rank) : group_rank;
}

std::size_t LaunchPlan::program_of(int local_rank) const {
  std::size_t number = 0;
  // The last has all the rest: an adopted rank, the only one of its dtrun, may have any number.
  for (; number + 1 < programs.size() && local_rank >= programs[number].local_ranks; ++number)
    local_rank -= programs[number].local_ranks;
  return number;
}

std::string LaunchPlan::program_name(int local_rank) const {
  if (programs.size() == 1 || (local_rank >= 0 && local_rank < local_ranks))
    return programs[program_of(local_rank)].name;
  std::string names;
  for (const PlannedProgram& program : programs)
    names += fmt::format("{}{}", names.empty() ? "" : " : ", program.name);
  return names;
}

LaunchPlan make_plan(Options options, const base::Environment& environment,
                     const MachineFacts& facts) {
  LaunchPlan plan;
  plan_programs(options, environment, facts, plan);
  plan.descriptors_of_guard = descriptors_of_guard(options, plan.local_ranks);
  plan.descriptors_of_agent = descriptors_of_agent(options, plan.local_ranks);
  const std::size_t open_files =
      open_files_limit(facts.open_files, plan.descriptors_of_guard, plan.local_ranks);
  plan.run_id = !options.run_id.empty()         ? options.run_id
                : options.rounds.max_nodes == 1 ? facts.fresh_run_id
                                                : "none";
  plan.report_file = environment.get("TORCHELASTIC_ERROR_FILE").value_or("");
  plan.proof = make_proof(choose_proof(options, environment), environment, facts);
  warn_of_unused_proof(options, plan.warnings);
  if (demands_store_token(options, plan, facts)) plan.store_token = make_store_token(plan);
  plan.nccl_async = environment.get(kNcclAsync).value_or("");
  plan.letters = letters_of(environment);
  plan.store_server = decide_store_server(options, environment, plan.warnings);
  if (!options.output.stdin_is_given)
    options.output.stdin_rank = default_stdin_rank(options, facts.streams);
  check_stdin_rank(options, plan.local_ranks);
  if (options.debug_rank) prepare_debugging(facts.streams, plan.local_ranks, options);
  base::Environment common = environment;
  const int ranks_on_node = options.adopted ? options.adopted->local_world_size : plan.local_ranks;
  limit_omp_threads(ranks_on_node, options, common, plan.warnings);
  name_interface(options.interface_name, common);
  place_ranks(options, environment, ranks_on_node, facts, plan);
  for (std::size_t number = 0; number < plan.programs.size(); ++number) {
    base::ChildCommand& command = plan.programs[number].command;
    // The limit that agent and guard raise for themselves is not the ranks' business.
    command.open_files_soft_limit = open_files;
    command.environment = environment_of_program(options, number, common);
  }
  if (options.debug_rank)
    plan.debug_command =
        make_debug_command(plan.programs[plan.program_of(*options.debug_rank)], facts);
  plan.warnings.insert(plan.warnings.end(), options.warnings.begin(), options.warnings.end());
  for (std::string& warning : options.output.warnings(plan.local_ranks))
    plan.warnings.push_back(std::move(warning));
  plan.foreground = facts.foreground;
  plan.shows_status = shows_status(options, facts.streams);
  plan.options = std::move(options);
  return plan;
}

base::ChildCommand command_of_rank(const LaunchPlan& plan, int local_rank) {
  base::ChildCommand command = plan.options.debug_rank == local_rank
                                   ? plan.debug_command
                                   : plan.programs[plan.program_of(local_rank)].command;
  const std::optional<AdoptedRank>& adopted = plan.options.adopted;
  const std::string number = std::to_string(adopted ? adopted->local_rank : local_rank);
  for (std::string& argument : command.arguments)
    for (auto at = argument.find(kLocalRankMacro); at != std::string::npos;
         at = argument.find(kLocalRankMacro, at + number.size()))
      argument.replace(at, kLocalRankMacro.size(), number);
  return command;
}

std::vector<std::string> rank_environment(const LaunchPlan& plan,
                                          const rendezvous::WorkerEnv& worker) {
  base::Environment own;
  if (!plan.nccl_async.empty()) own.set(kNcclAsync, plan.nccl_async);
  if (!plan.omp_shares.empty())
    own.set("OMP_NUM_THREADS",
            std::to_string(plan.omp_shares[static_cast<std::size_t>(worker.local_rank)]));
  rendezvous::WorkerEnv seen = with_place_on_node(worker, plan.options);
  seen.use_agent_store = plan.store_server == StoreServer::kAgent;
  if (!plan.virtual_devices.empty()) {
    own.set(kVisibleDevices, plan.virtual_devices[static_cast<std::size_t>(worker.local_rank)]);
    seen.local_rank = 0;
  }
  rendezvous::write_worker_env(seen, own);
  return own.as_strings();
}

}  // namespace dtrun::launcher
