#include "hosts/host_plan.h"

#include <fmt/core.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <set>

#include "dtrun/base/error.h"
#include "dtrun/base/socket.h"
#include "hosts/host_list.h"
#include "hosts/host_place.h"
#include "hosts/remote_shell.h"
#include "options/config_error.h"
#include "options/option_binding.h"
#include "options/option_names.h"
#include "options/version.h"

namespace dtrun::launcher {
namespace {

using base::Error;
using base::ErrorCode;

constexpr const char* kTokenVariable = "DTRUN_TOKEN";
constexpr std::size_t kMostFileBytes = 16 << 20;
/// Ansible's default, too: long enough for who starts a job again, too short to be forgotten.
constexpr std::chrono::seconds kPersist(60);

// All of a file that is not too long; of one that is, more than kMostFileBytes.
std::string beginning_of(std::ifstream& file) {
  std::string text;
  char piece[4096];
  while (text.size() <= kMostFileBytes && (file.read(piece, sizeof piece), file.gcount() > 0))
    text.append(piece, static_cast<std::size_t>(file.gcount()));
  return text;
}

// Refuses options that --hosts decides itself, or that have no meaning when dtrun starts every
// node.
void refuse_contradictions(const CommandLine& line) {
  const std::string& hosts = line.get(line.has("hosts") ? "hosts" : "hostfile").origin;
  if (line.has("hosts") && line.has("hostfile"))
    throw Error(ErrorCode::kUsage,
                fmt::format("{} and {} both name the hosts", line.get("hosts").origin,
                            line.get("hostfile").origin),
                "", "leave one of them out");
  constexpr std::pair<const char*, const char*> kContradictions[] = {
      {"nnodes", "the hosts that are named are the nodes"},
      {"node-rank", "the hosts are numbered in their order"},
      {"master-addr", "the first host is node 0"},
      {"standalone", "it is for one node that meets nobody"},
      {"rdzv-backend", "the hosts meet at the first of them"},
      {"rdzv-endpoint", "the hosts meet at the first of them"},
      {"adopt", "there each rank has been started by something else"},
  };
  for (const auto& [name, why] : kContradictions)
    if (line.has(name) && line.get(name).kind != Origin::kEngine)
      throw Error(ErrorCode::kUsage,
                  fmt::format("{} and {} contradict each other", hosts, line.get(name).origin), why,
                  "leave one of them out");
  if (line.text("stdin", "none") != "none")
    refuse_value(line, "stdin",
                 fmt::format("cannot be had with {}: a rank's standard input would be on "
                             "another host; --stdin=none",
                             hosts));
}

std::string text_of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string why = base::system_error("open it").why();
  std::error_code unknown;
  const bool is_folder = std::filesystem::is_directory(path, unknown);
  if (!file || is_folder)
    throw Error(ErrorCode::kNotFound, fmt::format("cannot read --hostfile={}", path),
                is_folder ? "it is a folder" : why, "name a file with a host in each line");
  const std::string text = beginning_of(file);
  if (text.size() > kMostFileBytes)
    throw Error(ErrorCode::kUsage, fmt::format("--hostfile={} is too long", path), "", "");
  return text;
}

std::string first_label(const std::string& name) {
  return name.substr(0, name.find('.'));
}

std::vector<ListedHost> listed_hosts(const CommandLine& line) {
  return line.has("hostfile")
             ? parse_hostfile(text_of_file(line.text("hostfile", "")), line.text("hostfile", ""))
             : parse_host_list(line.get("hosts").value, line.get("hosts").origin);
}

// Each of several programs has a number of ranks of its own.
void refuse_slots(const std::vector<ListedHost>& hosts) {
  for (const ListedHost& host : hosts)
    if (host.slots)
      throw Error(ErrorCode::kUsage,
                  fmt::format("{} is to have {} ranks, but several programs are named", host.name,
                              *host.slots),
                  "how many ranks of each a host has is said by each program's --nproc_per_node",
                  "name the hosts without numbers");
}

std::vector<HostNode> nodes_of(const std::vector<ListedHost>& hosts, const CommandLine& line) {
  const std::string otherwise = line.text("nproc-per-node", "1");
  std::vector<HostNode> nodes;
  std::string here;
  const std::vector<std::string> addresses = base::interface_addresses();
  for (const ListedHost& host : hosts) {
    HostNode node{host.name, static_cast<int>(nodes.size()),
                  host.slots ? std::to_string(*host.slots) : otherwise};
    if (is_this_machine(host.name, addresses)) {
      if (!here.empty())
        throw Error(ErrorCode::kUsage,
                    fmt::format("{} and {} are both this machine", here, host.name), "",
                    "name it once, with all its ranks");
      here = host.name;
      node.place = HostPlace::kThisMachine;
    }
    nodes.push_back(std::move(node));
  }
  return nodes;
}

// The name by which the other hosts find the first one, which listens at all its addresses. If the
// first host is this machine, "localhost" must be replaced by a name that the others know.
std::string meeting_address(const std::vector<HostNode>& nodes) {
  const HostNode& first = nodes.front();
  const std::string plain = first.host.substr(first.host.find('@') + 1);
  if (first.place == HostPlace::kRemote) return plain;
  if (nodes.size() == 1) return "127.0.0.1";
  const std::string& second = nodes[1].host;
  try {
    return base::source_address_towards(second.substr(second.find('@') + 1));
  } catch (const Error&) {
    return base::whole_host_name();  // ssh alone may know the other's name
  }
}

// The user's options for every node's dtrun: without those that say where it runs.
std::vector<std::string> words_for_nodes(const CommandLine& line) {
  static const std::set<std::string_view> kOfNodes = {
      "nproc-per-node", "nnodes", "node-rank", "master-addr", "master-port", "port-range",
      "scheduler",      "wdir",   "env",       "config",      "dry-run",     "stdin"};
  std::vector<std::string> words;
  for (const auto& [name, given] : line.values) {
    const OptionRow& row = *find_exactly(name);
    if (kOfNodes.contains(name) || row.group == OptionGroup::kHosts ||
        given.kind == Origin::kEngine)
      continue;
    const ValueDemand demand = demand_of(row);
    const bool alone =
        demand == ValueDemand::kNone || (demand == ValueDemand::kOptional && given.value == "1");
    words.push_back(alone ? spelling_of(row) : fmt::format("{}={}", spelling_of(row), given.value));
  }
  return words;
}

std::string new_secret() {
  std::array<unsigned char, 16> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    throw base::system_error("get random bytes");
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

// DTRUN_* variables that are no options. Options from the environment are in the command line
// already.
std::map<std::string, std::string> own_variables(const base::Environment& environment) {
  std::set<std::string> of_options;
  for (const OptionRow& row : option_table()) of_options.insert(variable_of(row, "DTRUN_"));
  std::map<std::string, std::string> variables;
  for (const auto& [name, value] : environment.variables())
    if (name.starts_with("DTRUN_") && !of_options.contains(name)) variables[name] = value;
  return variables;
}

// Reads the options as node 0's dtrun will, so that an error is reported before any host is asked.
Options options_of_first(const std::string& name, const CommandLine& line, const HostPlan& plan,
                         const base::Environment& environment) {
  CommandLine first = line;
  for (const OptionRow& row : option_table())
    if (row.group == OptionGroup::kHosts) first.values.erase(row.name);
  const std::string& origin = line.get(line.has("hosts") ? "hosts" : "hostfile").origin;
  const auto set = [&](const char* option, std::string value) {
    first.values[option] = {std::move(value), origin, Origin::kCommandLine};
  };
  set("nnodes", std::to_string(plan.order.node_count));
  set("node-rank", "0");
  set("nproc-per-node", plan.order.nodes.front().ranks);
  set("master-addr", plan.order.master_addr);
  if (!first.has("master-port")) set("master-port", "29500");
  return read_options(name, std::move(first), environment);
}

// The path becomes a word of a line that the other host's shell reads.
std::string remote_dtrun_of(const std::string& name, const CommandLine& line) {
  const std::string path = line.has("remote-dtrun")              ? line.text("remote-dtrun", "")
                           : name.find('/') != std::string::npos ? own_program_path()
                                                                 : "dtrun";
  const auto is_plain = [](unsigned char letter) {
    return std::isalnum(letter) != 0 ||
           std::string_view("/._-+~@:,").find(static_cast<char>(letter)) != std::string_view::npos;
  };
  if (path.empty() || path.front() == '-' || !std::ranges::all_of(path, is_plain))
    throw Error(ErrorCode::kUsage, fmt::format("'{}' is no path for --remote_dtrun", path),
                "the other host's shell, whichever it is, would not read it as one word",
                "a path of letters, digits and /._-+@:,");
  return path;
}

/// By ~/.ssh/config.
bool user_shares_connections(const base::Environment& environment) {
  std::ifstream file(environment.get("HOME").value_or("") + "/.ssh/config");
  return configures_sharing(beginning_of(file));
}

std::vector<std::string> remote_shell_of(const CommandLine& line, OptionBinding& binding,
                                         const base::Environment& environment,
                                         base::Deadline::Duration join_timeout) {
  std::chrono::nanoseconds persist = kPersist;
  binding.parsed("ssh-persist", persist, parse_seconds);
  if (!line.has("remote-shell")) {
    if (!line.has("ssh-persist") && user_shares_connections(environment)) persist = {};
    return default_remote_shell(join_timeout, persist);
  }
  if (line.has("ssh-persist") && persist.count() != 0)
    refuse_value(line, "ssh-persist",
                 "is for dtrun's own ssh; --remote_shell='ssh -o ControlMaster=auto -o "
                 "ControlPath=PATH -o ControlPersist=SECONDS' keeps yours");
  return split_remote_shell(line.get("remote-shell").value);
}

// The terminal is on this host, and the lines are tagged and coloured on the others.
void add_terminal_words(const CommandLine& line, Options& options, HostOrder& order) {
  if (::isatty(STDOUT_FILENO) != 1 || options.output.format == LineFormat::kJson) return;
  if (line.text("tag", "auto") == "auto") order.options.emplace_back("--tag=always");
  if (options.output.coloured(Destination::kTerminal)) order.options.emplace_back("--color=always");
}

}  // namespace

bool names_loopback(const std::string& host) {
  return host == "localhost" || host == "127.0.0.1" || host == "::1";
}

bool is_this_machine(const std::string& host, const std::vector<std::string>& addresses) {
  const std::string own = base::host_name();
  if (names_loopback(host) || host == own) return true;
  if (std::ranges::find(addresses, host) != addresses.end()) return true;
  if (first_label(host) != first_label(own)) return false;
  const std::string whole = base::whole_host_name();
  return host == whole || host == first_label(whole);
}

HostPlan make_host_plan(const std::string& name, const CommandLine& line,
                        const base::Environment& environment) {
  refuse_contradictions(line);
  HostPlan plan;
  HostOrder& order = plan.order;
  const std::vector<ListedHost> hosts = listed_hosts(line);
  order.nodes = nodes_of(hosts, line);
  order.node_count = static_cast<int>(order.nodes.size());
  order.master_addr = meeting_address(order.nodes);
  plan.options = options_of_first(name, line, plan, environment);
  order.version = version_number();
  if (plan.options.programs.size() > 1) refuse_slots(hosts);
  order.program = words_of(plan.options.programs);
  order.options = words_for_nodes(line);
  add_terminal_words(line, plan.options, order);
  if (!line.has("rdzv-id")) order.options.push_back("--rdzv_id=" + new_secret().substr(0, 16));
  if (plan.options.pass_local_rank && !line.has("pass-local-rank"))
    order.options.emplace_back("--pass_local_rank");
  order.environment = own_variables(environment);
  if (plan.options.token_file.empty() && plan.options.proof == AgentProof::kByPlace)
    order.environment.try_emplace(kTokenVariable, new_secret());
  for (auto& [variable, value] : exported_variables(line, environment))
    order.environment[variable] = value;
  order.folder = line.has("wdir") ? std::filesystem::absolute(line.text("wdir", "")).string()
                                  : std::filesystem::current_path().string();
  order.join_timeout = plan.options.rounds.join_timeout;
  order.grace = std::max(plan.options.stop.shutdown_timeout, plan.options.stop.failure_timeout);
  OptionBinding binding(line);
  order.remote_shell = remote_shell_of(line, binding, environment, order.join_timeout);
  order.remote_dtrun = remote_dtrun_of(name, line);
  binding.parsed("hosts-fanout", order.fanout, within(1, 100'000));
  plan.head_ports = line.has("master-port")  ? line.text("master-port", "0")
                    : line.has("port-range") ? line.text("port-range", "0")
                                             : "0";
  return plan;
}

}  // namespace dtrun::launcher
