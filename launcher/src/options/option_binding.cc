#include "options/option_binding.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <climits>

#include "dtrun/base/env.h"
#include "options/config_error.h"
#include "options/option_names.h"

namespace dtrun::launcher {
namespace {

using base::Error;
using base::ErrorCode;

// Both spellings: "--nproc_per_node,--nproc-per-node".
std::string names_of(const char* name) {
  return fmt::format("{},--{}", spelling_of(*find_exactly(name)), name);
}

// "must be job or agent"
std::string alternatives(const OptionRow& row) {
  const auto words = choices_of(row);
  std::string result = "must be ";
  for (std::size_t i = 0; i < words.size(); ++i)
    result += fmt::format("{}{}", i == 0 ? "" : i + 1 == words.size() ? " or " : ", ", words[i]);
  return result + (demand_of(row) == ValueDemand::kOptional ? ", or left out" : "");
}

}  // namespace

OptionBinding::OptionBinding(const CommandLine& line)
    : line_(line), app_(std::make_unique<CLI::App>()) {
  app_->set_help_flag();
}

OptionBinding::~OptionBinding() = default;

// Only what is given is defined: to define all options takes CLI11 0.4 ms of each start.
void OptionBinding::flag(const char* name, bool& target) {
  if (!line_.has(name)) return;
  app_->add_flag(names_of(name), target);
  words_.push_back(std::string("--") + name);
}

void OptionBinding::text(const char* name, std::string& target) {
  parsed(name, target, [](const std::string& value) { return value; });
}

void OptionBinding::parsed(const char* name, Parser parser) {
  if (!line_.has(name)) return;
  const auto take = [this, name, parser = std::move(parser)](const CLI::results_t& values) {
    try {
      parser(values.front());
    } catch (const Error& error) {
      refuse_value(line_, name, error.summary());
    }
    return true;
  };
  app_->add_option(names_of(name), CLI::callback_t(take));
  words_.insert(words_.end(), {std::string("--") + name, line_.get(name).value});
}

void OptionBinding::one_of(const char* name, const std::vector<std::string>& words,
                           std::function<void(std::size_t)> take) {
  parsed(name, [words, take = std::move(take)](const std::string& value) {
    take(static_cast<std::size_t>(std::ranges::find(words, value) - words.begin()));
  });
  if (line_.has(name)) app_->get_option(std::string("--") + name)->check(CLI::IsMember(words));
}

void OptionBinding::read() {
  std::ranges::reverse(words_);  // as CLI11 takes them
  try {
    app_->parse(std::move(words_));
  } catch (const CLI::ValidationError& error) {
    // "--restart_scope: node not in {job,agent}"
    const std::string_view text = error.what();
    const OptionRow& row = *find_exactly(text.substr(2, text.find(':') - 2));
    refuse_value(line_, row.name, alternatives(row));
  }
}

Error demand(std::string text) {
  return Error(ErrorCode::kUsage, std::move(text));
}

int parse_integer_within(const std::string& text, int least, int most) {
  const auto number = base::parse_integer(text);
  if (!number) throw demand("is no number");
  if (*number < least || *number > most)
    throw demand(most == INT_MAX ? fmt::format("must be at least {}", least)
                                 : fmt::format("must be from {} to {}", least, most));
  return static_cast<int>(*number);
}

std::chrono::nanoseconds parse_seconds(const std::string& text) {
  double number = 0;
  const char* const text_end = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), text_end, number);
  if (error != std::errc() || end != text_end || !(number >= 0))
    throw demand("must be a number of seconds, 0 or more");
  constexpr double kLongest = 1e9;
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(std::min(number, kLongest)));
}

}  // namespace dtrun::launcher
