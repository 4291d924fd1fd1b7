#include "preview/plan_description.h"

#include <fmt/core.h>

#include <algorithm>
#include <boost/json/array.hpp>

#include "meeting/host_election.h"
#include "output/log_folder.h"

namespace dtrun::launcher {
namespace {

namespace json = boost::json;

constexpr std::string_view kGivenOut = "<given out by the rendezvous>", kFree = "<a free one>",
                           kNew = "<new>", kAtStart = "<at the start>";

double seconds_of(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

// What is known of this node's place before it has met the others.
struct Place {
  std::optional<int> node;
  std::optional<int> base_rank;
  std::optional<int> world_size;
};

Place place_of(const LaunchPlan& plan) {
  const Options& options = plan.options;
  Place place;
  if (options.rounds.elastic()) return place;
  // Other nodes may have other numbers of ranks. The plan assumes the usual case, and says so.
  place.world_size = options.rounds.max_nodes * plan.local_ranks;
  place.node = options.rounds.max_nodes == 1 ? 0 : options.node_rank;
  if (place.node) place.base_rank = *place.node * plan.local_ranks;
  return place;
}

std::string_view backend_of(Rendezvous rendezvous) {
  switch (rendezvous) {
    case Rendezvous::kStatic:
      return "static";
    case Rendezvous::kC10d:
      return "c10d";
    case Rendezvous::kFile:
      return "c10d, through a file";
    case Rendezvous::kEtcd:
      break;
  }
  return "etcd-v2";
}

std::string who_would_host(const Options& options, const std::string& host) {
  const std::string& address = options.master_addr;
  if (options.rounds.max_nodes == 1 && options.rendezvous != Rendezvous::kEtcd)
    return "this dtrun: there is one node";
  switch (options.rendezvous) {
    case Rendezvous::kStatic:
      return options.node_rank == 0 ? "this dtrun: it is node 0" : "node 0";
    case Rendezvous::kFile:
      return fmt::format("the first to come to {}", options.head_file);
    case Rendezvous::kEtcd:
      return "the one that etcd elects";
    case Rendezvous::kC10d:
      break;
  }
  if (options.hosting == Hosting::kAlways) return "this dtrun: is_host=true";
  if (options.hosting == Hosting::kNever) return "another dtrun: is_host=false";
  if (address == host || address == "localhost" || is_loopback(address))
    return fmt::format("this dtrun: '{}' is this machine", address);
  return fmt::format("the dtrun on the machine that '{}' names", address);
}

json::object rendezvous_of(const LaunchPlan& plan, const std::string& host) {
  const Options& options = plan.options;
  json::object result;
  result["backend"] = backend_of(options.rendezvous);
  result["address"] =
      options.rendezvous == Rendezvous::kFile ? options.head_file : options.master_addr;
  result["port"] = nullptr;
  if (options.master_port.value_or(0) != 0) result["port"] = int{*options.master_port};
  result["host"] = who_would_host(options, host);
  return result;
}

json::object timeouts_of(const Options& options) {
  const auto& rounds = options.rounds;
  json::object result;
  result["join"] = seconds_of(rounds.join_timeout);
  result["last_call"] = seconds_of(rounds.last_call_timeout);
  result["close"] = seconds_of(rounds.close_timeout);
  result["keep_alive_interval"] = seconds_of(rounds.keep_alive_interval);
  result["lost_after"] = seconds_of(rounds.silence_window);
  result["read"] = seconds_of(options.answer_timeout);
  result["shutdown"] = seconds_of(options.stop.shutdown_timeout);
  result["restart"] = seconds_of(options.stop.restart_timeout);
  result["failure"] = seconds_of(options.stop.failure_timeout);
  return result;
}

json::object restarts_of(const rendezvous::rounds::RoundSettings& rounds) {
  json::object result;
  result["most"] = rounds.max_restarts;
  result["scope"] =
      rounds.restart_scope == rendezvous::rounds::RestartScope::kJob ? "job" : "agent";
  result["backoff"] = seconds_of(rounds.backoff);
  result["most_backoff"] = seconds_of(rounds.most_backoff);
  result["give_up_when_alike_within"] = seconds_of(rounds.alike_window);
  result["give_up_on_codes"] = json::array(rounds.final_codes.begin(), rounds.final_codes.end());
  return result;
}

std::string_view name_of(ContainmentWish wish) {
  switch (wish) {
    case ContainmentWish::kAuto:
      return "auto";
    case ContainmentWish::kCgroup:
      return "cgroup";
    case ContainmentWish::kNamespace:
      return "namespace";
    case ContainmentWish::kGuard:
      break;
  }
  return "guard";
}

// "NAME=value" strings as an object.
json::object variables_of(const std::vector<std::string>& strings) {
  json::object result;
  for (const std::string& text : strings) {
    const auto equals = text.find('=');
    result[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return result;
}

// What the ranks of all programs have alike.
json::object common_variables(const LaunchPlan& plan) {
  json::object common = variables_of(plan.programs.front().command.environment);
  for (const PlannedProgram& program : plan.programs) {
    const json::object own = variables_of(program.command.environment);
    json::object alike;
    for (const auto& [name, value] : common)
      if (const json::value* const same = own.if_contains(name); same && *same == value)
        alike[name] = value;
    common = std::move(alike);
  }
  return common;
}

// The variables that all ranks have and dtrun has not, and the other way round.
void add_common_environment(const LaunchPlan& plan, const base::Environment& environment,
                            json::object& result) {
  json::object set;
  const json::object common = common_variables(plan);
  for (const auto& [name, value] : common)
    if (environment.get(std::string(name)) != value.as_string().c_str()) set[name] = value;
  json::array removed;
  for (const auto& [name, value] : environment.variables())
    if (!common.contains(name)) removed.emplace_back(name);
  result["environment"] = std::move(set);
  result["environment_removed"] = std::move(removed);
}

// The random part of a folder's name, "_0123456789abcdef", is another one at each start.
std::string without_random_parts(std::string path) {
  constexpr std::size_t kDigits = 16;
  for (auto at = path.find('_'); at != std::string::npos; at = path.find('_', at + 1)) {
    const auto end = std::min(path.find_first_not_of("0123456789abcdef", at + 1), path.size());
    if (end - at - 1 == kDigits) path.replace(at + 1, kDigits, "<random>");
  }
  return path;
}

class RankDescriber {
 public:
  RankDescriber(const LaunchPlan& plan, std::string host)
      : plan_(plan),
        place_(place_of(plan)),
        logs_(LogFolder::choose(plan)),
        common_(common_variables(plan)),
        host_(std::move(host)) {}

  json::object describe(int local_rank) const {
    json::object result;
    const auto number = [](const std::optional<int>& value) {
      return value ? json::value(*value) : json::value(nullptr);
    };
    std::optional<int> rank;
    if (place_.base_rank) rank = *place_.base_rank + local_rank;
    result["rank"] = number(rank);
    const auto& adopted = plan_.options.adopted;
    result["local_rank"] = adopted ? adopted->local_rank : local_rank;
    result["host"] = host_;
    const base::ChildCommand command = command_of_rank(plan_, local_rank);
    result["arguments"] = json::array(command.arguments.begin(), command.arguments.end());
    result["folder"] = command.folder.empty() ? json::value(nullptr) : json::value(command.folder);
    json::object variables = environment_of(local_rank);
    const RankBinding& binding = plan_.bindings[static_cast<std::size_t>(local_rank)];
    result["cpus"] = json::array(binding.cpus.begin(), binding.cpus.end());
    result["memory_node"] = number(binding.memory_node);
    result["omp_num_threads"] = omp_num_threads(variables);
    const std::string error_file = error_file_of(local_rank);
    result["error_file"] = error_file.empty() ? json::value(nullptr) : json::value(error_file);
    result["stdout"] = stream_of(local_rank, Stream::kOut);
    result["stderr"] = stream_of(local_rank, Stream::kError);
    result["environment"] = std::move(variables);
    return result;
  }

 private:
  std::string error_file_of(int local_rank) const {
    return without_random_parts(logs_.file_of(0, local_rank));
  }

  json::object stream_of(int local_rank, Stream stream) const {
    const StreamPlan plan = plan_.options.output.plan(local_rank, stream);
    const std::string path = error_file_of(local_rank);
    json::object result;
    result["console"] = plan.console;
    result["file"] = nullptr;
    if (plan.file)
      result["file"] = path.substr(0, path.rfind('/')) +
                       (stream == Stream::kOut ? "/stdout.log" : "/stderr.log");
    return result;
  }

  json::object environment_of(int local_rank) const {
    const Options& options = plan_.options;
    rendezvous::WorkerEnv worker;
    worker.rank = worker.role_rank = place_.base_rank.value_or(0) + local_rank;
    worker.local_rank = local_rank;
    worker.world_size = worker.role_world_size = place_.world_size.value_or(plan_.local_ranks);
    worker.local_world_size = plan_.local_ranks;
    worker.group_rank = place_.node.value_or(0);
    worker.group_world_size = options.rounds.max_nodes;
    worker.role_name = options.role;
    worker.master_addr = options.master_addr;
    worker.master_port = options.master_port.value_or(0);
    worker.max_restarts = options.rounds.max_restarts;
    worker.run_id = plan_.run_id;
    worker.error_file = error_file_of(local_rank);
    json::object variables = variables_of(rank_environment(plan_, worker));
    for (const auto& [name, value] : variables_of(command_of_rank(plan_, local_rank).environment))
      if (!common_.contains(name)) variables[name] = value;
    const auto replace = [&](std::initializer_list<const char*> names, std::string_view text) {
      for (const char* name : names) variables[name] = text;
    };
    if (!place_.base_rank) replace({"RANK", "ROLE_RANK"}, kGivenOut);
    if (!place_.node) replace({"GROUP_RANK"}, kGivenOut);
    if (!place_.world_size)
      replace({"WORLD_SIZE", "ROLE_WORLD_SIZE", "GROUP_WORLD_SIZE"}, kGivenOut);
    const bool one_or_static =
        options.rounds.max_nodes == 1 || options.rendezvous == Rendezvous::kStatic;
    if (!one_or_static) replace({"MASTER_ADDR", "MASTER_PORT"}, kGivenOut);
    const bool at_endpoint = plan_.store_server == StoreServer::kAgent && worker.master_port != 0;
    if (one_or_static && !at_endpoint) replace({"MASTER_PORT"}, kFree);
    for (const char* name : rendezvous::kJobPageNames) replace({name}, kAtStart);
    return variables;
  }

  json::value omp_num_threads(const json::object& variables) const {
    if (const json::value* own = variables.if_contains("OMP_NUM_THREADS")) return *own;
    const json::value* shared = common_.if_contains("OMP_NUM_THREADS");
    return shared != nullptr ? *shared : json::value(nullptr);
  }

  const LaunchPlan& plan_;
  Place place_;
  LogFolder logs_;
  json::object common_;  // variables that all ranks have alike
  std::string host_;
};

}  // namespace

boost::json::object describe_plan(const LaunchPlan& given, const base::Environment& environment,
                                  const std::string& host) {
  LaunchPlan plan = given;
  // The run id would be another one at each start, so it is null.
  const bool named = !plan.options.run_id.empty() || plan.options.rounds.max_nodes > 1;
  if (!named) plan.run_id = kNew;
  json::object result;
  result["run_id"] = named ? json::value(plan.run_id) : json::value(nullptr);
  result["role"] = plan.options.role;
  result["nodes"] = {{"least", plan.options.rounds.min_nodes},
                     {"most", plan.options.rounds.max_nodes}};
  result["ranks_here"] = plan.local_ranks;
  const Place place = place_of(plan);
  result["world_size"] = place.world_size ? json::value(*place.world_size) : json::value(nullptr);
  // Nobody has been asked.
  result["world_size_is_assumed"] = place.world_size && plan.options.rounds.max_nodes > 1;
  result["restarts"] = restarts_of(plan.options.rounds);
  result["containment"] = name_of(plan.options.containment);
  result["rendezvous"] = rendezvous_of(plan, host);
  result["timeouts"] = timeouts_of(plan.options);
  std::string programs;
  for (const PlannedProgram& program : plan.programs)
    programs += (programs.empty() ? "" : " : ") + program.command.path;
  result["program"] = programs;
  add_common_environment(plan, environment, result);
  json::array ranks;
  const RankDescriber describer(plan, host);
  for (int rank = 0; rank < plan.local_ranks; ++rank) ranks.push_back(describer.describe(rank));
  result["ranks"] = std::move(ranks);
  return result;
}

}  // namespace dtrun::launcher
