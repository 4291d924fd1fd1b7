#include "options/option_table.h"

#include <algorithm>

#include "dtrun/base/check.h"

namespace dtrun::launcher {
namespace {

using G = OptionGroup;
using R = OptionReach;

constexpr OptionRow kRows[] = {
    {"nproc-per-node", 0, "N|cpu|gpu|auto", G::kRanks,
     "ranks on this node; auto: as many as GPUs, else CPUs", "1"},
    {"nnodes", 0, "N|MIN:MAX", G::kRanks,
     "nodes of the job; MIN:MAX: it begins with MIN, others come and go (docs/elastic.md)", "1"},
    {"node-rank", 0, "N", G::kRanks, "this node's number, from 0 (static: 0; else given out)"},
    {"standalone", 0, nullptr, G::kRanks, "one node, nothing shared with other jobs here"},
    {"role", 0, "NAME", G::kRanks, "role of these ranks", "default"},
    {"hosts", 0, "HOST[:N],...", G::kHosts,
     "start dtrun on these hosts, with N ranks each: a:4,b:4, or gpu[1-8]:4 (--nproc_per_node); "
     "over ssh (docs/hosts.md)",
     nullptr, R::kNotInFiles},
    {"hostfile", 0, "FILE", G::kHosts,
     "the hosts of a file: a slots=4 (Open MPI), a:4 (MPICH), or a, one in a line", nullptr,
     R::kNotInFiles},
    {"remote-shell", 0, "COMMAND", G::kHosts,
     "what runs a command on another host, as COMMAND HOST dtrun ... (ssh, which asks for no "
     "password)"},
    {"ssh-persist", 0, "SECONDS", G::kHosts,
     "keep the ssh connections open so long after the job: a dtrun that starts on these hosts "
     "meanwhile uses them; 0: close them (docs/hosts.md)",
     "60"},
    {"remote-dtrun", 0, "PATH", G::kHosts,
     "dtrun on the other hosts (this one's path, where it was called by one; else dtrun)"},
    {"hosts-fanout", 0, "N", G::kHosts,
     "the most hosts that one dtrun starts itself; more hosts are started by those", "32"},
    {"master-addr", 0, "HOST", G::kMeeting, "static: address of node 0", "127.0.0.1"},
    {"master-port", 0, "PORT", G::kMeeting,
     "static: port of node 0 (one node: a free one; else 29500)"},
    {"rdzv-backend", 0, "static|c10d|etcd-v2", G::kMeeting,
     "how nodes find each other: by --node_rank and --master_addr, by --rdzv_endpoint alone, "
     "or through etcd; etcd is the same as etcd-v2",
     "static"},
    {"rdzv-endpoint", 0, "HOST[:PORT]", G::kMeeting,
     "c10d: one of the nodes, the same on all; dtrun there hosts (port 29400). With "
     "store_type=file: a path that all nodes share. etcd-v2: the members of etcd, with commas "
     "(port 2379)"},
    {"rdzv-id", 0, "ID", G::kMeeting, "name of the job, the same on all nodes (none)"},
    {"rdzv-conf", 0, "K=V,K=V", G::kMeeting,
     "times (join_timeout, last_call_timeout, keep_alive_interval ...); who hosts (is_host, "
     "store_type); who may join (token_file, token, store_token); how etcd is reached (protocol, "
     "ca_cert ...): all: docs/elastic.md"},
    {"join-timeout", 0, "SECONDS", G::kMeeting, "how long to wait for the other nodes", "600"},
    {"local-addr", 0, "HOST", G::kMeeting, "how the other nodes reach this one (found out)"},
    {"iface", 0, "NAME", G::kMeeting,
     "the network interface that ranks use: DTRUN_SOCKET_IFNAME, and GLOO_SOCKET_IFNAME and "
     "NCCL_SOCKET_IFNAME where they are not set (that of the route)"},
    {"port-range", 0, "A:B", G::kMeeting, "ports to listen on where none is named (any)"},
    {"module", 'm', nullptr, G::kProgram, "PROGRAM is a Python module: python3 -u -m PROGRAM"},
    {"no-python", 0, nullptr, G::kProgram, "execute PROGRAM itself, though it is called *.py"},
    {"pass-local-rank", 0, nullptr, G::kProgram,
     "--local-rank=N before PROGRAM's own arguments, as torch.distributed.launch does"},
    {"use-env", 0, nullptr, G::kProgram,
     "no --local-rank, though dtrun is called torch.distributed.launch"},
    {"run-path", 0, nullptr, G::kProgram,
     "PROGRAM is a Python file, folder or archive: python3 -u PROGRAM; it wins over --module and "
     "--no_python"},
    {"virtual-local-rank", 0, nullptr, G::kProgram,
     "every rank has LOCAL_RANK=0 and sees one GPU: its own entry of CUDA_VISIBLE_DEVICES"},
    {"wdir", 0, "FOLDER", G::kProgram,
     "the folder that the ranks work in, on every host (this one)"},
    {"env", 'x', "NAME[=VALUE]", G::kProgram,
     "a variable that the ranks on all hosts get; without VALUE, as it is here; -x may be "
     "repeated",
     nullptr, R::kCommandLineOnly, OptionRepeats::kAllCount},
    {"debug-rank", 0, "N", G::kProgram,
     "run rank N under a debugger on this terminal: pdb for Python, gdb for other programs; one "
     "node (docs/debugging.md)",
     nullptr, R::kCommandLineOnly},
    {"max-restarts", 0, "N", G::kRestart,
     "how often the whole job is started again after a failure", "0"},
    {"restart-scope", 0, "job|agent", G::kRestart,
     "what max_restarts counts: all failures of the job, or those of each node's own ranks, as "
     "torchrun does",
     "job"},
    {"restart-backoff", 0, "SECONDS[:MOST]", G::kRestart,
     "pause before the first restart, twice as long before each further one, MOST (300) at the "
     "most",
     "0"},
    {"on-restart", 0, "COMMAND", G::kRestart,
     "what each node runs before a restart, by sh -c (docs/supervision.md)"},
    {"health-check", 0, "COMMAND", G::kRestart,
     "the same, after it: a node where it fails takes no part in the job any more"},
    {"restart-command-timeout", 0, "SECONDS", G::kRestart,
     "how long each of both may take; then it is killed, and has failed", "60"},
    {"give-up-on", 0, "RULE,...", G::kRestart,
     "failures after which nothing is started again: alike[:TIME]: the same one, by exit code or "
     "signal, twice in a row, each within TIME (10) of the start; code:N: a rank has failed with N",
     "none"},
    {"shutdown-timeout", 0, "SECONDS", G::kStop,
     "from SIGTERM to SIGKILL when dtrun is stopped (or TORCH_ELASTIC_SHUTDOWN_TIMEOUT)", "30"},
    {"signals-to-handle", 0, "NAME,...", G::kStop, "signals that stop the job",
     "SIGTERM,SIGINT,SIGHUP,SIGQUIT"},
    {"on-signal", 0, "NAME=ACTION,...", G::kStop,
     "what a signal to dtrun does: stop[:TIME] the job; drain[:TIME]: pass it to this node's "
     "ranks, then stop those that have not ended; forward it to them; pause them and dtrun; "
     "ignore it (docs/supervision.md)",
     "TERM=stop,INT=stop,QUIT=stop,HUP=stop,USR1=forward,USR2=forward,TSTP=pause"},
    {"restart-timeout", 0, "SECONDS", G::kStop,
     "from SIGTERM to SIGKILL before a restart (as long as when dtrun is stopped)"},
    {"failure-timeout", 0, "SECONDS", G::kStop,
     "from SIGTERM to SIGKILL when the job has failed (as long as when dtrun is stopped)"},
    {"exit", 0, "first|max|rank:R|map:C=C,...", G::kStop,
     "the exit code after a failure: that of the rank that failed first, the highest, that of rank "
     "R; or other codes for some, such as map:85=85,oom=93,*=1",
     "first"},
    {"progress-timeout", 0, "TIME", G::kStop,
     "tell which rank has not come, when others have been in one collective for so long: 300, 5m "
     "(docs/flight_recorder.md); 0: never",
     "0"},
    {"on-progress-timeout", 0, "report|end", G::kStop,
     "end: also end that rank, by SIGABRT, so that the job fails or restarts", "report"},
    {"containment", 0, "auto|cgroup|namespace|guard", G::kStop,
     "how dtrun makes sure that no process is left: guard: by the guard alone; cgroup: also by a "
     "cgroup of the job; auto: by one where it can be made; namespace: also by a pid namespace "
     "(docs/launching.md)",
     "auto"},
    {"log-dir", 0, "FOLDER", G::kOutput,
     "where files of the ranks are kept (a temporary folder): what -r and -t ask for, and their "
     "error.json; /dev/null: none"},
    {"flight-recorder", 0, "FOLDER", G::kOutput,
     "when a round fails, the last operations of its ranks go there, for dtrun-explain (the "
     "round's log folder, if it is kept); none: nowhere"},
    {"trace", 0, "FILE", G::kOutput,
     "when a round ends, what its ranks have sent and received, and when, goes there, for "
     "ui.perfetto.dev; with several nodes each writes a file of its own (docs/tracing.md)"},
    {"tag", 0, "auto|always|never", G::kOutput,
     "[node:rank] before lines; auto: on a terminal, and of what is tee'd", "auto"},
    {"redirects", 'r', "0-3|RANK:0-3,...", G::kOutput,
     "output into files only: 1 standard output, 2 standard error, 3 both, of all local ranks or "
     "of some (0:3,1:1)",
     "0"},
    {"tee", 't', "0-3|RANK:0-3,...", G::kOutput,
     "output into files and to the console; as --redirects", "0"},
    {"local-ranks-filter", 0, "RANKS", G::kOutput,
     "local ranks whose output is shown: 0,2; files are not affected", "all"},
    {"duplicate-stdout-filters", 0, "TEXT,...", G::kOutput,
     "shown lines that contain one of these texts also go into filtered_stdout.log; ,, is a comma"},
    {"duplicate-stderr-filters", 0, "TEXT,...", G::kOutput,
     "the same of standard error, into filtered_stderr.log"},
    {"tag-template", 0, "TEXT", G::kOutput,
     "what a tag is: ${node}, ${host}, ${rank}, ${local_rank}, ${role}, ${stream}, ${time}, "
     "${elapsed} ([${node}:${rank}] and a space)"},
    {"log-format", 0, "text|json", G::kOutput, "json: each line of output as an object", "text"},
    {"fold", 0, nullptr, G::kOutput,
     "the same line of several ranks once, with their numbers: [0-7]"},
    {"color", 0, "auto|always|never", G::kOutput,
     "a colour for each rank's tags; auto: on a terminal, unless NO_COLOR or TERM=dumb", "auto"},
    {"status", 0, "auto|never", G::kOutput, "the state of the ranks in the last line of a terminal",
     "auto"},
    {"stdin", 0, "RANK|all|none", G::kOutput,
     "the rank that reads dtrun's standard input; all: each rank of this node gets a copy of it "
     "(one node: 0; several: none)"},
    {"on-closed-output", 0, "stop|ignore", G::kOutput,
     "when dtrun's standard output has no reader any more (dtrun ... | head): end the job with "
     "141, "
     "or run on and drop that output",
     "stop"},
    {"numa-binding", 0, "node|socket|exclusive|core-complex|none", G::kBinding,
     "bind each rank to CPUs and memory: near its GPU, or dealt out over the NUMA nodes", "none"},
    {"omp-threads", 0, "N|share", G::kBinding,
     "OMP_NUM_THREADS of the ranks; share: as many as the rank has cores (several ranks: 1)"},
    {"report-bindings", 0, nullptr, G::kBinding,
     "print each rank's CPUs, memory, GPU and OMP_NUM_THREADS at the start"},
    {"scheduler", 0, "auto|none|NAME", G::kEngine,
     "the engine that has started dtrun on several nodes; it says how many there are and where "
     "they "
     "meet: slurm, openmpi, mpich ... (docs/engines.md); none: take nothing from it",
     "auto"},
    {"adopt", 0, nullptr, G::kEngine,
     "an engine such as srun or mpirun has started one dtrun per rank: start this one rank"},
    {"verbose", 'v', nullptr, G::kKnowing, "print what dtrun does"},
    {"version", 0, nullptr, G::kKnowing, "print the version, and what is compiled in", nullptr,
     R::kCommandLineOnly},
    {"help", 'h', "[OPTION]", G::kKnowing, "print this, or what there is to know of one option",
     nullptr, R::kCommandLineOnly},
    {"config", 0, "FILE", G::kKnowing,
     "options from a file, NAME = VALUE in each line (docs/command_line.md); after it, "
     "$XDG_CONFIG_HOME/dtrun/config, where there is one",
     nullptr, R::kNotInFiles},
    {"print-config", 0, "[json]", G::kKnowing,
     "print every option's value, and whether it is from the command line, the environment, a "
     "file, "
     "Slurm or mpirun, or the default",
     nullptr, R::kNotInFiles},
    {"dry-run", 0, "[json]", G::kKnowing,
     "print the whole plan, and start nothing: ranks, commands, environment, bindings, files, who "
     "would host; no other machine is asked",
     nullptr, R::kNotInFiles},
    {"events", 0, "FILE", G::kKnowing,
     "append what happens on each node, an object of JSON in each line: rounds, ranks' ends, "
     "restarts, failures (docs/output.md)"},
    {"metrics-port", 0, "[ADDRESS:]PORT", G::kKnowing,
     "serve metrics of each node's part of the job to Prometheus, at http://ADDRESS:PORT/metrics; "
     "ADDRESS is 127.0.0.1 unless given; 0: any free port (docs/metrics.md)"},
    {"timing", 0, "[text|json]", G::kKnowing,
     "print at the end how long each step of the start took"},
    {"completion", 0, "bash", G::kKnowing,
     "print what bash needs to complete dtrun's lines: source <(dtrun --completion=bash)", nullptr,
     R::kCommandLineOnly},
    {"monitor-interval", 0, "SECONDS", G::kOfPython,
     "no effect: dtrun does not poll, it hears of an end at once", "0.1"},
    {"start-method", 0, "spawn|fork|forkserver", G::kOfPython,
     "no effect: every rank is a program of its own", "spawn"},
    {"event-log-handler", 0, "null|console|NAME", G::kOfPython,
     "console: how each rank ended, in a line of JSON on standard error; NAME, a handler of "
     "Python's: no effect",
     "null"},
    {"logs-specs", 0, "NAME", G::kOfPython, "no effect: it names a plugin of Python's"},
    // dtrun gives these three to the dtruns that it starts on hosts.
    {"remote-agent", 0, "[PORTS]", G::kHidden,
     "what dtrun --hosts starts on a host; its orders come by standard input", nullptr,
     R::kCommandLineOnly},
    {"listener-fd", 0, "N", G::kHidden, "the socket that node 0 of --hosts listens at", nullptr,
     R::kCommandLineOnly},
    {"one-of-hosts", 0, nullptr, G::kHidden,
     "started by dtrun --hosts: what is known on every node is told by one", nullptr,
     R::kCommandLineOnly},
    {"reference", 0, "man|markdown", G::kHidden, "the manual page, or docs/options.md", nullptr,
     R::kCommandLineOnly},
};

// is_torchruns() needs them for prefixes: --re means --redirects under dtrun as under torchrun,
// though dtrun has --restart-scope.
// Of the newest torchrun (torch/distributed/run.py).
constexpr std::string_view kOfTorchrun[] = {"nnodes",
                                            "nproc-per-node",
                                            "rdzv-backend",
                                            "rdzv-endpoint",
                                            "rdzv-id",
                                            "rdzv-conf",
                                            "standalone",
                                            "max-restarts",
                                            "monitor-interval",
                                            "start-method",
                                            "event-log-handler",
                                            "role",
                                            "module",
                                            "no-python",
                                            "run-path",
                                            "log-dir",
                                            "redirects",
                                            "tee",
                                            "local-ranks-filter",
                                            "duplicate-stdout-filters",
                                            "duplicate-stderr-filters",
                                            "node-rank",
                                            "master-addr",
                                            "master-port",
                                            "local-addr",
                                            "logs-specs",
                                            "numa-binding",
                                            "signals-to-handle",
                                            "shutdown-timeout",
                                            "virtual-local-rank",
                                            "help"};

}  // namespace

std::span<const OptionRow> option_table() {
  return kRows;
}

bool is_torchruns(const OptionRow& row) {
  return std::ranges::find(kOfTorchrun, row.name) != std::end(kOfTorchrun);
}

std::string_view heading_of(OptionGroup group) {
  switch (group) {
    case G::kRanks:
      return "Ranks and nodes";
    case G::kHosts:
      return "Hosts that dtrun starts itself on";
    case G::kMeeting:
      return "How nodes meet";
    case G::kProgram:
      return "The program";
    case G::kRestart:
      return "After a failure";
    case G::kStop:
      return "Stopping, and exit codes";
    case G::kOutput:
      return "Output and logs";
    case G::kBinding:
      return "CPUs, memory, GPUs";
    case G::kEngine:
      return "Under Slurm, MPI, Kubernetes";
    case G::kKnowing:
      return "What dtrun does, or would do";
    case G::kOfPython:
      return "Of torchrun's Python: accepted, and said what they mean here";
    case G::kHidden:
      return "Hidden";
  }
  DT_CHECK(false);
}

}  // namespace dtrun::launcher
