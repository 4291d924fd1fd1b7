#include "preview/plan_table.h"

#include <fmt/core.h>

#include <boost/json/serialize.hpp>
#include <vector>

namespace dtrun::launcher {
namespace {

namespace json = boost::json;

constexpr std::size_t kMostValues = 8;  // in a line; of more ranks the first and the last are shown

std::string text_of(const json::value& value, std::string_view otherwise) {
  if (value.is_null()) return std::string(otherwise);
  if (const json::string* text = value.if_string()) return std::string(text->data(), text->size());
  // 30, not 3E1.
  if (const double* number = value.if_double()) return fmt::format("{:g}", *number);
  return json::serialize(value);
}

std::string fact(std::string_view name, std::string_view text) {
  return fmt::format("{:<13}{}\n", name, text);
}

// "0-3,8" of [0, 1, 2, 3, 8].
std::string cpu_list(const json::array& cpus) {
  std::string result;
  for (std::size_t begin = 0; begin < cpus.size();) {
    std::size_t end = begin;
    while (end + 1 < cpus.size() && cpus[end + 1].as_int64() == cpus[end].as_int64() + 1) ++end;
    if (!result.empty()) result += ',';
    result += json::serialize(cpus[begin]);
    if (end > begin) result += "-" + json::serialize(cpus[end]);
    begin = end + 1;
  }
  return result.empty() ? "any" : result;
}

// With quotes where a shell would need them.
std::string quoted(std::string_view word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=:,+@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string_view::npos)
    return std::string(word);
  std::string result = "'";
  for (const char letter : word) {
    if (letter == '\'') {
      result += "'\\''";
    } else {
      result += letter;
    }
  }
  return result + "'";
}

std::string command_of(const json::object& rank) {
  std::string result;
  for (const json::value& argument : rank.at("arguments").as_array())
    result += (result.empty() ? "" : " ") + quoted(argument.as_string().c_str());
  return result;
}

// "3 of the job, after 5 s and then up to 300 s; none after two alike within 10 s, or with 7"
std::string restarts_of(const json::object& restarts) {
  const std::string most = text_of(restarts.at("most"), "");
  if (most == "0") return "none";
  std::string result = most + (restarts.at("scope") == "job" ? " of the job" : " of each agent");
  if (restarts.at("backoff").as_double() > 0)
    result += fmt::format(", after {} s and then up to {} s", text_of(restarts.at("backoff"), ""),
                          text_of(restarts.at("most_backoff"), ""));
  std::string never;
  if (restarts.at("give_up_when_alike_within").as_double() > 0)
    never = fmt::format(" after two failures alike within {} s",
                        text_of(restarts.at("give_up_when_alike_within"), ""));
  for (const json::value& code : restarts.at("give_up_on_codes").as_array())
    never += fmt::format("{} after exit code {}", never.empty() ? "" : ",", text_of(code, ""));
  return never.empty() ? result : result + "; none" + never;
}

using Rows = std::vector<std::vector<std::string>>;

// Columns as wide as their widest cell.
std::string aligned(const Rows& rows) {
  std::vector<std::size_t> widths(rows.front().size());
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string result;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i)
      line += fmt::format("{}{:<{}}", i == 0 ? "" : "  ", row[i], widths[i]);
    result += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return result;
}

std::string destination_of(const json::value& stream) {
  const bool console = stream.at("console").as_bool(), file = !stream.at("file").is_null();
  return console && file ? "both" : console ? "console" : file ? "file" : "nowhere";
}

std::string rank_rows(const json::array& ranks) {
  Rows rows = {{"rank", "local", "host", "cpus", "memory", "omp", "stdout", "stderr", "error file",
                "command"}};
  for (const json::value& value : ranks) {
    const json::object& rank = value.as_object();
    const json::value& node = rank.at("memory_node");
    rows.push_back({text_of(rank.at("rank"), "given out"), text_of(rank.at("local_rank"), ""),
                    text_of(rank.at("host"), ""), cpu_list(rank.at("cpus").as_array()),
                    node.is_null() ? "any" : "node " + text_of(node, ""),
                    text_of(rank.at("omp_num_threads"), "-"), destination_of(rank.at("stdout")),
                    destination_of(rank.at("stderr")), text_of(rank.at("error_file"), "-"),
                    command_of(rank)});
  }
  return aligned(rows);
}

// Of ranks that run several programs some may not have it.
std::string variable_of(const json::value& rank, std::string_view name) {
  const json::value* const value = rank.at("environment").as_object().if_contains(name);
  return value == nullptr ? "(unset)" : text_of(*value, "");
}

// In the order in which the ranks have them.
std::vector<std::string> names_of_variables(const json::array& ranks) {
  json::object names;
  for (const json::value& rank : ranks)
    for (const auto& [name, value] : rank.at("environment").as_object()) names[name] = nullptr;
  std::vector<std::string> result;
  for (const auto& [name, nothing] : names) result.emplace_back(std::string_view(name));
  return result;
}

// A value that all ranks share is printed once, others as NAME=a|b|c.
std::string environment_rows(const json::object& plan) {
  std::string result;
  for (const auto& [name, value] : plan.at("environment").as_object())
    result += fmt::format("  {}={}\n", std::string_view(name), text_of(value, ""));
  const json::array& ranks = plan.at("ranks").as_array();
  for (const std::string& name : names_of_variables(ranks)) {
    const std::string first = variable_of(ranks.front(), name);
    std::string values = first;
    bool same = true;
    for (const json::value& rank : ranks) same = same && variable_of(rank, name) == first;
    for (std::size_t i = 1; i < ranks.size() && !same; ++i) {
      const bool left_out = ranks.size() > kMostValues && i + 1 < ranks.size() && i > 1;
      if (!left_out) values += " | " + variable_of(ranks[i], name);
      if (left_out && i == 2) values += " | ...";
    }
    result += fmt::format("  {}={}\n", name, values);
  }
  for (const json::value& name : plan.at("environment_removed").as_array())
    result += fmt::format("  {} is removed\n", text_of(name, ""));
  return result;
}

}  // namespace

std::string plan_table(const boost::json::object& plan) {
  const json::object& nodes = plan.at("nodes").as_object();
  const json::object& meeting = plan.at("rendezvous").as_object();
  const std::string least = text_of(nodes.at("least"), ""), most = text_of(nodes.at("most"), "");
  std::string result = "Nothing is started: --dry-run.\n\n";
  result += fact("run id", text_of(plan.at("run_id"), "new at each start"));
  result += fact("role", text_of(plan.at("role"), ""));
  result += fact("nodes", least == most ? most : least + " to " + most);
  std::string ranks = text_of(plan.at("ranks_here"), "") + " here, ";
  if (plan.at("world_size").is_null()) {
    ranks += "as many as come in all";
  } else {
    ranks += text_of(plan.at("world_size"), "") + " in all";
    if (plan.at("world_size_is_assumed").as_bool()) ranks += ", if every node has as many";
  }
  result += fact("ranks", ranks);
  result += fact("restarts", restarts_of(plan.at("restarts").as_object()));
  result += fact("containment", text_of(plan.at("containment"), ""));
  result += fact("program", text_of(plan.at("program"), ""));
  result += fact("rendezvous", fmt::format("{}, {}, port {}", text_of(meeting.at("backend"), ""),
                                           text_of(meeting.at("address"), ""),
                                           text_of(meeting.at("port"), "a free one")));
  result += fact("host", text_of(meeting.at("host"), ""));
  std::string timeouts;
  for (const auto& [name, value] : plan.at("timeouts").as_object())
    timeouts += fmt::format("{}{} {} s", timeouts.empty() ? "" : ", ", std::string_view(name),
                            text_of(value, ""));
  result += fact("timeouts", timeouts);
  result += "\n" + rank_rows(plan.at("ranks").as_array());
  result += "\nEnvironment, beside dtrun's own:\n" + environment_rows(plan);
  return result;
}

}  // namespace dtrun::launcher
