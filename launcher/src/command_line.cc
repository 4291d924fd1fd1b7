#include "command_line.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "dtrun/base/error.h"
#include "options.h"
#include "spelling.h"

namespace dtrun::launcher {
namespace {

using base::Error;
using base::ErrorCode;

constexpr const char* kSeeHelp = "dtrun --help lists the options; the program comes after them";

Error usage_error(std::string what, std::string why = {}, std::string remedy = kSeeHelp) {
  return Error(ErrorCode::kUsage, std::move(what), std::move(why), std::move(remedy));
}

std::string with_dashes(std::string_view name) {
  std::string result(name);
  std::replace(result.begin(), result.end(), '_', '-');
  return result;
}

std::string with_underscores(std::string_view name) {
  std::string result(name);
  std::replace(result.begin(), result.end(), '-', '_');
  return result;
}

Error unknown_option(const std::string& word, const std::string& name) {
  std::vector<std::string_view> names;
  for (const OptionRow& row : option_table()) names.push_back(row.name);
  const std::string_view nearest = nearest_name(name, names);
  if (nearest.empty()) return usage_error(fmt::format("unknown option {}", word));
  return usage_error(fmt::format("unknown option {}", word), "",
                     fmt::format("did you mean --{}?", with_underscores(nearest)));
}

// Exact, or the one name that begins so.
const OptionRow& find_row(const std::string& word, const std::string& name) {
  const OptionRow* found = nullptr;
  std::string candidates;
  for (const OptionRow& row : option_table()) {
    if (name == row.name) return row;
    if (name.empty() || std::string_view(row.name).substr(0, name.size()) != name) continue;
    candidates += fmt::format("{}--{}", candidates.empty() ? "" : ", ", with_underscores(row.name));
    found = found == nullptr ? &row : found;
  }
  if (found == nullptr) throw unknown_option(word, name);
  if (candidates.find(',') != std::string::npos)
    throw usage_error(fmt::format("option {} is ambiguous", word),
                      fmt::format("it could be {}", candidates));
  return *found;
}

const OptionRow& find_letter(const std::string& word) {
  for (const OptionRow& row : option_table())
    if (row.letter != 0 && row.letter == word[1]) return row;
  throw unknown_option(word, word.substr(1));
}

void demand_built(const OptionRow& row, const std::string& origin) {
  if (row.help != nullptr) return;
  throw usage_error(fmt::format("{} is not yet in this version of dtrun", origin),
                    "torchrun has this option; dtrun will get it", "start without it");
}

// Takes the words up to the program, one option at a time.
class Reader {
 public:
  explicit Reader(const std::vector<std::string>& words) : words_(words) {}

  CommandLine read() {
    while (next_ < words_.size()) {
      const std::string& word = words_[next_];
      if (word == "--") {
        ++next_;
        break;
      }
      if (word.size() < 2 || word[0] != '-') break;
      ++next_;
      if (word[1] == '-') {
        read_long(word);
      } else {
        read_short(word);
      }
    }
    result_.program.assign(words_.begin() + static_cast<std::ptrdiff_t>(next_), words_.end());
    return std::move(result_);
  }

 private:
  void read_long(const std::string& word) {
    const auto equals = word.find('=');
    const std::string origin = word.substr(0, equals);
    const OptionRow& row = find_row(word, with_dashes(origin.substr(2)));
    demand_built(row, origin);
    if (row.value == nullptr) {
      if (equals != std::string::npos)
        throw usage_error(fmt::format("option {} takes no value", origin));
      keep(row, "1", origin);
    } else if (equals != std::string::npos) {
      keep(row, word.substr(equals + 1), origin);
    } else {
      keep(row, next_value(origin), origin);
    }
  }

  void read_short(const std::string& word) {
    const OptionRow& row = find_letter(word);
    const std::string origin = word.substr(0, 2);
    demand_built(row, origin);
    if (row.value == nullptr) {
      if (word.size() > 2) throw unknown_option(word, word.substr(1));
      keep(row, "1", origin);
    } else {
      keep(row, word.size() > 2 ? word.substr(2) : next_value(origin), origin);
    }
  }

  std::string next_value(const std::string& origin) {
    if (next_ == words_.size()) throw usage_error(fmt::format("option {} needs a value", origin));
    return words_[next_++];
  }

  void keep(const OptionRow& row, std::string value, std::string origin) {
    result_.values[row.name] = {std::move(value), std::move(origin)};
  }

  const std::vector<std::string>& words_;
  std::size_t next_ = 0;
  CommandLine result_;
};

// Of a flag in the environment: any number but 0 sets it, as in torchrun.
bool flag_is_set(const std::string& name, const std::string& value) {
  const auto number = base::parse_integer(value);
  if (!number)
    throw usage_error(fmt::format("{}={} is no number", name, value),
                      "it stands for an option without a value", "set it to 0 or 1");
  return *number != 0;
}

void add_environment(const base::Environment& environment, CommandLine& line) {
  for (const OptionRow& row : option_table()) {
    if (line.values.count(row.name) != 0) continue;
    for (const char* prefix : {"PET_", "DTRUN_"}) {
      std::string name = with_underscores(row.name);
      std::transform(name.begin(), name.end(), name.begin(), ::toupper);
      name = prefix + name;
      const auto value = environment.get(name);
      if (!value) continue;
      if (row.value == nullptr && !flag_is_set(name, *value)) break;
      demand_built(row, name);
      line.values[row.name] = {*value, name};
      break;
    }
  }
}

}  // namespace

CommandLine read_command_line(const std::vector<std::string>& arguments,
                              const base::Environment& environment) {
  CommandLine line = Reader(arguments).read();
  add_environment(environment, line);
  return line;
}

std::string help_text() {
  CLI::App app(
      "dtrun starts a program once per rank, on one node or several, as torchrun does, and ends\n"
      "them all when one fails.");
  app.name("dtrun");
  app.set_help_flag();
  for (const OptionRow& row : option_table()) {
    if (row.help == nullptr) continue;
    const std::string letter = row.letter != 0 ? fmt::format("-{},", row.letter) : "";
    const std::string name = letter + "--" + with_underscores(row.name);
    if (row.value == nullptr) {
      app.add_flag(name, row.help);
    } else {
      app.add_option(name, row.help)->type_name(row.value);
    }
  }
  // Stands between brackets of the formatter's own.
  app.get_formatter()->label("OPTIONS", "options] PROGRAM [ARGUMENTS...");
  app.footer(
      "PROGRAM [ARGUMENTS...] comes after the options and gets everything after its name.\n"
      "${local_rank} in them becomes each rank's number on its node.\n"
      "*.py programs are run by $PYTHON_EXEC, or python3, with -u.\n"
      "Every option can be set as PET_NAME or DTRUN_NAME too; '-' and '_' are the same.");
  return app.help();
}

}  // namespace dtrun::launcher
