#include "cases.h"

#include <signal.h>

namespace dtrun::launcher_conformance {
namespace {

using Words = std::vector<std::string>;

Words with(Words options, const Words& program) {
  options.insert(options.end(), program.begin(), program.end());
  return options;
}

// One agent whose program is the worker.
Case one(const std::string& name, const Words& options, const Words& verb = {"exit", "0"}) {
  return {.name = name,
          .agents = {with(with(options, {"--no-python", "$WORKER", "$FOLDER"}), verb)}};
}

Case with_environment(Case a_case, std::map<std::string, std::string> environment) {
  a_case.environment = std::move(environment);
  return a_case;
}

void add_forms_of_rendezvous(std::vector<Case>& all) {
  all.push_back(one("default", {}));
  all.push_back(one("number of ranks", {"--nproc-per-node=4"}));
  all.push_back(one("static", {"--nnodes=1", "--node-rank=0", "--master-addr=127.0.0.1",
                               "--master_port=$PORT", "--nproc_per_node", "2"}));
  all.push_back(one("standalone", {"--standalone", "--nproc-per-node=2"}));
  all.push_back(one("standalone overrides the id",
                    {"--standalone", "--rdzv-id=job-1", "--nproc-per-node=2"}));
  all.push_back(one("c10d", {"--rdzv-backend=c10d", "--rdzv-endpoint=localhost:$PORT",
                             "--rdzv-id=job-1", "--nproc-per-node=2"}));
  all.push_back(one("c10d on any port",
                    {"--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", "--nproc-per-node=2"}));
  all.push_back(one(
      "elastic, one node",
      {"--nnodes=1:2", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:$PORT", "--rdzv-id=job-1",
       "--rdzv-conf='join_timeout=5,last_call_timeout=1,timeout=5'", "--nproc-per-node=2"}));
}

void add_several_agents(std::vector<Case>& all) {
  const auto agent = [](const std::string& nodes, const std::string& ranks, const Words& rest) {
    return with(with({"--nnodes=" + nodes, "--nproc-per-node=" + ranks}, rest),
                {"--no-python", "$WORKER", "$FOLDER", "exit", "0"});
  };
  const Words c10d = {"--rdzv-backend=c10d", "--rdzv-endpoint=localhost:$PORT", "--rdzv-id=job-1"};
  const auto fixed = [](const std::string& rank) {
    return Words{"--node-rank=" + rank, "--master-addr=127.0.0.1", "--master-port=$PORT"};
  };
  all.push_back({.name = "two agents, c10d",
                 .agents = {agent("2", "2", c10d), agent("2", "2", c10d)},
                 .numbering = Numbering::kByChance});
  all.push_back({.name = "two agents, static",
                 .agents = {agent("2", "2", fixed("0")), agent("2", "2", fixed("1"))}});
  all.push_back({.name = "unequal agents, static",
                 .agents = {agent("3", "1", fixed("0")), agent("3", "2", fixed("1")),
                            agent("3", "3", fixed("2"))}});
  all.push_back({.name = "unequal agents, c10d",
                 .agents = {agent("3", "1", c10d), agent("3", "2", c10d), agent("3", "3", c10d)},
                 .numbering = Numbering::kByChance});
}

void add_environments(std::vector<Case>& all) {
  all.push_back(with_environment(one("PET_ variables", {}), {{"PET_NPROC_PER_NODE", "2"},
                                                             {"PET_NNODES", "1"},
                                                             {"PET_MAX_RESTARTS", "2"},
                                                             {"PET_ROLE", "trainer"},
                                                             {"PET_STANDALONE", "0"}}));
  all.push_back(with_environment(one("a flag before its PET_ variable", {"--nproc-per-node=1"}),
                                 {{"PET_NPROC_PER_NODE", "2"}}));
  all.push_back(one("role", {"--role=trainer", "--nproc-per-node=2"}));
  all.push_back(with_environment(one("OMP_NUM_THREADS is kept", {"--nproc-per-node=2"}),
                                 {{"OMP_NUM_THREADS", "3"}}));
  all.push_back(with_environment(one("NCCL error handling is kept", {}),
                                 {{"TORCH_NCCL_ASYNC_ERROR_HANDLING", "0"}}));
  all.push_back(
      with_environment(one("variables of an outer job are not handed on", {"--nproc-per-node=2"}),
                       {{"RANK", "7"},
                        {"WORLD_SIZE", "9"},
                        {"LOCAL_RANK", "5"},
                        {"TORCHELASTIC_RUN_ID", "outer"},
                        {"TORCHELASTIC_RESTART_COUNT", "4"}}));
  all.push_back(one("virtual local rank", {"--virtual-local-rank", "--nproc-per-node=2"}));
  all.push_back(with_environment(one("virtual local rank among visible devices",
                                     {"--virtual_local_rank", "--nproc-per-node=2"}),
                                 {{"CUDA_VISIBLE_DEVICES", "6,4"}}));
  all.push_back(one("signals to handle", {"--signals-to-handle=SIGTERM,SIGUSR1"}));
}

void add_programs(std::vector<Case>& all) {
  // The first one in PATH may be a script that sets variables of its own.
  const std::map<std::string, std::string> python = {{"PYTHON_EXEC", "$PYTHON"},
                                                     {"PYTHONPATH", "$SOURCES"}};
  all.push_back({.name = "a Python script",
                 .agents = {{"--nproc-per-node=2", "$SCRIPT", "$FOLDER", "--nnodes=9", "-x",
                             "--rank=${local_rank}", "--", "--help"}},
                 .environment = python});
  all.push_back({.name = "an argument of the script that is nearly an option",
                 .agents = {{"--nproc-per-node=2", "$SCRIPT", "$FOLDER", "--r"}},
                 .environment = python});
  all.push_back({.name = "a Python module",
                 .agents = {{"--nproc-per-node=2", "-m", "script", "$FOLDER", "a b", ""}},
                 .environment = python});
  all.push_back({.name = "a Python script by run-path",
                 .agents = {{"--nproc-per-node=2", "--run-path", "$SCRIPT", "$FOLDER", "x"}},
                 .environment = python});
  all.push_back({.name = "a Python script raises",
                 .agents = {{"--nproc-per-node=1", "$SCRIPT", "$FOLDER", "raise"}},
                 .environment = python});
  all.push_back(one("a macro in the arguments", {"--nproc-per-node=2"},
                    {"exit", "0", "${local_rank}-${local_rank}", "$local_rank"}));
}

void add_failures(std::vector<Case>& all) {
  for (const char* code : {"1", "2", "77", "127", "128", "255"})
    all.push_back(one(std::string("exit code ") + code, {}, {"exit", code}));
  all.push_back(one("exit code 138, and a sibling", {"--nproc-per-node=2"}, {"0", "exit", "138"}));
  all.push_back(one("the second rank fails", {"--nproc-per-node=3"}, {"1", "exit", "9"}));
  for (const int number : {SIGSEGV, SIGKILL, SIGTERM, SIGABRT})
    all.push_back(one("signal " + std::to_string(number), {"--nproc-per-node=2"},
                      {"1", "signal", std::to_string(number)}));
  all.push_back(
      with_environment(one("a rank raises", {"--nproc-per-node=2"}, {"1", "raise", "as told"}),
                       {{"TORCHELASTIC_ERROR_FILE", "$FOLDER/error.json"}}));
  all.push_back(
      with_environment(one("a rank raises, elastic",
                           {"--nnodes=1:2", "--rdzv-backend=c10d",
                            "--rdzv-endpoint=localhost:$PORT", "--rdzv-id=job-1",
                            "--rdzv-conf=join_timeout=5,last_call_timeout=1", "--nproc-per-node=2"},
                           {"0", "raise", "as told"}),
                       {{"TORCHELASTIC_ERROR_FILE", "$FOLDER/error.json"}}));
  all.push_back(one("a restart",
                    {"--max-restarts=3", "--nproc-per-node=2", "--monitor-interval=0.1"},
                    {"fail-first"}));
  all.push_back(
      one("restarts are used up", {"--max-restarts=1", "--nproc-per-node=1"}, {"exit", "5"}));
}

void add_stops(std::vector<Case>& all) {
  for (const int number : {SIGTERM, SIGINT}) {
    Case stopped = one("signal " + std::to_string(number) + " to the launcher",
                       {"--nproc-per-node=2"}, {"wait"});
    stopped.stop_signal = number;
    stopped.ranks_up = 2;
    all.push_back(std::move(stopped));
  }
  Case stubborn = one("a rank ignores SIGTERM", {"--nproc-per-node=1"}, {"ignore-term"});
  stubborn.stop_signal = SIGTERM;
  stubborn.ranks_up = 1;
  // torchrun 2.11 waits 30 s, which it cannot be told otherwise.
  stubborn.of_dtrun_alone = {"--shutdown-timeout=1"};
  all.push_back(std::move(stubborn));
}

void add_usage(std::vector<Case>& all) {
  const std::pair<const char*, Words> wrong[] = {
      {"an unknown option", {"--no-such-option"}},
      {"three numbers of nodes", {"--nnodes=1:2:3"}},
      {"more nodes at least than at most", {"--nnodes=2:1"}},
      {"an unknown number of ranks", {"--nproc-per-node=many"}},
      {"an empty value in the configuration", {"--rdzv-conf=join_timeout="}},
      {"a module and no Python", {"--module"}},
      {"an ambiguous abbreviation", {"--rdzv=c10d"}},
      {"log-dir is a file", {"--log-dir=$SCRIPT"}},
      {"a redirect that is none", {"--redirects=7"}},
      {"an unknown way to meet", {"--rdzv-backend=pigeon"}},
  };
  for (const auto& [name, options] : wrong)
    all.push_back(one(std::string("wrong: ") + name, options));
  all.push_back({.name = "wrong: no program", .agents = {{"--nproc-per-node=2"}}});
  all.push_back({.name = "wrong: there is no such program",
                 .agents = {{"--no-python", "$FOLDER/no-such-program"}}});
  all.push_back(one("abbreviations", {"--nproc-per-node=2", "--stand", "--rol=x"}));
}

void add_logs(std::vector<Case>& all) {
  const auto logged = [](const std::string& name, const Words& options) {
    return one(name, with(options, {"--nproc-per-node=2"}), {"say"});
  };
  const std::string folder = "--log-dir=$FOLDER/logs";
  all.push_back(one("output as it is", {"--nproc-per-node=2"}, {"say"}));
  all.push_back(one("a log folder", {folder, "--rdzv-id=job-1", "--nproc-per-node=2"}, {"say"}));
  all.push_back(logged("redirected", {folder, "--redirects=3"}));
  all.push_back(logged("one stream of each rank", {folder, "--redirects=0:1,1:2"}));
  all.push_back(logged("teed", {folder, "--tee=3", "--role=trainer"}));
  all.push_back(logged("teed by one rank", {folder, "-r", "1", "-t", "1:3"}));
  all.push_back(logged("teed without a folder", {"-t", "1"}));
  all.push_back(logged("filtered by rank", {folder, "--local-ranks-filter=1", "--tee=3"}));
  all.push_back(
      logged("duplicated by text", {folder, "--redirects=3", "--duplicate-stdout-filters=more",
                                    "--duplicate-stderr-filters=err"}));
  all.push_back(with_environment(
      logged("a prefix of its own", {folder, "--tee=3"}),
      {{"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "[${role_name} ${rank} ${local_rank}]: "}}));
  all.push_back(one("logs of a restart",
                    {folder, "--redirects=3", "--max-restarts=1", "--nproc-per-node=1"},
                    {"fail-first"}));
}

}  // namespace

const std::vector<Case>& cases() {
  static const std::vector<Case> kCases = [] {
    std::vector<Case> all;
    add_forms_of_rendezvous(all);
    add_several_agents(all);
    add_environments(all);
    add_programs(all);
    add_failures(all);
    add_stops(all);
    add_usage(all);
    add_logs(all);
    return all;
  }();
  return kCases;
}

}  // namespace dtrun::launcher_conformance
