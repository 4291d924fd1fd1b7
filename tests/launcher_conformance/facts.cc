#include "facts.h"

#include <fmt/core.h>

#include <algorithm>
#include <boost/json.hpp>
#include <regex>
#include <sstream>

#include "dtrun/base/json.h"

namespace dtrun::launcher_conformance {
namespace {

namespace json = boost::json;

void replace_all(std::string& text, const std::string& what, const std::string& by) {
  if (what.empty()) return;
  for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size()))
    text.replace(at, what.size(), by);
}

std::string normal_value(const std::string& name, const std::string& value,
                         const Surroundings& around) {
  if (name == "MASTER_ADDR")
    for (const std::string& host : around.host_names)
      if (value == host) return "HOST";
  if (name == "MASTER_PORT" && value == around.port) return "PORT";
  if (name == "MASTER_PORT" && value != "29500") return "FREE";
  if (name == "TORCHELASTIC_RUN_ID" && value.size() >= 16) return "UNIQUE";
  if (name == "DTRUN_JOB_PAGE_FD") return "FD";
  if (name == "DTRUN_JOB_PAGE_ID") return "ID";
  return normal_path(value, around);
}

std::string joined(const std::vector<std::string>& values) {
  if (std::all_of(values.begin(), values.end(), [&](const auto& v) { return v == values[0]; }))
    return values[0];
  std::string text;
  for (const std::string& value : values) text += (text.empty() ? "" : " | ") + value;
  return text;
}

// What depends on which agent came first.
bool by_chance(const std::string& name) {
  return name != "RANK" && name != "WORLD_SIZE" && name != "ROLE_WORLD_SIZE";
}

std::string normal_line(std::string line, const Surroundings& around) {
  static const std::regex kTime("[0-9]{4}-[0-9]{2}-[0-9]{2}_[0-9]{2}:[0-9]{2}:[0-9]{2}");
  static const std::regex kPid("(pid: |PID )[0-9]+");
  static const std::regex kHost("^(  host      : ).*$");
  line = std::regex_replace(line, kTime, "TIME");
  line = std::regex_replace(line, kPid, "$1PID");
  line = std::regex_replace(line, kHost, "$1HOST");
  return normal_path(line, around);
}

json::value normal_json(const json::value& value, const std::string& key) {
  if (key == "timestamp") return value.is_string() ? "TIME" : "TIME, a number";
  if (key == "py_callstack") return "STACK";
  if (!value.is_object()) return value;
  std::map<std::string, json::value> sorted;
  for (const auto& [name, inner] : value.as_object()) sorted[name] = normal_json(inner, name);
  json::object object;
  for (const auto& [name, inner] : sorted) object[name] = inner;
  return object;
}

}  // namespace

RankRecord read_rank_record(const std::string& bytes) {
  RankRecord record;
  bool in_environment = true;
  for (std::size_t begin = 0; begin < bytes.size();) {
    const auto end = bytes.find('\0', begin);
    const std::string entry = bytes.substr(begin, end - begin);
    begin = end + 1;
    if (!in_environment) {
      record.arguments.push_back(entry);
    } else if (entry.empty()) {
      in_environment = false;
    } else {
      record.environment[entry.substr(0, entry.find('='))] = entry.substr(entry.find('=') + 1);
    }
  }
  return record;
}

void add_environment(const std::map<std::string, RankRecord>& ranks, const Surroundings& around,
                     Numbering numbering, Facts& facts) {
  std::map<std::string, std::vector<std::string>> values;
  std::map<std::string, bool> counts;
  for (const auto& [rank, record] : ranks)
    for (const auto& [name, value] : record.environment) {
      const auto before = around.environment.find(name);
      counts[name] |=
          before == around.environment.end() || before->second != value || name.starts_with("PET_");
    }
  for (const auto& [rank, record] : ranks) {
    for (const auto& [name, count] : counts)
      if (count)
        values["env." + name].push_back(
            record.environment.contains(name)
                ? normal_value(name, record.environment.at(name), around)
                : "(unset)");
    for (const auto& [name, value] : around.environment)
      if (!record.environment.contains(name)) values["env." + name].emplace_back("(removed)");
    values["arguments"].push_back("");
    for (const std::string& argument : record.arguments)
      values["arguments"].back() += '<' + normal_path(argument, around) + '>';
  }
  if (numbering == Numbering::kByChance) values.erase("env.GROUP_RANK");
  for (auto& [name, list] : values) {
    if (numbering == Numbering::kByChance && by_chance(name.substr(4)))
      std::sort(list.begin(), list.end());
    facts[name] = joined(list);
  }
}

void add_table(const std::string& standard_error, const Surroundings& around, Facts& facts) {
  const std::string rule(60, '=');
  const auto begin = standard_error.find(rule + "\n");
  const auto end = standard_error.rfind(rule);
  if (begin == std::string::npos || end == begin) return;
  std::istringstream lines(standard_error.substr(begin, end + rule.size() - begin));
  int number = 0;
  for (std::string line; std::getline(lines, line); ++number) {
    facts[fmt::format("table.{:02}", number)] = normal_line(line, around);
  }
}

std::string normal_error_file(const std::string& text) {
  if (text.empty()) return "(none)";
  return json::serialize(normal_json(base::parse_json(text, "an error file"), ""));
}

std::string normal_path(const std::string& path, const Surroundings& around) {
  static const std::regex kRandom("(torchelastic|dtrun|none|job-1)_[0-9a-z_]{8,16}(?=/|$)");
  // dtrun makes up an id where torchrun writes none; that is compared by itself.
  static const std::regex kMadeUp("/[0-9a-f]{16}_[0-9a-f]{16}(?=/|$)");
  static const std::regex kUuid("/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}_[0-9a-z_]{8}(?=/|$)");
  std::string text = path;
  replace_all(text, around.folder, "$FOLDER");
  replace_all(text, around.sources, "$SOURCES");
  replace_all(text, around.worker, "$WORKER");
  text = std::regex_replace(text, kMadeUp, "/none_RANDOM");
  text = std::regex_replace(text, kUuid, "/uuid_RANDOM");
  return std::regex_replace(text, kRandom, "$1_RANDOM");
}

std::string to_json(const Record& record) {
  std::string text = "{";
  for (const auto& [name, facts] : record) {
    text += (text.size() > 1 ? ",\n" : "\n") + json::serialize(json::string(name)) + ": {";
    bool first = true;
    for (const auto& [fact, value] : facts) {
      text += (first ? "\n  " : ",\n  ") + json::serialize(json::string(fact)) + ": " +
              json::serialize(json::string(value));
      first = false;
    }
    text += "\n}";
  }
  return text + "\n}\n";
}

Record from_json(const std::string& text) {
  Record record;
  const json::value whole = base::parse_json(text, "the record");
  for (const auto& [name, facts] : whole.as_object())
    for (const auto& [fact, value] : facts.as_object())
      record[name][fact] = value.as_string().c_str();
  return record;
}

}  // namespace dtrun::launcher_conformance
