// Options: the command line of dtrun, read once at the start. option_table.h lists the options.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cpus/binding.h"
#include "dtrun/base/env.h"
#include "dtrun/base/socket.h"
#include "dtrun/rendezvous/round_messages.h"
#include "engines/engine.h"
#include "options/called_as.h"
#include "options/command_line.h"
#include "options/output_options.h"
#include "options/port_range.h"
#include "options/program_options.h"
#include "options/stop_options.h"

namespace dtrun::launcher {

/// How the job's processes are kept together, besides by the reapers; kAuto: the strongest safe
/// way.
enum class ContainmentWish { kAuto, kCgroup, kNamespace, kGuard };
/// How the agents of several nodes find their head: at --master_addr, by --node_rank; or, with the
/// same line on every node, on the machine that --rdzv_endpoint names, through the file that it
/// names (store_type=file), or through etcd's election.
enum class Rendezvous { kStatic, kC10d, kFile, kEtcd };
/// The ranks' OMP_NUM_THREADS.
struct OmpThreads {
  int count = 0;  ///< 0: the cores that each rank has
};
/// Whether this agent is the one that serves the endpoint (is_host of --rdzv_conf).
enum class Hosting { kByAddress, kAlways, kNever };
enum class DryRun { kNo, kTable, kJson };
enum class EventLog { kNone, kConsole };
enum class EtcdProtocol { kHttp, kHttps };
/// The proof without a token. kByPlace: munge where it runs, else none.
enum class AgentProof { kByPlace, kMunge, kNone };

/// How etcd is reached. Files in PEM; empty: none.
struct EtcdAccess {
  std::vector<base::HostPort> endpoints;  ///< of --rdzv_endpoint; each has a port
  bool named = false;                     ///< else torchrun's localhost
  EtcdProtocol protocol = EtcdProtocol::kHttp;
  std::string certificate_file;
  std::string key_file;        ///< empty: in the certificate's file
  std::string authority_file;  ///< of who has signed etcd's certificate
};

/// The form of --timing's report.
enum class TimingForm { kNone, kText, kJson };

struct Options {
  Rendezvous rendezvous = Rendezvous::kStatic;
  /// How many nodes, how often, how long: the settings of head and members.
  rendezvous::rounds::RoundSettings rounds;
  Hosting hosting = Hosting::kByAddress;
  std::optional<int> node_rank;  ///< none: given out
  /// Where the agents meet: --master_addr, or --rdzv_endpoint; with etcd, where that listens.
  std::string master_addr = "127.0.0.1";
  std::vector<std::string> master_addresses;  ///< its, if they have been looked up already
  std::optional<std::uint16_t> master_port;   ///< none: the kernel's choice
  /// The socket at which a node 0 of dtrun --hosts listens already. The code that takes it owns it.
  std::optional<int> listener_fd;
  /// Started by dtrun --hosts: notices that all nodes would print are printed once.
  bool one_of_hosts = false;
  std::string head_file;  ///< of Rendezvous::kFile: the path of the endpoint
  EtcdAccess etcd;
  std::string local_addr;      ///< by which the other nodes reach this one; empty: found out
  std::string interface_name;  ///< of the ranks; empty: that of the route to the master
  PortRange ports;             ///< where no port is named
  /// How long to wait at the endpoint while no head listens there; none: the user has not said how
  /// long others may take.
  std::optional<std::chrono::nanoseconds> head_patience;
  /// The nodes of this Slurm step, as Slurm writes them, where all of the job's are among them.
  std::string step_nodes;
  std::string token_file;  ///< empty: none
  AgentProof proof = AgentProof::kByPlace;
  /// Whether the ranks' store asks for a token where the agents have one; none: where the
  /// program's file shows that the ranks present it.
  std::optional<bool> store_token;
  /// How long a signal for the ranks waits for the sign that its sender has signalled them, too.
  std::chrono::nanoseconds shared_signal_wait{};
  /// The engine that has started this dtrun, and what follows from it, for -v; empty: not known.
  std::string engine_note;
  std::optional<AdoptedRank> adopted;  ///< --adopt
  std::string role = "default";
  std::string run_id;  ///< empty: made by the plan
  OutputOptions output;
  BindingKind binding = BindingKind::kNone;
  std::optional<OmpThreads> omp_threads;  ///< none: as torchrun does
  StopOptions stop;
  std::chrono::nanoseconds answer_timeout = std::chrono::seconds(10);  ///< of the head to a hello
  CalledAs called_as = CalledAs::kDtrun;
  bool ends_as_torchrun = false;  ///< by its name, and without --exit: 1 for whatever is not well
  ContainmentWish containment = ContainmentWish::kAuto;
  bool module = false;
  bool no_python = false;
  bool run_path = false;            ///< PROGRAM is Python's, whatever it is called
  bool virtual_local_rank = false;  ///< each rank sees one device, as number 0
  EventLog event_log = EventLog::kNone;
  std::string on_restart;    ///< a shell command; empty: none
  std::string health_check;  ///< the same
  std::chrono::nanoseconds restart_command_timeout = std::chrono::seconds(60);  ///< of each
  std::string events_file;  ///< of --events; empty: none
  /// Where metrics are served, with a port (0: any); none: nowhere.
  std::optional<base::HostPort> metrics;
  bool pass_local_rank = false;  ///< --local-rank=N before the program's own arguments
  DryRun dry_run = DryRun::kNo;
  bool verbose = false;
  bool report_bindings = false;
  std::optional<int> debug_rank;  ///< runs under a debugger, on the terminal
  TimingForm timing = TimingForm::kNone;
  std::string users_file;             ///< the user's own configuration, where there is one; for -v
  std::vector<std::string> warnings;  ///< what was given and has no effect
  std::vector<std::string> notes;     ///< the same, for -v alone
  /// At least one, in the order of their ranks on each node.
  std::vector<ProgramOptions> programs{1};

  /// A warning if the option is on the command line; a note for -v if it is from the environment or
  /// a file, where it may serve all jobs.
  void tell_without_effect(const GivenValue& given, const std::string& why);
};

/// @param line of gather_options()
/// @param name argv[0]
/// @throws Error kUsage that names the option or the variable
Options read_options(const std::string& name, CommandLine line,
                     const base::Environment& environment);

}  // namespace dtrun::launcher
