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

// "must be job or agent"
std::string alternatives(const OptionRow& row) {
  const auto words = choices_of(row);
  std::string result = "must be ";
  for (std::size_t i = 0; i < words.size(); ++i)
    result += fmt::format("{}{}", i == 0 ? "" : i + 1 == words.size() ? " or " : ", ", words[i]);
  return result + (demand_of(row) == ValueDemand::kOptional ? ", or left out" : "");
}

}  // namespace

void OptionBinding::flag(const char* name, bool& target) {
  if (line_.has(name)) target = true;
}

void OptionBinding::text(const char* name, std::string& target) {
  target = line_.text(name, std::move(target));
}

void OptionBinding::parsed(const char* name, const Parser& parser) {
  if (!line_.has(name)) return;
  try {
    parser(line_.get(name).value);
  } catch (const Error& error) {
    refuse_value(line_, name, error.summary());
  }
}

void OptionBinding::one_of(const char* name, const std::vector<std::string>& words,
                           const std::function<void(std::size_t)>& take) {
  parsed(name, [&](const std::string& text) {
    if (!CLI::IsMember(&words)(text).empty()) throw demand(alternatives(*find_exactly(name)));
    take(static_cast<std::size_t>(std::ranges::find(words, text) - words.begin()));
  });
}

Error demand(std::string text) {
  return Error(ErrorCode::kUsage, std::move(text));
}

int parse_integer_within(const std::string& text, int least, int most) {
  const auto number = base::parse_integer(text);
  if (!number) throw demand("is no number");
  if (!CLI::Range(std::int64_t{least}, std::int64_t{most})(std::to_string(*number)).empty())
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
