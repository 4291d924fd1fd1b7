#include "explain/torch_flight.h"

#include <fmt/core.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "dtrun/base/env.h"
#include "dtrun/base/error.h"

namespace dtrun::explain {
namespace {

using base::Error;
using base::ErrorCode;
using rendezvous::FlightOperation;
using rendezvous::FlightState;
using rendezvous::RankFlight;
namespace json = boost::json;

Error malformed(const std::string& path, const std::string& why) {
  return Error(ErrorCode::kProtocol, fmt::format("{} is no record of PyTorch's", path), why,
               "give the files that TORCH_FR_DUMP_TEMP_FILE names, each with its rank at the end");
}

std::string text_of(const json::object& object, const char* key) {
  const json::value* const value = object.if_contains(key);
  if (value == nullptr || !value->is_string()) return "";
  return std::string(value->get_string().data(), value->get_string().size());
}

double number_of(const json::object& object, const char* key) {
  const json::value* const value = object.if_contains(key);
  if (value == nullptr || !value->is_number()) return 0;
  return value->to_number<double>();
}

std::string_view last_part(std::string_view path) {
  return path.substr(path.find_last_of('/') + 1);
}

int rank_of(const std::string& path) {
  std::string name = path;
  if (name.ends_with(".json")) name.resize(name.size() - 5);
  const std::size_t digits = name.find_last_not_of("0123456789") + 1;
  const auto rank = base::parse_integer(std::string_view(name).substr(digits));
  if (!rank || *rank > 1 << 24) throw malformed(path, "its name does not end with a rank");
  return static_cast<int>(*rank);
}

/// "[0, 1, 2]", as PyTorch writes a list into a text.
std::vector<int> ranks_of(std::string_view text) {
  std::vector<int> ranks;
  while (!text.empty()) {
    const std::size_t begin = text.find_first_of("0123456789");
    if (begin == std::string_view::npos) break;
    text.remove_prefix(begin);
    const std::size_t end = std::min(text.find_first_not_of("0123456789"), text.size());
    if (const auto rank = base::parse_integer(text.substr(0, end)))
      ranks.push_back(static_cast<int>(*rank));
    text.remove_prefix(end);
  }
  return ranks;
}

std::map<std::string, std::vector<int>> members_of(const json::object& document) {
  std::map<std::string, std::vector<int>> members;
  const json::value* const groups = document.if_contains("pg_config");
  if (groups == nullptr || !groups->is_object()) return members;
  for (const auto& [key, group] : groups->get_object()) {
    if (!group.is_object()) continue;
    // The default group has no name here, and is "0" in the entries.
    const std::string name = text_of(group.get_object(), "name");
    members[name.empty() ? "0" : name] = ranks_of(text_of(group.get_object(), "ranks"));
  }
  return members;
}

/// ["0", "default_pg"]: the name, and what it is for.
std::string group_of(const json::object& entry) {
  const json::value* const group = entry.if_contains("process_group");
  if (group == nullptr || !group->is_array() || group->get_array().empty() ||
      !group->get_array()[0].is_string())
    return "";
  return std::string(group->get_array()[0].get_string());
}

/// Elements and dtype of the first input.
void read_input(const json::object& entry, FlightOperation& operation) {
  const json::value* const sizes = entry.if_contains("input_sizes");
  if (sizes != nullptr && sizes->is_array() && !sizes->get_array().empty() &&
      sizes->get_array()[0].is_array()) {
    operation.elements = 1;
    for (const json::value& size : sizes->get_array()[0].get_array())
      if (size.is_int64() && size.get_int64() >= 0)
        operation.elements *= static_cast<std::uint64_t>(size.get_int64());
  }
  const json::value* const dtypes = entry.if_contains("input_dtypes");
  if (dtypes != nullptr && dtypes->is_array() && !dtypes->get_array().empty() &&
      dtypes->get_array()[0].is_string())
    operation.dtype = std::string(dtypes->get_array()[0].get_string());
}

/// The innermost line that is not PyTorch's own.
std::string call_site_of(const json::object& entry) {
  const json::value* const frames = entry.if_contains("frames");
  if (frames == nullptr || !frames->is_array()) return "";
  for (const json::value& frame : frames->get_array()) {
    if (!frame.is_object()) continue;
    const std::string file = text_of(frame.get_object(), "filename");
    if (file.empty() || file.find("/torch/") != std::string::npos) continue;
    return fmt::format("{}:{:.0f}", last_part(file), number_of(frame.get_object(), "line"));
  }
  return "";
}

FlightOperation operation_of(const json::object& entry,
                             const std::map<std::string, std::vector<int>>& members) {
  FlightOperation result;
  const json::value* const message = entry.if_contains("is_p2p");
  const bool is_message = message != nullptr && message->is_bool() && message->get_bool();
  // "nccl:all_reduce", "nccl:send 0->1"
  std::string name = text_of(entry, "profiling_name");
  name.erase(0, name.find(':') + 1);
  result.name = name.substr(0, name.find(' '));
  result.group = group_of(entry);
  if (const auto group = members.find(result.group); group != members.end())
    result.members.listed = group->second;
  if (is_message) {
    const std::vector<int> ends = ranks_of(name);
    if (ends.size() == 2) result.waiting_for = ends[result.name == "send" ? 1 : 0];
  }
  result.sequence =
      static_cast<std::uint64_t>(number_of(entry, is_message ? "p2p_seq_id" : "collective_seq_id"));
  // Gloo's operations never get further than "scheduled"; what is over is retired.
  const json::value* const retired = entry.if_contains("retired");
  const bool is_over = text_of(entry, "state") == "completed" ||
                       (retired != nullptr && retired->is_bool() && retired->get_bool());
  result.state = is_over ? FlightState::done : FlightState::running;
  result.call_site = call_site_of(entry);
  // Of these, members' inputs may differ.
  if (result.name != "scatter" && !result.name.starts_with("all_to_all")) read_input(entry, result);
  result.started = number_of(entry, "time_created_ns") * 1e-9;
  if (const double ended = number_of(entry, "time_discovered_completed_ns"); ended > 0)
    result.ended = ended * 1e-9;
  return result;
}

}  // namespace

bool is_torch_flight(const json::value& document) {
  const json::object* const object = document.if_object();
  const json::value* const entries = object == nullptr ? nullptr : object->if_contains("entries");
  return entries != nullptr && entries->is_array();
}

RankFlight torch_flight_of(const json::value& document, const std::string& path) {
  const json::object& object = document.as_object();
  const std::map<std::string, std::vector<int>> members = members_of(object);
  RankFlight flight;
  flight.rank = rank_of(path);
  for (const json::value& entry : object.at("entries").as_array()) {
    if (!entry.is_object()) throw malformed(path, "an entry is no object");
    flight.operations.push_back(operation_of(entry.get_object(), members));
  }
  flight.begun = flight.operations.size();
  return flight;
}

}  // namespace dtrun::explain
