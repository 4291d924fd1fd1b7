// Options: the command line of dtrun, read once at the start. One table (option_table()) says which
// options there are; parsing, help, environment defaults and suggestions all come from it.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "binding.h"
#include "dtrun/base/env.h"
#include "dtrun/base/socket.h"
#include "dtrun/rendezvous/round_messages.h"
#include "port_range.h"

namespace dtrun::launcher {

struct OptionRow {
  const char* name;   ///< long spelling, with '-'
  char letter;        ///< short spelling; 0: none
  const char* value;  ///< what the value is called in help; nullptr: a flag
  const char* help;   ///< nullptr: torchrun has it, this version does not
};

const std::vector<OptionRow>& option_table();

enum class Request { kRun, kHelp, kVersion };
enum class Tagging { kAuto, kAlways, kNever };
/// How the agents of several nodes find their head: at --master_addr, by --node_rank; or, with the
/// same line on every node, on the machine that --rdzv_endpoint names, through the file that it
/// names (store_type=file), or through etcd's election.
enum class Rendezvous { kStatic, kC10d, kFile, kEtcd };
/// What OMP_NUM_THREADS the ranks get.
struct OmpThreads {
  int count = 0;  ///< 0: the cores that each rank has
};
/// Whether this agent is the one that serves the endpoint (is_host of --rdzv_conf).
enum class Hosting { kByAddress, kAlways, kNever };
enum class EtcdProtocol { kHttp, kHttps };

/// How etcd is reached. Files in PEM; empty: none.
struct EtcdAccess {
  std::vector<base::HostPort> endpoints;  ///< of --rdzv_endpoint; each has a port
  EtcdProtocol protocol = EtcdProtocol::kHttp;
  std::string certificate_file;
  std::string key_file;        ///< empty: in the certificate's file
  std::string authority_file;  ///< of who has signed etcd's certificate
};

struct Options {
  Request request = Request::kRun;
  std::string local_ranks = "1";  ///< a number, "cpu", "gpu" or "auto"
  Rendezvous rendezvous = Rendezvous::kStatic;
  /// How many nodes, how often, how long: what head and members of the rounds are given.
  rendezvous::rounds::RoundSettings rounds;
  Hosting hosting = Hosting::kByAddress;
  std::optional<int> node_rank;  ///< none: given out
  /// Where the agents meet: --master_addr, or --rdzv_endpoint; with etcd, where that listens.
  std::string master_addr = "127.0.0.1";
  std::optional<std::uint16_t> master_port;  ///< none: the kernel's choice
  std::string head_file;                     ///< of Rendezvous::kFile: the path of the endpoint
  EtcdAccess etcd;
  std::string local_addr;  ///< by which the other nodes reach this one; empty: found out
  PortRange ports;         ///< where no port is named
  /// How long a head may be waited for at the endpoint, where nobody listens; none: the user has
  /// not said how long others may take.
  std::optional<std::chrono::nanoseconds> head_patience;
  /// The nodes of this Slurm step, as Slurm writes them, where all of the job's are among them.
  std::string step_nodes;
  std::string token_file;       ///< empty: none
  bool token_of_munge = false;  ///< munge shows the agents who they are
  std::string role = "default";
  std::string run_id;   ///< empty: made by the plan
  std::string log_dir;  ///< empty: a private folder, removed at the end
  Tagging tagging = Tagging::kAuto;
  BindingKind binding = BindingKind::kNone;
  std::optional<OmpThreads> omp_threads;  ///< none: as torchrun does
  std::chrono::nanoseconds shutdown_grace = std::chrono::seconds(30);
  std::chrono::nanoseconds answer_timeout = std::chrono::seconds(10);  ///< of the head to a hello
  bool module = false;
  bool no_python = false;
  bool pass_local_rank = false;  ///< --local-rank=N before the program's own arguments
  bool verbose = false;
  std::vector<std::string> warnings;  ///< what was given and has no effect
  std::vector<std::string> program;   ///< the program and its arguments, verbatim
};

/// @param called_as argv[0]: a link named torch.distributed.launch passes --local-rank, as it does
/// @param arguments without argv[0]
/// @throws Error kUsage that names the option or the variable
Options parse_options(const std::string& called_as, const std::vector<std::string>& arguments,
                      const base::Environment& environment);

}  // namespace dtrun::launcher
