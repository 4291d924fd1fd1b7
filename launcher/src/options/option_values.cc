#include "options/option_values.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <climits>

#include "dtrun/base/env.h"
#include "dtrun/base/error.h"
#include "options/config_error.h"
#include "options/option_names.h"

namespace dtrun::launcher {

using base::Error;
using base::ErrorCode;

std::string OptionValues::text(const char* name, std::string otherwise) const {
  return has(name) ? get(name).value : std::move(otherwise);
}

void OptionValues::reject(const char* name, const std::string& demand) const {
  constexpr std::size_t kMostShown = 200;
  const GivenValue& given = get(name);
  refuse_value(
      line_, name,
      Error(
          ErrorCode::kUsage,
          fmt::format("{}={} {}", given.origin, given.value.substr(0, kMostShown), demand), "",
          fmt::format("dtrun --help={} tells of it", spelling_of(*find_exactly(name)).substr(2))));
}

int OptionValues::integer(const char* name, int otherwise, int least, int most) const {
  if (!has(name)) return otherwise;
  const auto number = base::parse_integer(get(name).value);
  if (!number) reject(name, "is no number");
  if (*number < least || *number > most)
    reject(name, most == INT_MAX ? fmt::format("must be at least {}", least)
                                 : fmt::format("must be from {} to {}", least, most));
  return static_cast<int>(*number);
}

std::chrono::nanoseconds OptionValues::seconds(const char* name,
                                               std::chrono::nanoseconds otherwise) const {
  if (!has(name)) return otherwise;
  const std::string& text = get(name).value;
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || !(number >= 0))
    reject(name, "must be a number of seconds, 0 or more");
  constexpr double kLongest = 1e9;
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(std::min(number, kLongest)));
}

}  // namespace dtrun::launcher
