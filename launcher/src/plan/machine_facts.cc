#include "plan/machine_facts.h"

#include <fmt/core.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "cpus/cuda_devices.h"
#include "dtrun/base/cpu_list.h"
#include "dtrun/rendezvous/munge.h"
#include "plan/program_file.h"
#include "plan/proof_source.h"

namespace dtrun::launcher {
namespace {

std::string new_run_id() {
  unsigned char bytes[8] = {};
  if (::getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
    throw base::system_error("get random bytes");
  std::string result;
  for (const unsigned char byte : bytes) result += fmt::format("{:02x}", byte);
  return result;
}

// To make a Munge asks munged for a seal, so only where it is the proof.
std::shared_ptr<rendezvous::Realm> find_munge(ProofSource source,
                                              const base::Environment& environment) {
  if (source != ProofSource::kMunge && source != ProofSource::kMungeIfItRuns) return nullptr;
  const rendezvous::MungeOptions munge{.socket =
                                           environment.get("DTRUN_MUNGE_SOCKET").value_or("")};
  if (source == ProofSource::kMungeIfItRuns && !rendezvous::munge_runs(munge)) return nullptr;
  return std::make_shared<rendezvous::Munge>(munge);
}

// Where the agents have a token, and the user has not said whether the store asks for one. One
// program that does not present it settles the matter.
void look_for_store_token(const Options& options, ProofSource source, MachineFacts& facts) {
  const bool is_token = source == ProofSource::kVariable || source == ProofSource::kFile;
  if (!is_token || options.store_token) return;
  for (ProgramFacts& program : facts.programs) {
    program.presents_store_token = presents_store_token(program.path);
    if (!program.presents_store_token) return;
  }
}

// Where ranks are bound, or get as many threads as they have cores. To find the devices opens
// CUDA's driver, so only for a binding.
void look_at_cpus(const Options& options, MachineFacts& facts) {
  const bool binds = options.binding != BindingKind::kNone;
  const bool shares_cores = options.omp_threads && options.omp_threads->count == 0;
  if (!binds && !shares_cores) return;
  facts.topology = read_machine(base::allowed_cpus(),
                                binds ? visible_cuda_devices() : std::vector<std::string>());
  if (binds) facts.memory = read_memory_rights();
}

StandardStreams look_at_streams(const Options& options) {
  StandardStreams streams{.input_is_terminal = ::isatty(STDIN_FILENO) == 1,
                          .output_is_terminal = ::isatty(STDOUT_FILENO) == 1,
                          .error_is_terminal = ::isatty(STDERR_FILENO) == 1};
  struct stat status {};
  if (streams.error_is_terminal && !streams.output_is_terminal)
    streams.output_is_pipe = ::fstat(STDOUT_FILENO, &status) == 0 &&
                             (S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode));
  if (streams.input_is_terminal && !options.output.stdin_is_given) {
    const pid_t group = ::tcgetpgrp(STDIN_FILENO);
    streams.input_is_the_shells = group >= 0 && group != ::getpgrp();
  }
  return streams;
}

std::variant<std::string, base::SpawnError> find_gdb(const base::Environment& environment) {
  try {
    return base::find_program("gdb", environment.get("PATH").value_or(""));
  } catch (const base::SpawnError& error) {
    return error;
  }
}

// Python has a debugger of its own.
bool may_need_gdb(const Options& options, const MachineFacts& facts) {
  for (std::size_t number = 0; number < options.programs.size(); ++number)
    if (!runs_in_python(options, options.programs[number].words[0],
                        facts.programs[number].is_data_file))
      return options.debug_rank.has_value();
  return false;
}

}  // namespace

MachineFacts look_at_machine(const Options& options, const base::Environment& environment) {
  MachineFacts facts;
  facts.programs.clear();
  for (const ProgramOptions& program : options.programs)
    facts.programs.push_back(look_at_program(options, program, environment));
  ::getrlimit(RLIMIT_NOFILE, &facts.open_files);
  if (options.run_id.empty() && options.rounds.max_nodes == 1) facts.fresh_run_id = new_run_id();
  const ProofSource source = choose_proof(options, environment);
  if (source == ProofSource::kFile)
    facts.file_token = rendezvous::Token::from_file(options.token_file, "--rdzv_conf token_file=");
  facts.munge = find_munge(source, environment);
  look_for_store_token(options, source, facts);
  look_at_cpus(options, facts);
  facts.streams = look_at_streams(options);
  if (facts.streams.input_is_terminal || facts.streams.output_is_terminal ||
      facts.streams.error_is_terminal)
    facts.foreground = std::make_shared<Foreground>();
  // An interface that is not there is an error of this dtrun, not of each rank.
  if (!options.interface_name.empty())
    base::address_of_interface(options.interface_name, "--iface=" + options.interface_name);
  if (may_need_gdb(options, facts)) facts.gdb = find_gdb(environment);
  return facts;
}

}  // namespace dtrun::launcher
