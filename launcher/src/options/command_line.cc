#include "options/command_line.h"

#include <fmt/core.h>

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

// Takes the words up to the program, one option at a time.
class Reader {
 public:
  Reader(const std::vector<std::string>& words, Reading reading)
      : words_(words), reading_(reading) {}

  CommandLine read() {
    while (next_ < words_.size()) {
      const std::string& word = words_[next_];
      if (word == "--") {
        ++next_;
        result_.options_ended = true;
        break;
      }
      if (word.size() < 2 || word[0] != '-') break;
      ++next_;
      try {
        word[1] == '-' ? read_long(word) : read_short(word);
      } catch (const Error&) {
        if (reading_ == Reading::kStrict) throw;
        pass_over_value(word);
      }
    }
    result_.program.assign(words_.begin() + static_cast<std::ptrdiff_t>(next_), words_.end());
    return std::move(result_);
  }

 private:
  void read_long(const std::string& word) {
    const auto equals = word.find('=');
    const std::string origin = word.substr(0, equals);
    const OptionRow& row = find_option(word, std::string_view(origin).substr(2));
    demand_built(row, origin);
    const ValueDemand demand = demand_of(row);
    if (equals != std::string::npos) {
      if (demand == ValueDemand::kNone)
        throw usage_error(fmt::format("option {} takes no value", origin));
      keep(row, word.substr(equals + 1), origin);
    } else {
      keep(row, demand == ValueDemand::kNeeded ? next_value(origin) : "1", origin);
    }
  }

  // "-r3", "-r=3", "-r 3", and "-mr3", which is "-m -r 3".
  void read_short(const std::string& word) {
    for (std::size_t at = 1; at < word.size(); ++at) {
      const OptionRow& row = find_letter(word, word[at]);
      const std::string origin = {'-', word[at]};
      demand_built(row, origin);
      if (demand_of(row) != ValueDemand::kNeeded) {
        keep(row, "1", origin);
        continue;
      }
      const std::string rest = word.substr(at + 1);
      return keep(row, rest.empty() ? next_value(origin) : rest.substr(rest[0] == '=' ? 1 : 0),
                  origin);
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

  void keep(const OptionRow& row, std::string value, std::string origin) {
    if (row.repeats == OptionRepeats::kAllCount && result_.has(row.name))
      value = result_.get(row.name).value + kValueSeparator + value;
    result_.values[row.name] = {std::move(value), std::move(origin), Origin::kCommandLine};
  }

  const std::vector<std::string>& words_;
  const Reading reading_;
  std::size_t next_ = 0;
  CommandLine result_;
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
  demand_built(row, name);
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

void demand_built(const OptionRow& row, const std::string& origin) {
  if (row.help != nullptr) return;
  throw usage_error(fmt::format("{} is not yet in this version of dtrun", origin),
                    is_torchruns(row) ? "torchrun has this option; dtrun will get it" : "",
                    "start without it");
}

CommandLine read_command_line(const std::vector<std::string>& arguments,
                              const base::Environment& environment, Reading reading) {
  CommandLine line = Reader(arguments, reading).read();
  add_environment(environment, reading, line);
  return line;
}

}  // namespace dtrun::launcher
