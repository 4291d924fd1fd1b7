#include "dtrun/base/log.h"

#include <spdlog/sinks/ansicolor_sink.h>
#include <spdlog/spdlog.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>

#include "dtrun/base/env.h"

namespace dtrun::base::log {
namespace {

constexpr std::array<std::string_view, 6> kNames = {"launcher",    "store",   "runtime",
                                                    "collectives", "dtensor", "tensor"};

// The one process-wide state of the library.
struct Sink {
  std::mutex mutex;
  std::string prefix;
  std::array<std::atomic<Level>, kNames.size()> levels;
  std::atomic<void (*)(const Line&)> writer = nullptr;
  std::shared_ptr<spdlog::logger> logger;
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();

  Sink() {
    auto sink = std::make_shared<spdlog::sinks::ansicolor_stderr_sink_mt>();
    logger = std::make_shared<spdlog::logger>("dtrun", sink);
    logger->set_pattern("%v");
    logger->set_level(spdlog::level::debug);
    logger->flush_on(spdlog::level::debug);
    set(get_env("DTRUN_LOGS").value_or(get_env("TORCH_LOGS").value_or("")));
  }

  void set_one(std::string_view name, Level level) {
    for (std::size_t i = 0; i < kNames.size(); ++i)
      if (name == kNames[i] || name == "all") levels[i] = level;
  }

  void set(std::string_view text) {
    for (auto& level : levels) level = Level::kWarning;
    while (!text.empty()) {
      const auto comma = text.find(',');
      std::string_view item = text.substr(0, comma);
      text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
      if (item.empty()) continue;
      if (item.front() == '+') {
        set_one(item.substr(1), Level::kDebug);
      } else if (item.front() == '-') {
        set_one(item.substr(1), Level::kError);
      } else {
        set_one(item, Level::kInfo);
      }
    }
  }
};

Sink& sink() {
  // Never destroyed: threads may log until the very end of the process.
  static Sink* const the_sink = new Sink;
  return *the_sink;
}

}  // namespace

void set_prefix(std::string prefix) {
  const std::lock_guard lock(sink().mutex);
  sink().prefix = std::move(prefix);
}

void set_levels(std::string_view text) {
  sink().set(text);
}

void set_writer(void (*writer)(const Line&)) {
  sink().writer = writer;
}

bool enabled(Component component, Level level) {
  return level >=
         sink().levels[static_cast<std::size_t>(component)].load(std::memory_order_relaxed);
}

void write(Component component, Level level, std::string_view message) {
  static constexpr std::string_view kLetters = "DIWE";
  Sink& s = sink();
  std::string prefix;
  {
    const std::lock_guard lock(s.mutex);
    prefix = s.prefix;
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - s.start).count();
  const std::string text = fmt::format("[dtrun{}{} +{:.3f}s {} {}] {}", prefix.empty() ? "" : " ",
                                       prefix, seconds, kLetters[static_cast<std::size_t>(level)],
                                       kNames[static_cast<std::size_t>(component)], message);
  if (const auto writer = s.writer.load()) return writer({component, level, message, text});
  s.logger->log(spdlog::level::info, "{}", text);
}

}  // namespace dtrun::base::log
