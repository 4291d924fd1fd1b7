#include "text/duration_text.h"

#include <algorithm>
#include <charconv>

namespace dtrun::launcher {

std::optional<std::chrono::nanoseconds> parse_duration(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !(number >= 0)) return std::nullopt;
  const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  double scale = 1;
  if (unit == "ms")
    scale = 1e-3;
  else if (unit == "m")
    scale = 60;
  else if (unit == "h")
    scale = 3600;
  else if (!unit.empty() && unit != "s")
    return std::nullopt;
  constexpr double kLongest = 1e9;
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(std::min(number * scale, kLongest)));
}

}  // namespace dtrun::launcher
