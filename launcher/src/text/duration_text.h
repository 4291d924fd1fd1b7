// Durations as people write them in options.
#pragma once

#include <chrono>
#include <optional>
#include <string_view>

namespace dtrun::launcher {

/// "600", "600s", "10m", "1.5h", "300ms"; nullopt: anything else, and what is negative.
std::optional<std::chrono::nanoseconds> parse_duration(std::string_view text);

}  // namespace dtrun::launcher
