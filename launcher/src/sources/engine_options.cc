#include "sources/engine_options.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

#include "dtrun/base/error.h"
#include "dtrun/base/log.h"
#include "dtrun/base/socket.h"
#include "dtrun/rendezvous/master_address.h"
#include "engines/engine_variables.h"
#include "engines/pals_places.h"
#include "engines/slurm_step.h"
#include "options/config_error.h"
#include "options/node_range.h"
#include "options/rendezvous_conf.h"
#include "sources/pmi_meeting.h"

namespace dtrun::launcher {
namespace {

using base::Environment;
using base::Error;
using base::ErrorCode;

constexpr const char* kByHand =
    "--scheduler=none, which leaves all to the command line; or --standalone, for jobs of one node "
    "each";

// The line, with what the engine adds to it.
class Line {
 public:
  Line(EngineFindings& findings, CommandLine& line) : findings_(findings), line_(line) {}

  bool has(const char* name) const { return line_.has(name); }
  std::string text(const char* name) const { return line_.text(name, ""); }
  RendezvousConf rendezvous_conf() const { return read_rendezvous_conf(line_); }
  std::string origin(const char* name) const { return line_.get(name).origin; }

  // A value from another source stays.
  void add(const char* name, std::string value) {
    if (has(name)) return;
    std::string spelling = name;
    std::replace(spelling.begin(), spelling.end(), '-', '_');
    findings_.decided += fmt::format(" --{}={}", spelling, value);
    line_.values[name] = {std::move(value),
                          fmt::format("{}'s {}", findings_.engine->name, spelling),
                          Origin::kEngine};
  }

  // nullopt: no value is given, or it is no number, which its reader will report.
  std::optional<NodeRange> nodes() const {
    if (!has("nnodes")) return std::nullopt;
    try {
      return parse_node_range(text("nnodes"));
    } catch (const Error&) {
      return std::nullopt;
    }
  }

 private:
  EngineFindings& findings_;
  CommandLine& line_;
};

bool has_several_per_node(const Engine& engine) {
  return engine.tasks_on_node > 1 ||
         (engine.tasks && engine.nodes && *engine.tasks > *engine.nodes);
}

// Each task may be an agent of one job, if --nnodes counts them all.
void check_tasks(const Engine& engine, const Line& line) {
  const std::optional<NodeRange> nodes = line.nodes();
  if (!has_several_per_node(engine) || (nodes && engine.tasks && nodes->most >= *engine.tasks))
    return;
  throw Error(
      ErrorCode::kUsage,
      engine.tasks_on_node > 1
          ? fmt::format("{} has started {} dtruns on this node, and each would be a job of its own",
                        engine.name, engine.tasks_on_node)
          : fmt::format("{} has started {} dtruns on {} nodes, and each would be a job of its own",
                        engine.name, *engine.tasks, *engine.nodes),
      "one dtrun per node starts the ranks of its node; one per rank needs --adopt",
      fmt::format("{}; or {}; or --standalone, for jobs of their own", engine.one_per_node,
                  engine.per_rank));
}

void check_node_count(const Engine& engine, const Line& line) {
  const std::optional<NodeRange> nodes = line.nodes();
  if (!nodes || !engine.tasks || nodes->least != nodes->most || nodes->most == *engine.tasks)
    return;
  // `srun -N1 -w NODE dtrun --nnodes=4 ... &` for each node.
  if (*engine.tasks == 1) return;
  const int tasks = *engine.tasks;
  const auto [less, more] = std::minmax(tasks, nodes->most);
  const std::string started = has_several_per_node(engine)
                                  ? fmt::format("{} dtruns", tasks)
                                  : fmt::format("dtrun on {} nodes", tasks);
  throw Error(ErrorCode::kUsage,
              fmt::format("{}={}, but {} has started {}", line.origin("nnodes"), nodes->most,
                          engine.name, started),
              tasks > nodes->most ? "the job would begin without some of them"
                                  : "it would wait for nodes that were not started",
              fmt::format("--nnodes={}, or none; --nnodes={}:{} for a job that can do with {}; {}",
                          tasks, less, more, less, kByHand));
}

void check_node_rank(const Engine& engine, const Line& line) {
  if (!line.has("node-rank") || engine.tasks.value_or(1) == 1) return;
  const auto rank = base::parse_integer(line.text("node-rank"));
  if (!rank || *rank == engine.task) return;
  throw Error(
      ErrorCode::kUsage,
      fmt::format("{}={}, but this is {}", line.origin("node-rank"), *rank, engine.describe()),
      "a variable that was expanded before the engine started this gives all nodes the "
      "same number",
      fmt::format("leave --node_rank out, because the engine gives it; or {}", kByHand));
}

std::string endpoint(const Engine& engine) {
  if (!engine.head_host.empty()) return base::HostPort{engine.head_host, engine.port}.to_string();
  const std::string why = engine.key == "flux"
                              ? "its PMI does, which flux run -o pmi=off or another PMI leaves out"
                              : engine.no_places;
  throw Error(ErrorCode::kUsage,
              fmt::format("{} has started dtrun on several nodes and does not tell where they can "
                          "meet",
                          engine.name),
              why,
              engine.kind == EngineKind::kTasks
                  ? fmt::format("set MASTER_ADDR for all of them to the host of task 0 ({}); or "
                                "give --nnodes=N --rdzv_backend=c10d --rdzv_endpoint=HOST:PORT",
                                engine.head_by_hand)
                  : "--nnodes=N --master_addr=HOST, with HOST the name of node 0");
}

// torchrun's words for node 0's address.
bool is_static(const Line& line) {
  if (line.has("rdzv-backend")) return line.text("rdzv-backend") == "static";
  return line.has("master-addr") || line.has("master-port") || line.has("rdzv-endpoint");
}

// All tasks have the same command line, so all of them have this question or none. A task that only
// previews is the exception: the others may not come.
bool head_is_open(EngineFindings& findings, const Line& line) {
  const Engine& engine = *findings.engine;
  if (!can_be_asked(engine)) {
    if (engine.pmi_fd)
      base::log::info(base::log::Component::kLauncher,
                      "PMI_FD={} is no connection to {}, which is not asked", *engine.pmi_fd,
                      engine.name);
    return false;
  }
  if (line.has("dry-run") || line.has("print-config")) {
    foresee_meeting_by_pmi(*findings.engine);
    return false;
  }
  findings.open = EngineQuestion::kHead;
  return true;
}

void add_static(EngineFindings& findings, Line& line) {
  const Engine& engine = *findings.engine;
  if (!line.has("master-addr") && !line.has("rdzv-endpoint")) {
    if (head_is_open(findings, line)) return;
    endpoint(engine);
    line.add("master-addr", engine.head_host);
    if (engine.port) line.add("master-port", std::to_string(*engine.port));
  }
  line.add("node-rank", std::to_string(engine.task));
}

void add_c10d(EngineFindings& findings, Line& line) {
  const Engine& engine = *findings.engine;
  const bool by_file = line.rendezvous_conf().store_type == StoreType::kFile;
  if (line.has("rdzv-endpoint") || by_file || head_is_open(findings, line)) return;
  line.add("rdzv-backend", "c10d");
  line.add("rdzv-endpoint", endpoint(engine));
  if (!engine.run_id.empty()) line.add("rdzv-id", engine.run_id);
  const std::optional<NodeRange> nodes = line.nodes();
  // Nodes that come and go get their numbers from the head.
  if (nodes && nodes->least == nodes->most) line.add("node-rank", std::to_string(engine.task));
}

// The last options that are added, so that what is open about the head holds up no others.
void add_meeting(EngineFindings& findings, Line& line) {
  const Engine& engine = *findings.engine;
  if (engine.tasks.value_or(1) > 1) line.add("nnodes", std::to_string(*engine.tasks));
  const std::optional<NodeRange> nodes = line.nodes();
  if (!nodes || nodes->most == 1) return;
  // It is the only task. If there are other nodes, the command line must say so.
  if (engine.tasks == 1) return;
  if (is_static(line)) return add_static(findings, line);
  const std::string backend = line.text("rdzv-backend");
  if (backend.empty() || backend == "c10d") add_c10d(findings, line);
}

void adopt(EngineFindings& findings, Line& line) {
  const Engine& engine = *findings.engine;
  if (engine.per_rank.empty())
    throw Error(ErrorCode::kUsage, fmt::format("--adopt: {} does not number ranks", engine.name),
                "it starts one dtrun per node, which starts the ranks of its node",
                "leave --adopt out: " + engine.one_per_node);
  for (const auto& [name, count] :
       {std::pair("nproc-per-node", 1), std::pair("nnodes", engine.tasks.value_or(1))})
    if (line.has(name) && base::parse_integer(line.text(name)) != count)
      throw Error(ErrorCode::kUsage,
                  fmt::format("{}={} and --adopt contradict each other", line.origin(name),
                              line.text(name)),
                  fmt::format("{} has started this dtrun for one rank, {} of {}", engine.name,
                              engine.task, engine.tasks.value_or(1)),
                  "leave one of them out");
  line.add("nproc-per-node", "1");
  add_meeting(findings, line);
  AdoptedRank& adopted = findings.adopted.emplace();
  adopted.local_rank = engine.task_on_node;
  adopted.local_world_size = engine.tasks_on_node;
  adopted.group_rank = engine.node.value_or(engine.task);
  adopted.node = engine.node;
  adopted.group_world_size = engine.node ? engine.nodes.value_or(1) : engine.tasks.value_or(1);
}

void check_slurm_shell(const Environment& environment, const CommandLine& line) {
  for (const char* name : {"nnodes", "node-rank", "master-addr", "rdzv-endpoint", "standalone"})
    if (line.has(name)) return;
  if (!engine_text(environment, "TORCHELASTIC_RUN_ID").empty()) return;
  const std::optional<SlurmShell> shell = find_slurm_shell(environment);
  if (!shell) return;
  throw Error(ErrorCode::kUsage,
              fmt::format("Slurm job {} has {} nodes, and dtrun was started on this machine only",
                          shell->job_id, shell->nodes),
              fmt::format("this is the shell of a batch script, or of salloc; {} are started by "
                          "srun",
                          shell->nodes_list),
              "srun dtrun ./app; or --standalone, for a job of this machine only");
}

void demand_no_adoption(const CommandLine& line) {
  if (!line.has("adopt")) return;
  throw Error(ErrorCode::kUsage, "--adopt, but no engine has started this dtrun",
              "no variables of srun, mpirun or another that numbers ranks are set",
              "srun -n N dtrun --adopt ./app, or mpirun -n N dtrun --adopt ./app; without --adopt, "
              "dtrun --nproc_per_node=N ./app starts the ranks itself");
}

// Where the dtruns of one mpiexec of PALS meet, by the file that it writes. If that cannot be read,
// the reason is kept: the head may not be needed.
void read_places(Engine& engine) {
  if (engine.places_file.empty()) return;
  std::ifstream file(engine.places_file, std::ios::binary);
  if (!file) {
    engine.no_places = fmt::format("{}, which tells it, cannot be opened ({})", engine.places_file,
                                   std::strerror(errno));
    return;
  }
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  try {
    const PalsPlaces places = read_pals_places(bytes, engine.task);
    if (engine.head_host.empty()) engine.head_host = places.head_host;
    engine.nodes = places.nodes;
    engine.node = places.node;
  } catch (const Error& error) {
    engine.no_places = fmt::format("{}: {}", engine.places_file, error.why());
  }
}

void write_note(EngineFindings& findings) {
  findings.note = findings.engine->describe();
  if (!findings.decided.empty()) findings.note += ", hence" + findings.decided;
}

// Once the number of tasks is known, if it is told at all.
void add_options(EngineFindings& findings, CommandLine& given) {
  const Engine& engine = *findings.engine;
  Line line(findings, given);
  const bool alone = line.has("standalone");
  if (!alone) check_node_rank(engine, line);
  if (line.has("adopt")) {
    if (alone)
      throw Error(ErrorCode::kUsage, "--adopt and --standalone exclude each other",
                  "--adopt starts a rank of the engine's job", "leave one of them out");
    return adopt(findings, line);
  }
  if (engine.gpus_on_node.value_or(0) > 0)
    line.add("nproc-per-node", std::to_string(*engine.gpus_on_node));
  if (alone) return;
  check_tasks(engine, line);
  check_node_count(engine, line);
  add_meeting(findings, line);
}

}  // namespace

EngineFindings add_engine_options(const Environment& environment, CommandLine& given) {
  EngineFindings findings;
  findings.shared_signal_wait = slurm_signal_spread(environment);
  const std::string wish = given.text("scheduler", "auto");
  try {
    findings.engine = detect_engine(environment, wish);
  } catch (const Error& error) {
    refuse_value(given, "scheduler", error);
  }
  if (!findings.engine) {
    demand_no_adoption(given);
    if (wish == "auto") check_slurm_shell(environment, given);
    return findings;
  }
  Engine& engine = *findings.engine;
  if (engine.head_is_here) engine.head_host = base::host_name();
  read_places(engine);
  if (!engine.pmi_port.empty()) {
    findings.open = EngineQuestion::kTasks;
  } else {
    add_options(findings, given);
    write_note(findings);
  }
  return findings;
}

void meet_engine(CommandLine& line) {
  constexpr auto kPatience = std::chrono::seconds(60);  // with other tasks, which may start late
  EngineFindings& findings = line.engine;
  if (findings.open == EngineQuestion::kTasks) {
    findings.open = EngineQuestion::kNone;
    count_by_pmi(*findings.engine, base::Deadline::after(kPatience));
    add_options(findings, line);
  }
  if (findings.open == EngineQuestion::kHead) {
    findings.open = EngineQuestion::kNone;
    meet_by_pmi(*findings.engine, line.text("local-addr", ""), base::Deadline::after(kPatience));
    Line rest(findings, line);
    add_meeting(findings, rest);
  }
  if (findings.engine) write_note(findings);
}

}  // namespace dtrun::launcher
