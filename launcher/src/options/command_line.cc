#include "options/command_line.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>

#include "dtrun/base/error.h"
#include "options/option_names.h"

namespace dtrun::launcher {
namespace {

using base::Error;
using base::ErrorCode;

constexpr const char* kSeeHelp = "dtrun --help lists the options; the program comes after them";

Error usage_error(std::string what, std::string why = {}, std::string remedy = kSeeHelp) {
  return Error(ErrorCode::kUsage, std::move(what), std::move(why), std::move(remedy));
}

bool is_negative_number(const std::string& word) {
  return word.size() > 1 && std::all_of(word.begin() + 1, word.end(), [](unsigned char letter) {
           return std::isdigit(letter) != 0 || letter == '.';
         });
}

// As argparse tells an option from a value: "-", negative numbers and what has a space are values.
bool looks_like_an_option(const std::string& word) {
  return word.size() > 1 && word[0] == '-' && !is_negative_number(word) &&
         word.find(' ') == std::string::npos;
}

// Both spellings and the letter; in braces the value of a flag.
std::string names_of(const OptionRow& row) {
  const char* const value = demand_of(row) == ValueDemand::kNone ? "{1}" : "";
  std::string names = fmt::format("{0}{1},--{2}{1}", spelling_of(row), value, row.name);
  if (row.letter != 0) names += fmt::format(",-{}{}", row.letter, value);
  return names;
}

CLI::Option* define(const OptionRow& row, CLI::App& app) {
  const ValueDemand demand = demand_of(row);
  CLI::Option* const option =
      demand == ValueDemand::kNone ? app.add_flag(names_of(row)) : app.add_option(names_of(row));
  if (demand == ValueDemand::kOptional) option->expected(0, 1)->default_str("1");
  return row.repeats == OptionRepeats::kAllCount ? option->take_all() : option->take_last();
}

// Cuts the line at the program and gives CLI11 what stands before it, in a form that it reads
// without doubt: options by their whole names, one in a word, and a needed value as the next word.
// Of "--role= x" CLI11 2.1 would make the role x, and of "--role --nnodes=2" the role --nnodes=2.
class LineReader {
 public:
  LineReader(const std::vector<std::string>& words, Reading reading)
      : words_(words), reading_(reading) {}

  CommandLine read() {
    CommandLine line;
    while (next_ < words_.size() && !line.options_ended) {
      const std::string& word = words_[next_];
      if (word.size() < 2 || word[0] != '-') break;
      ++next_;
      line.options_ended = word == "--";
      if (!line.options_ended) cut(word);
    }
    line.program.assign(words_.begin() + static_cast<std::ptrdiff_t>(next_), words_.end());
    if (!cut_.empty()) parse(line);
    return line;
  }

 private:
  void cut(const std::string& word) {
    try {
      word[1] == '-' ? cut_long(word) : cut_letters(word);
    } catch (const Error&) {
      if (reading_ == Reading::kStrict) throw;
      pass_over_value(word);
    }
  }

  void cut_long(const std::string& word) {
    const auto equals = word.find('=');
    const std::string origin = word.substr(0, equals);
    const OptionRow& row = find_option(word, std::string_view(origin).substr(2));
    const std::string name = origin.substr(2) == row.name ? origin : spelling_of(row);
    const ValueDemand demand = demand_of(row);
    if (demand == ValueDemand::kNeeded)
      return keep(row, origin,
                  {name, equals == word.npos ? next_value(origin) : word.substr(equals + 1)});
    if (equals != word.npos && (demand == ValueDemand::kNone || equals + 1 == word.size()))
      throw usage_error(fmt::format(
          "option {} {}", origin,
          demand == ValueDemand::kNone ? "takes no value" : "has nothing after its '='"));
    keep(row, origin, {name + word.substr(std::min(equals, word.size()))});
  }

  // "-r3", "-r=3", "-r 3", and "-mr3", which is "-m -r 3".
  void cut_letters(const std::string& word) {
    for (std::size_t at = 1; at < word.size(); ++at) {
      const OptionRow& row = find_letter(word, word[at]);
      const std::string origin = {'-', word[at]};
      if (demand_of(row) != ValueDemand::kNeeded) {
        keep(row, origin, {origin});
        continue;
      }
      const std::string rest = word.substr(at + 1);
      return keep(
          row, origin,
          {origin, rest.empty() ? next_value(origin) : rest.substr(rest[0] == '=' ? 1 : 0)});
    }
  }

  std::string next_value(const std::string& origin) {
    if (next_ == words_.size()) throw usage_error(fmt::format("option {} needs a value", origin));
    if (looks_like_an_option(words_[next_]))
      throw usage_error(fmt::format("option {} needs a value", origin),
                        fmt::format("{} after it looks like an option itself", words_[next_]),
                        fmt::format("{}={}, if that is meant", origin, words_[next_]));
    return words_[next_++];
  }

  // If an option follows the word, the word was a value and not the program.
  void pass_over_value(const std::string& word) {
    const bool can_be_one = word.find('=') == std::string::npos && next_ + 1 < words_.size();
    if (can_be_one && !looks_like_an_option(words_[next_]) &&
        looks_like_an_option(words_[next_ + 1]))
      ++next_;
  }

  void keep(const OptionRow& row, const std::string& origin,
            const std::vector<std::string>& words) {
    spellings_[&row] = origin;
    cut_.insert(cut_.end(), words.begin(), words.end());
  }

  // Only what is given is defined: to define all options takes CLI11 0.4 ms of each start.
  void parse(CommandLine& line) {
    CLI::App app;
    app.set_help_flag();
    for (const auto& [row, origin] : spellings_) define(*row, app);
    std::ranges::reverse(cut_);  // as CLI11 takes them
    app.parse(std::move(cut_));
    for (const auto& [row, origin] : spellings_) {
      const std::vector<std::string> values = app.get_option(spelling_of(*row))->reduced_results();
      line.values[row->name] = {values.back(), origin, Origin::kCommandLine, values};
    }
  }

  const std::vector<std::string>& words_;
  const Reading reading_;
  std::size_t next_ = 0;
  std::vector<std::string> cut_;
  std::map<const OptionRow*, std::string> spellings_;  // of what is cut, the last ones
};

// A flag in the environment is set by any number but 0, as in torchrun.
bool flag_is_set(const OptionRow& row, const std::string& name, const std::string& value) {
  if (const auto number = base::parse_integer(value)) return *number != 0;
  if (demand_of(row) == ValueDemand::kOptional) return true;
  throw usage_error(fmt::format("{}={} is no number", name, value),
                    "it stands for an option without a value", "set it to 0 or 1");
}

void add_variable(const OptionRow& row, const std::string& name, const std::string& value,
                  Origin kind, CommandLine& line) {
  const bool needed = demand_of(row) == ValueDemand::kNeeded;
  if (!needed && !flag_is_set(row, name, value)) {
    line.refused[row.name] = {"0", name, kind};
    return;
  }
  line.values[row.name] = {!needed && base::parse_integer(value) ? "1" : value, name, kind};
}

void add_environment(const base::Environment& environment, Reading reading, CommandLine& line) {
  for (const OptionRow& row : option_table()) {
    if (line.has(row.name) || row.reach == OptionReach::kCommandLineOnly) continue;
    const std::string torchs = variable_of(row, "PET_"), own = variable_of(row, "DTRUN_");
    read_part(reading, [&] {
      if (const auto value = environment.get(torchs)) {
        add_variable(row, torchs, *value, Origin::kTorchVariable, line);
      } else if (const auto own_value = environment.get(own)) {
        add_variable(row, own, *own_value, Origin::kOwnVariable, line);
      }
    });
  }
}

}  // namespace

CommandLine read_command_line(const std::vector<std::string>& arguments,
                              const base::Environment& environment, Reading reading) {
  CommandLine line = LineReader(arguments, reading).read();
  add_environment(environment, reading, line);
  return line;
}

}  // namespace dtrun::launcher
