// Logging: one sink (standard error), a level per component, a prefix that names the rank.
// Levels come from DTRUN_LOGS, else TORCH_LOGS: a comma list of components, "+name" for debug,
// "name" for info, "-name" for errors only, "all" for every component ("+all"). Default: warnings.
// The sink is the one process-wide state of the library. Thread-safe.
#pragma once

#include <fmt/core.h>

#include <array>
#include <atomic>
#include <string>
#include <string_view>
#include <utility>

namespace dtrun::base::log {

enum class Component { kLauncher, kStore, kRuntime, kCollectives, kDtensor, kTensor };
enum class Level { kDebug, kInfo, kWarning, kError };

namespace details {
/// By component, a level below which nothing is written; before anyone has asked the least of all.
extern constinit std::array<std::atomic<Level>, 6> least;
bool is_written(Component component, Level level);
}  // namespace details

/// Text between "dtrun" and the message: "rank 3" gives "[dtrun rank 3 +0.012s W store] ...".
void set_prefix(std::string prefix);
/// Re-reads the levels from a text in the syntax above. Unknown names are ignored: TORCH_LOGS has
/// many.
void set_levels(std::string_view text);
/// Costs one comparison where it is not.
inline bool enabled(Component component, Level level) {
  const Level least =
      details::least[static_cast<std::size_t>(component)].load(std::memory_order_relaxed);
  return level >= least && details::is_written(component, level);
}

struct Line {
  Component component;
  Level level;
  std::string_view message;
  std::string_view text;  ///< the whole line, without a line break
};
/// Takes all lines from here on, on whichever thread they are written; nullptr: standard error.
void set_writer(void (*writer)(const Line&));
void write(Component component, Level level, std::string_view message);

template <typename... Args>
void debug(Component component, fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(component, Level::kDebug))
    write(component, Level::kDebug, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void info(Component component, fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(component, Level::kInfo))
    write(component, Level::kInfo, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void warning(Component component, fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(component, Level::kWarning))
    write(component, Level::kWarning, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void error(Component component, fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(component, Level::kError))
    write(component, Level::kError, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace dtrun::base::log
