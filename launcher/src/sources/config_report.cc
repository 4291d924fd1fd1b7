#include "sources/config_report.h"

#include <fmt/core.h>

#include <boost/json/object.hpp>

#include "options/option_names.h"
#include "options/rendezvous_conf.h"
#include "sources/config_file.h"
#include "text/json_text.h"

namespace dtrun::launcher {
namespace {

std::string_view name_of(Origin origin) {
  switch (origin) {
    case Origin::kCommandLine:
      return "command line";
    case Origin::kTorchVariable:
    case Origin::kOwnVariable:
      return "environment";
    case Origin::kFile:
      return "file";
    case Origin::kEngine:
      break;
  }
  return "engine";
}

// "job.conf:3" of "job.conf:3: nproc_per_node".
std::string where(const GivenValue& given) {
  return given.kind == Origin::kFile ? given.origin.substr(0, given.origin.rfind(": "))
                                     : given.origin;
}

// A comment ends with its line, and so must the name of a file in it.
std::string in_one_line(std::string text) {
  for (char& letter : text)
    if (static_cast<unsigned char>(letter) < ' ') letter = '?';
  return text;
}

// nullptr: no source has a value.
const GivenValue* word_on(const CommandLine& line, const OptionRow& row) {
  for (const auto* map : {&line.values, &line.refused})
    if (const auto given = map->find(row.name); given != map->end()) return &given->second;
  return nullptr;
}

bool is_reported(const OptionRow& row) {
  return row.reach != OptionReach::kCommandLineOnly;
}

void demand_readable(const CommandLine& line) {
  read_rendezvous_conf(line);
}

std::string entry(const OptionRow& row, const GivenValue* given) {
  const std::string name = spelling_of(row).substr(2);
  const bool flag = demand_of(row) != ValueDemand::kNeeded;
  if (given == nullptr && row.otherwise == nullptr && !flag)
    return fmt::format("{:<40}  # not set\n", fmt::format("# {} =", name));
  std::string value = given != nullptr ? given->value : flag ? "false" : row.otherwise;
  if (flag && value == "1") value = "true";
  if (flag && value == "0") value = "false";
  // These stand as comments. A default in a file would override what Slurm says; and what Slurm
  // says (the node's number above all) is right for this step only.
  const bool in_force =
      given != nullptr && given->kind != Origin::kEngine && row.reach == OptionReach::kEverywhere;
  std::string result =
      fmt::format("{}{} = {}", in_force ? "" : "# ", name, written_in_config(value));
  return fmt::format("{:<40}  # {}\n", result,
                     given != nullptr ? in_one_line(where(*given)) : "default");
}

}  // namespace

std::string config_report(const CommandLine& line) {
  demand_readable(line);
  std::string result;
  const OptionRow* last = nullptr;
  for (const OptionRow& row : option_table()) {
    if (!is_reported(row)) continue;
    if (last == nullptr || last->group != row.group)
      result += fmt::format("{}# {}\n", last == nullptr ? "" : "\n", heading_of(row.group));
    result += entry(row, word_on(line, row));
    last = &row;
  }
  return result;
}

std::string config_report_json(const CommandLine& line) {
  demand_readable(line);
  boost::json::object report;
  for (const OptionRow& row : option_table()) {
    if (!is_reported(row)) continue;
    boost::json::object one;
    if (const GivenValue* given = word_on(line, row)) {
      one["value"] = given->value;
      one["origin"] = name_of(given->kind);
      one["where"] = where(*given);
    } else {
      one["value"] = nullptr;
      if (row.otherwise != nullptr) one["value"] = row.otherwise;
      one["origin"] = "default";
    }
    report[spelling_of(row).substr(2)] = std::move(one);
  }
  return json_text(report);
}

}  // namespace dtrun::launcher
