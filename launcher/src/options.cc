#include "options.h"

#include <fmt/core.h>

#include <charconv>
#include <climits>

#include "command_line.h"
#include "dtrun/base/error.h"
#include "dtrun/base/socket.h"
#include "host_election.h"
#include "node_protocol.h"
#include "rendezvous_conf.h"

namespace dtrun::launcher {

using base::Error;
using base::ErrorCode;

const std::vector<OptionRow>& option_table() {
  static const std::vector<OptionRow> table = {
      {"nproc-per-node", 0, "N|cpu|gpu|auto", "ranks on this node (1); auto: GPUs, else CPUs"},
      {"nnodes", 0, "N", "nodes of the job (1)"},
      {"node-rank", 0, "N", "this node's number, from 0 (static: 0; c10d: given out)"},
      {"master-addr", 0, "HOST", "static: address of node 0 (127.0.0.1)"},
      {"master-port", 0, "PORT", "static: port of node 0 (one node: a free one; else 29500)"},
      {"rdzv-backend", 0, "static|c10d",
       "how nodes find each other: --node_rank and --master_addr, or --rdzv_endpoint alone "
       "(static)"},
      {"rdzv-endpoint", 0, "HOST[:PORT]",
       "c10d: one of the nodes, the same on all; dtrun there is node 0 (port 29400)"},
      {"rdzv-id", 0, "ID", "name of the job, the same on all nodes (none)"},
      {"rdzv-conf", 0, "K=V,K=V",
       "join_timeout or timeout, read_timeout (seconds), is_host (true or false)"},
      {"join-timeout", 0, "SECONDS", "how long to wait for the other nodes (600)"},
      {"standalone", 0, nullptr, "one node, nothing shared with other jobs here"},
      {"max-restarts", 0, "N", "0: a failed job is not started again (0)"},
      {"monitor-interval", 0, "SECONDS", "accepted, without effect: dtrun does not poll"},
      {"shutdown-timeout", 0, "SECONDS", "from SIGTERM to SIGKILL (30)"},
      {"role", 0, "NAME", "role of these ranks (default)"},
      {"log-dir", 0, "FOLDER", "keep the ranks' error files there"},
      {"tag", 0, "auto|always|never", "[node:rank] before lines; auto: on a terminal (auto)"},
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
      {"local-addr", 0, "", nullptr},
      {"logs-specs", 0, "", nullptr},
      {"numa-binding", 0, "", nullptr},
      {"signals-to-handle", 0, "", nullptr},
      {"virtual-local-rank", 0, nullptr, nullptr},
  };
  return table;
}

namespace {

// The values of one command line, each read as what it must be.
class Values {
 public:
  explicit Values(CommandLine line) : line_(std::move(line)) {}

  bool has(const char* name) const { return line_.values.count(name) != 0; }
  const GivenValue& get(const char* name) const { return line_.values.at(name); }
  std::string text(const char* name, std::string otherwise) const {
    return has(name) ? get(name).value : std::move(otherwise);
  }

  [[noreturn]] void reject(const char* name, const std::string& demand) const {
    throw Error(ErrorCode::kUsage,
                fmt::format("{}={} {}", get(name).origin, get(name).value, demand), "",
                "dtrun --help lists the options");
  }

  int integer(const char* name, int otherwise, int least, int most) const {
    if (!has(name)) return otherwise;
    const auto number = base::parse_integer(get(name).value);
    if (!number) reject(name, "is no number");
    if (*number < least || *number > most)
      reject(name, most == INT_MAX ? fmt::format("must be at least {}", least)
                                   : fmt::format("must be from {} to {}", least, most));
    return static_cast<int>(*number);
  }

  std::chrono::nanoseconds seconds(const char* name, std::chrono::nanoseconds otherwise) const {
    if (!has(name)) return otherwise;
    const std::string& text = get(name).value;
    double number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size() || !(number >= 0))
      reject(name, "must be a number of seconds, 0 or more");
    constexpr double kLongest = 1e9;
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
        std::chrono::duration<double>(std::min(number, kLongest)));
  }

 private:
  CommandLine line_;
};

std::string read_local_ranks(const Values& values) {
  const std::string text = values.text("nproc-per-node", "1");
  if (text == "cpu" || text == "gpu" || text == "auto") return text;
  if (!base::parse_integer(text))
    values.reject("nproc-per-node", "must be a number, cpu, gpu or auto");
  return std::to_string(values.integer("nproc-per-node", 1, 1, kMostLocalRanks));
}

int read_node_count(const Values& values) {
  if (values.has("nnodes") && values.get("nnodes").value.find(':') != std::string::npos) {
    const std::string& text = values.get("nnodes").value;
    const auto colon = text.find(':');
    const std::string least = text.substr(0, colon), most = text.substr(colon + 1);
    const auto number = base::parse_integer(least);
    if (least != most || !number || *number < 1 || *number > INT_MAX)
      values.reject("nnodes", "must be one number: elastic jobs are not yet in this version");
    return static_cast<int>(*number);
  }
  return values.integer("nnodes", 1, 1, INT_MAX);
}

Tagging read_tagging(const Values& values) {
  const std::string text = values.text("tag", "auto");
  if (text == "always") return Tagging::kAlways;
  if (text == "never") return Tagging::kNever;
  if (text != "auto") values.reject("tag", "must be auto, always or never");
  return Tagging::kAuto;
}

void reject_what_is_not_built(const Values& values) {
  if (values.integer("max-restarts", 0, 0, INT_MAX) != 0)
    values.reject("max-restarts",
                  "is not yet in this version of dtrun: a failed job is not restarted, use 0");
}

Rendezvous read_rendezvous(const Values& values) {
  const std::string text = values.text("rdzv-backend", "static");
  if (text == "static") return Rendezvous::kStatic;
  if (text == "c10d") return Rendezvous::kC10d;
  if (text == "etcd" || text == "etcd-v2")
    values.reject("rdzv-backend", "is not yet in this version of dtrun: only static and c10d are");
  values.reject("rdzv-backend", "must be static or c10d");
}

void read_endpoint(const Values& values, Options& options) {
  base::HostPort endpoint;
  try {
    endpoint = base::HostPort::parse(values.get("rdzv-endpoint").value);
  } catch (const Error& error) {
    values.reject("rdzv-endpoint", fmt::format("must be HOST or HOST:PORT: {}", error.summary()));
  }
  options.master_addr = endpoint.host;
  options.master_port = endpoint.port;
  if (!endpoint.port && options.rendezvous == Rendezvous::kC10d) options.master_port = 29400;
}

// Where the agents meet.
void read_address(const Values& values, Options& options) {
  const bool c10d = options.rendezvous == Rendezvous::kC10d;
  for (const char* name : {"master-addr", "master-port"}) {
    if (!values.has(name) || !c10d) continue;
    options.warnings.push_back(fmt::format(
        "dtrun: {} is without effect: with the c10d rendezvous --rdzv_endpoint says where nodes "
        "meet",
        values.get(name).origin));
  }
  if (values.has("rdzv-endpoint")) {
    read_endpoint(values, options);
  } else if (!c10d) {
    options.master_addr = values.text("master-addr", options.master_addr);
    if (values.has("master-port"))
      options.master_port = static_cast<std::uint16_t>(values.integer("master-port", 0, 0, 65535));
  }
  if (options.node_count > 1 && !options.master_port && !c10d) options.master_port = 29500;
}

void read_rendezvous_options(const Values& values, Options& options) {
  options.rendezvous = read_rendezvous(values);
  options.node_count = read_node_count(values);
  if (options.rendezvous == Rendezvous::kStatic || values.has("node-rank"))
    options.node_rank = values.integer("node-rank", 0, 0, INT_MAX);
  read_address(values, options);
  options.run_id = values.text("rdzv-id", "");
  const RendezvousConf conf = parse_rendezvous_conf(values.text("rdzv-conf", ""));
  options.join_timeout = conf.join_timeout.value_or(options.join_timeout);
  options.join_timeout = values.seconds("join-timeout", options.join_timeout);
  options.answer_timeout = conf.read_timeout.value_or(options.answer_timeout);
  options.hosting = conf.hosting;
}

// Of the options that say where nodes meet.
void check_rendezvous(const Values& values, const Options& options) {
  const bool c10d = options.rendezvous == Rendezvous::kC10d;
  if (!c10d && values.has("rdzv-endpoint") &&
      (values.has("master-addr") || values.has("master-port")))
    throw Error(ErrorCode::kUsage,
                "--rdzv_endpoint and --master_addr, --master_port name the same thing", "",
                "leave one of them out");
  if (options.node_count > 1 && c10d && !values.has("rdzv-endpoint"))
    throw Error(ErrorCode::kUsage, "a job of several nodes needs --rdzv_endpoint",
                "the nodes must know where to meet",
                "--rdzv_endpoint=HOST:PORT, with HOST one of the nodes, the same on every node");
  if (options.node_count > 1 && !values.has("master-addr") && !values.has("rdzv-endpoint"))
    throw Error(ErrorCode::kUsage, "a job of several nodes needs --master_addr",
                "the other nodes must find node 0",
                "--master_addr=HOST --master_port=PORT, the same on every node; or "
                "--rdzv_backend=c10d --rdzv_endpoint=HOST:PORT");
  if (options.node_count > 1 && options.master_port == 0)
    throw Error(
        ErrorCode::kUsage,
        fmt::format("{} is for one node", c10d ? "port 0 in --rdzv_endpoint" : "--master_port=0"),
        "", "the other nodes must know the port of node 0: name one");
  if (options.hosting != Hosting::kByAddress && !c10d)
    throw Error(ErrorCode::kUsage, "is_host in --rdzv_conf is for --rdzv_backend=c10d",
                "with the static rendezvous node 0 hosts", "leave it out");
  if (options.hosting == Hosting::kAlways && options.node_rank.value_or(0) != 0)
    throw Error(
        ErrorCode::kUsage,
        fmt::format("--node_rank={} and is_host=true contradict each other", *options.node_rank),
        "the host is node 0", "leave one of them out");
  if (values.has("standalone") && (options.node_count > 1 || values.has("rdzv-endpoint")))
    throw Error(ErrorCode::kUsage,
                fmt::format("--standalone is for one node, and {} names more",
                            options.node_count > 1 ? "--nnodes" : "--rdzv_endpoint"),
                "", "leave one of them out");
}

void check_combinations(const Values& values, const Options& options) {
  if (options.node_rank.value_or(0) >= options.node_count)
    throw Error(
        ErrorCode::kUsage,
        fmt::format("--node_rank={} does not exist in a job of {} node{}", *options.node_rank,
                    options.node_count, options.node_count == 1 ? "" : "s"),
        "nodes are counted from 0", "give --nnodes too, the same on every node");
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

// Each node would wait for the others at its own.
void check_slurm_step(const Options& options, const base::Environment& environment) {
  const auto nodes = base::parse_integer(environment.get("SLURM_STEP_NUM_NODES").value_or("1"));
  const bool everywhere = options.master_addr == "localhost" || is_loopback(options.master_addr);
  if (options.node_count == 1 || !everywhere || nodes.value_or(1) < 2) return;
  throw Error(
      ErrorCode::kUsage,
      fmt::format("'{}' is every node itself, and this Slurm step has {} nodes",
                  options.master_addr, *nodes),
      fmt::format("SLURM_STEP_NODELIST={}", environment.get("SLURM_STEP_NODELIST").value_or("?")),
      "name one of these nodes in --rdzv_endpoint or --master_addr");
}

bool called_as_legacy_launcher(const std::string& called_as) {
  return called_as.substr(called_as.rfind('/') + 1) == "torch.distributed.launch";
}

}  // namespace

Options parse_options(const std::string& called_as, const std::vector<std::string>& arguments,
                      const base::Environment& environment) {
  CommandLine line = read_command_line(arguments, environment);
  Options options;
  options.program = std::move(line.program);
  const Values values(std::move(line));
  if (values.has("help")) options.request = Request::kHelp;
  if (values.has("version")) options.request = Request::kVersion;
  if (options.request != Request::kRun) return options;

  options.local_ranks = read_local_ranks(values);
  read_rendezvous_options(values, options);
  options.role = values.text("role", options.role);
  options.log_dir = values.text("log-dir", "");
  options.tagging = read_tagging(values);
  options.shutdown_grace = values.seconds("shutdown-timeout", options.shutdown_grace);
  values.seconds("monitor-interval", {});
  options.module = values.has("module");
  options.no_python = values.has("no-python");
  options.pass_local_rank = values.has("pass-local-rank") ||
                            (called_as_legacy_launcher(called_as) && !values.has("use-env"));
  options.verbose = values.has("verbose");
  reject_what_is_not_built(values);
  check_rendezvous(values, options);
  check_slurm_step(options, environment);
  check_combinations(values, options);
  return options;
}

}  // namespace dtrun::launcher
