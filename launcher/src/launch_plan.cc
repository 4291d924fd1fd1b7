#include "launch_plan.h"

#include <fmt/core.h>
#include <sys/random.h>
#include <sys/resource.h>

#include <algorithm>

#include "device_count.h"
#include "dtrun/base/log.h"
#include "dtrun/rendezvous/munge.h"

namespace dtrun::launcher {
namespace {

using base::Error;
using base::ErrorCode;

constexpr std::string_view kLocalRankMacro = "${local_rank}";
constexpr const char* kTokenVariable = "DTRUN_TOKEN";
constexpr const char* kMungeSocketVariable = "DTRUN_MUNGE_SOCKET";
constexpr const char* kNcclAsync = "TORCH_NCCL_ASYNC_ERROR_HANDLING";

int decide_local_ranks(const std::string& wish, const base::Environment& environment) {
  if (const auto number = base::parse_integer(wish)) return static_cast<int>(*number);
  if (wish == "cpu") return count_cpus();
  const auto visible = environment.get("CUDA_VISIBLE_DEVICES");
  const int gpus = count_gpus(visible);
  if (gpus > 0) return gpus;
  if (wish == "auto") return count_cpus();
  throw Error(ErrorCode::kUnavailable, "--nproc_per_node=gpu, but there is no GPU here",
              visible ? fmt::format("CUDA_VISIBLE_DEVICES='{}' is in force", *visible)
                      : "neither NVML nor /proc/driver/nvidia shows one",
              "--nproc_per_node=cpu, auto or a number");
}

std::string new_run_id() {
  unsigned char bytes[8] = {};
  if (::getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
    throw base::system_error("get random bytes");
  std::string result;
  for (const unsigned char byte : bytes) result += fmt::format("{:02x}", byte);
  return result;
}

// The limit that this process raises for itself is not the ranks' business. Returns what it was.
std::size_t raise_open_files_limit(int local_ranks) {
  // Of the guard: two pipes and a pidfd for each rank, and its own.
  constexpr std::size_t kOwn = 32, kPerRank = 3;
  const std::size_t needed = kOwn + kPerRank * static_cast<std::size_t>(local_ranks);
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const std::size_t before = limit.rlim_cur;
  if (limit.rlim_max < needed)
    throw Error(ErrorCode::kSystem, fmt::format("{} ranks need {} open files", local_ranks, needed),
                fmt::format("the limit is {}", limit.rlim_max),
                "raise the limit of open files (ulimit -n), or start fewer ranks");
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  return before;
}

bool ends_with_py(const std::string& name) {
  return name.size() > 3 && name.compare(name.size() - 3, 3, ".py") == 0;
}

base::ChildCommand make_command(const Options& options, const base::Environment& environment) {
  base::ChildCommand command;
  const std::string path = environment.get("PATH").value_or("/usr/local/bin:/usr/bin:/bin");
  const bool python = !options.no_python && (options.module || ends_with_py(options.program[0]));
  if (python) {
    const std::string interpreter = environment.get("PYTHON_EXEC").value_or("python3");
    command.path = base::find_program(interpreter, path);
    command.arguments = {interpreter, "-u"};
    if (options.module) command.arguments.emplace_back("-m");
  } else {
    command.path = base::find_program(options.program[0], path);
  }
  command.arguments.push_back(options.program[0]);
  // torch.distributed.launch puts it there, before the program's own.
  if (options.pass_local_rank)
    command.arguments.push_back(fmt::format("--local-rank={}", kLocalRankMacro));
  command.arguments.insert(command.arguments.end(), options.program.begin() + 1,
                           options.program.end());
  return command;
}

void tell_bindings(const LaunchPlan& plan) {
  for (std::size_t rank = 0; rank < plan.bindings.size(); ++rank)
    if (const RankBinding& binding = plan.bindings[rank]; !binding.cpus.empty())
      base::log::info(base::log::Component::kLauncher, "local rank {}: {}", rank,
                      binding.describe());
}

// Without a word of the user's, torchrun's rule, and its text: people look for it.
void limit_omp_threads(const LaunchPlan& plan, const std::optional<OmpThreads>& wish,
                       base::Environment& environment, std::vector<std::string>& warnings) {
  if (wish && wish->count > 0)
    return environment.set("OMP_NUM_THREADS", std::to_string(wish->count));
  if (wish) return environment.unset("OMP_NUM_THREADS");  // each rank gets its own
  if (plan.local_ranks == 1 || environment.contains("OMP_NUM_THREADS")) return;
  environment.set("OMP_NUM_THREADS", "1");
  warnings.push_back(
      "\n*****************************************\n"
      "Setting OMP_NUM_THREADS environment variable for each process to be 1 in default, to avoid "
      "your system being overloaded, please further tune the variable for optimal performance in "
      "your application as needed. \n"
      "*****************************************");
}

// Of the job's agents only: what the ranks have in their environment, their children and logs have.
rendezvous::Proof find_proof(const Options& options, const base::Environment& environment) {
  const auto secret = environment.get(kTokenVariable);
  std::vector<std::string> given;
  if (secret) given.emplace_back(kTokenVariable);
  if (!options.token_file.empty()) given.emplace_back("token_file in --rdzv_conf");
  if (options.token_of_munge) given.emplace_back("token=munge in --rdzv_conf");
  if (given.size() > 1)
    throw Error(ErrorCode::kUsage,
                fmt::format("two tokens are given, {} and {}", given[0], given[1]), "",
                "leave one of them out");
  if (options.rounds.max_nodes == 1) return {};  // no other agent can come
  if (secret) return rendezvous::Token(*secret, kTokenVariable);
  if (options.token_of_munge)
    return std::make_shared<rendezvous::Munge>(
        rendezvous::MungeOptions{.socket = environment.get(kMungeSocketVariable).value_or("")});
  if (options.token_file.empty()) return {};
  return rendezvous::Token::from_file(options.token_file, "--rdzv_conf token_file=");
}

// Of each rank: the cores that it is bound to; else its part of all.
std::vector<int> shares_of_cores(const std::vector<RankBinding>& bindings) {
  const base::CpuTopology topology = base::CpuTopology::of_this_process();
  std::vector<int> shares;
  for (const RankBinding& binding : bindings) {
    const auto same = std::count(bindings.begin(), bindings.end(), binding);
    shares.push_back(std::max(1, cores_of(topology, binding) / static_cast<int>(same)));
  }
  return shares;
}

}  // namespace

LaunchPlan make_plan(Options options, const base::Environment& environment) {
  LaunchPlan plan;
  plan.local_ranks = decide_local_ranks(options.local_ranks, environment);
  plan.program_name = options.program[0];
  plan.command = make_command(options, environment);
  plan.command.open_files_soft_limit = raise_open_files_limit(plan.local_ranks);
  plan.run_id = !options.run_id.empty()         ? options.run_id
                : options.rounds.max_nodes == 1 ? new_run_id()
                                                : "none";
  plan.report_file = environment.get("TORCHELASTIC_ERROR_FILE").value_or("");
  plan.proof = find_proof(options, environment);
  plan.nccl_async = environment.get(kNcclAsync).value_or("");
  plan.colour = environment.get("NO_COLOR").value_or("").empty() &&
                environment.get("TERM").value_or("dumb") != "dumb";
  base::Environment common = environment;
  limit_omp_threads(plan, options.omp_threads, common, plan.warnings);
  plan.bindings = bind_ranks(options.binding, plan.local_ranks,
                             environment.get("CUDA_VISIBLE_DEVICES"), plan.warnings);
  tell_bindings(plan);
  if (options.omp_threads && options.omp_threads->count == 0)
    plan.omp_shares = shares_of_cores(plan.bindings);
  // What each rank gets for itself must not come from outside as well.
  base::Environment own;
  rendezvous::write_worker_env({}, own);
  for (const auto& [name, value] : own.variables()) common.unset(name);
  common.unset("TORCHELASTIC_ERROR_FILE");
  common.unset("DTRUN_JOB_PAGE_FD");
  common.unset(kTokenVariable);
  common.set("TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGINT,SIGHUP,SIGQUIT");
  plan.command.environment = common.as_strings();
  plan.warnings.insert(plan.warnings.end(), options.warnings.begin(), options.warnings.end());
  plan.options = std::move(options);
  return plan;
}

base::ChildCommand command_of_rank(const LaunchPlan& plan, int local_rank) {
  base::ChildCommand command = plan.command;
  const std::string number = std::to_string(local_rank);
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
  rendezvous::write_worker_env(worker, own);
  return own.as_strings();
}

}  // namespace dtrun::launcher
