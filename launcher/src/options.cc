#include "options.h"

#include <fmt/core.h>

#include <climits>

#include "dtrun/base/error.h"
#include "engine_options.h"
#include "option_values.h"
#include "rendezvous_options.h"

namespace dtrun::launcher {

using base::Error;
using base::ErrorCode;

const std::vector<OptionRow>& option_table() {
  static const std::vector<OptionRow> table = {
      {"nproc-per-node", 0, "N|cpu|gpu|auto", "ranks on this node (1); auto: GPUs, else CPUs"},
      {"nnodes", 0, "N|MIN:MAX",
       "nodes of the job (1); MIN:MAX: it begins with MIN, others come and go (docs/elastic.md)"},
      {"node-rank", 0, "N", "this node's number, from 0 (static: 0; else given out)"},
      {"master-addr", 0, "HOST", "static: address of node 0 (127.0.0.1)"},
      {"master-port", 0, "PORT", "static: port of node 0 (one node: a free one; else 29500)"},
      {"rdzv-backend", 0, "static|c10d|etcd-v2",
       "how nodes find each other: by --node_rank and --master_addr, by --rdzv_endpoint alone, "
       "or through etcd; etcd is the same as etcd-v2 (static)"},
      {"rdzv-endpoint", 0, "HOST[:PORT]",
       "c10d: one of the nodes, the same on all; dtrun there hosts (port 29400). With "
       "store_type=file: a path that all nodes share. etcd-v2: the members of etcd, with commas "
       "(port 2379)"},
      {"rdzv-id", 0, "ID", "name of the job, the same on all nodes (none)"},
      {"rdzv-conf", 0, "K=V,K=V",
       "join_timeout or timeout (600 s) for enough nodes to come; last_call_timeout (30 s) for "
       "more than MIN; close_timeout (30 s) for the last word; keep_alive_interval (5 s), "
       "keep_alive_max_attempt (3): after their product of silence a node is lost; read_timeout "
       "(10 s) for the head's answer; is_host=true|false; store_type=tcp|file; "
       "token_file=FILE or token=munge: who may join; etcd-v2: protocol=http|https, ssl_cert, "
       "ssl_cert_key, ca_cert"},
      {"join-timeout", 0, "SECONDS", "how long to wait for the other nodes (600)"},
      {"local-addr", 0, "HOST", "how the other nodes reach this one (found out)"},
      {"port-range", 0, "A:B", "ports to listen on where none is named (any)"},
      {"standalone", 0, nullptr, "one node, nothing shared with other jobs here"},
      {"max-restarts", 0, "N", "how often the whole job is started again after a failure (0)"},
      {"monitor-interval", 0, "SECONDS", "accepted, without effect: dtrun does not poll"},
      {"shutdown-timeout", 0, "SECONDS", "from SIGTERM to SIGKILL (30)"},
      {"role", 0, "NAME", "role of these ranks (default)"},
      {"log-dir", 0, "FOLDER", "keep the ranks' error files there"},
      {"tag", 0, "auto|always|never", "[node:rank] before lines; auto: on a terminal (auto)"},
      {"numa-binding", 0, "node|socket|exclusive|core-complex",
       "bind each rank to CPUs and memory: near its GPU, or dealt out over the NUMA nodes (none)"},
      {"omp-threads", 0, "N|share",
       "OMP_NUM_THREADS of the ranks; share: the cores that each has (several ranks: 1)"},
      {"module", 'm', nullptr, "PROGRAM is a Python module: python3 -u -m PROGRAM"},
      {"no-python", 0, nullptr, "execute PROGRAM itself, though it is called *.py"},
      {"pass-local-rank", 0, nullptr,
       "--local-rank=N before PROGRAM's own arguments, as torch.distributed.launch does"},
      {"use-env", 0, nullptr, "no --local-rank, though dtrun is called torch.distributed.launch"},
      {"verbose", 'v', nullptr, "tell what dtrun does"},
      {"version", 0, nullptr, "print the version"},
      {"help", 'h', nullptr, "print this"},
      // torchrun's, not yet here.
      {"start-method", 0, "", nullptr},
      {"event-log-handler", 0, "", nullptr},
      {"run-path", 0, nullptr, nullptr},
      {"redirects", 'r', "", nullptr},
      {"tee", 't', "", nullptr},
      {"local-ranks-filter", 0, "", nullptr},
      {"duplicate-stdout-filters", 0, "", nullptr},
      {"duplicate-stderr-filters", 0, "", nullptr},
      {"logs-specs", 0, "", nullptr},
      {"signals-to-handle", 0, "", nullptr},
      {"virtual-local-rank", 0, nullptr, nullptr},
  };
  return table;
}

namespace {

std::string read_local_ranks(const OptionValues& values) {
  const std::string text = values.text("nproc-per-node", "1");
  if (text == "cpu" || text == "gpu" || text == "auto") return text;
  if (!base::parse_integer(text))
    values.reject("nproc-per-node", "must be a number, cpu, gpu or auto");
  return std::to_string(
      values.integer("nproc-per-node", 1, 1, rendezvous::rounds::kMostLocalRanks));
}

Tagging read_tagging(const OptionValues& values) {
  const std::string text = values.text("tag", "auto");
  if (text == "always") return Tagging::kAlways;
  if (text == "never") return Tagging::kNever;
  if (text != "auto") values.reject("tag", "must be auto, always or never");
  return Tagging::kAuto;
}

BindingKind read_binding(const OptionValues& values) {
  const std::string text = values.text("numa-binding", "none");
  if (text == "none") return BindingKind::kNone;
  if (text == "node") return BindingKind::kNode;
  if (text == "socket") return BindingKind::kSocket;
  if (text == "exclusive") return BindingKind::kExclusive;
  if (text != "core-complex")
    values.reject("numa-binding", "must be node, socket, exclusive, core-complex or none");
  return BindingKind::kCoreComplex;
}

std::optional<OmpThreads> read_omp_threads(const OptionValues& values) {
  if (!values.has("omp-threads")) return std::nullopt;
  if (values.text("omp-threads", "") == "share") return OmpThreads{};
  return OmpThreads{static_cast<int>(values.integer("omp-threads", 1, 1, 65536))};
}

void check_combinations(const OptionValues& values, const Options& options) {
  if (options.module && options.no_python)
    throw Error(ErrorCode::kUsage, "--module and --no_python exclude each other", "",
                "leave one of them out");
  if (values.has("pass-local-rank") && values.has("use-env"))
    throw Error(ErrorCode::kUsage, "--pass_local_rank and --use_env exclude each other", "",
                "leave one of them out");
  if (options.program.empty())
    throw Error(ErrorCode::kUsage, "no program was named", "",
                "dtrun [options] PROGRAM [ARGUMENTS...]; dtrun --help lists the options");
}

bool called_as_legacy_launcher(const std::string& called_as) {
  return called_as.substr(called_as.rfind('/') + 1) == "torch.distributed.launch";
}

}  // namespace

Options parse_options(const std::string& called_as, const std::vector<std::string>& arguments,
                      const base::Environment& environment) {
  CommandLine line = read_command_line(arguments, environment);
  if (!line.values.contains("help") && !line.values.contains("version"))
    if (const std::optional<Engine> engine = detect_engine(environment))
      add_engine_options(*engine, line);
  Options options;
  options.program = std::move(line.program);
  const OptionValues values(std::move(line));
  if (values.has("help")) options.request = Request::kHelp;
  if (values.has("version")) options.request = Request::kVersion;
  if (options.request != Request::kRun) return options;

  options.local_ranks = read_local_ranks(values);
  read_rendezvous_options(values, environment, options);
  options.role = values.text("role", options.role);
  options.log_dir = values.text("log-dir", "");
  options.tagging = read_tagging(values);
  options.binding = read_binding(values);
  options.omp_threads = read_omp_threads(values);
  options.shutdown_grace = values.seconds("shutdown-timeout", options.shutdown_grace);
  values.seconds("monitor-interval", {});
  options.module = values.has("module");
  options.no_python = values.has("no-python");
  options.pass_local_rank = values.has("pass-local-rank") ||
                            (called_as_legacy_launcher(called_as) && !values.has("use-env"));
  options.verbose = values.has("verbose");
  check_rendezvous_options(values, environment, options);
  check_combinations(values, options);
  return options;
}

}  // namespace dtrun::launcher
