#include "dtrun/base/log.h"

#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/ansicolor_sink.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>

#include "dtrun/base/env.h"
#include "dtrun/base/split.h"

namespace dtrun::base::log {
namespace {

constexpr std::array<std::string_view, 6> kNames = {"launcher",    "store",   "runtime",
                                                    "collectives", "dtensor", "tensor"};

spdlog::level::level_enum spdlog_level(Level level) {
  return static_cast<spdlog::level::level_enum>(spdlog::level::debug + static_cast<int>(level));
}

Level level_of(spdlog::level::level_enum level) {
  return static_cast<Level>(level - spdlog::level::debug);
}

/// What the flags below show.
struct Origin {
  std::mutex mutex;
  std::string prefix;
  const std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
};

/// The prefix, behind a space, where there is one.
class PrefixFlag : public spdlog::custom_flag_formatter {
 public:
  explicit PrefixFlag(Origin& origin) : origin_(origin) {}
  void format(const spdlog::details::log_msg&, const std::tm&,
              spdlog::memory_buf_t& text) override {
    const std::lock_guard lock(origin_.mutex);
    if (!origin_.prefix.empty()) fmt::format_to(std::back_inserter(text), " {}", origin_.prefix);
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<PrefixFlag>(origin_);
  }

 private:
  Origin& origin_;
};

/// Seconds since the start, with three places.
class ElapsedFlag : public spdlog::custom_flag_formatter {
 public:
  explicit ElapsedFlag(const Origin& origin) : origin_(origin) {}
  void format(const spdlog::details::log_msg&, const std::tm&,
              spdlog::memory_buf_t& text) override {
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - origin_.start;
    fmt::format_to(std::back_inserter(text), "{:.3f}", elapsed.count());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<ElapsedFlag>(origin_);
  }

 private:
  const Origin& origin_;
};

/// "[dtrun rank 3 +0.012s W store] message"; the letter coloured on a terminal.
std::unique_ptr<spdlog::formatter> make_formatter(Origin& origin, std::string line_end) {
  auto formatter = std::make_unique<spdlog::pattern_formatter>(spdlog::pattern_time_type::local,
                                                               std::move(line_end));
  formatter->add_flag<PrefixFlag>('*', origin).add_flag<ElapsedFlag>('&', origin);
  formatter->set_pattern("[dtrun%* +%&s %^%L%$ %n] %v");
  return formatter;
}

/// Standard error, or who has asked for the lines.
class Output final : public spdlog::sinks::sink {
 public:
  explicit Output(Origin& origin) : formatter_(make_formatter(origin, "")) {
    terminal_.set_formatter(make_formatter(origin, "\n"));
  }
  void set_writer(void (*writer)(const Line&)) { writer_ = writer; }

  void log(const spdlog::details::log_msg& message) override {
    const auto writer = writer_.load();
    if (writer == nullptr) return terminal_.log(message);
    spdlog::memory_buf_t text;
    {
      const std::lock_guard lock(mutex_);
      formatter_->format(message, text);
    }
    writer(
        {component_of(message), level_of(message.level), text_of(message.payload), text_of(text)});
  }
  void flush() override { terminal_.flush(); }
  void set_pattern(const std::string&) override {}
  void set_formatter(std::unique_ptr<spdlog::formatter>) override {}

 private:
  template <typename Text>
  static std::string_view text_of(const Text& text) {
    return {text.data(), text.size()};
  }
  static Component component_of(const spdlog::details::log_msg& message) {
    const auto name = std::ranges::find(kNames, text_of(message.logger_name));
    return static_cast<Component>(name - kNames.begin());
  }

  spdlog::sinks::ansicolor_stderr_sink_mt terminal_;
  std::atomic<void (*)(const Line&)> writer_ = nullptr;
  std::mutex mutex_;
  const std::unique_ptr<spdlog::formatter> formatter_;  ///< under the mutex
};

// The one process-wide state of the library.
class Loggers {
 public:
  Loggers() {
    for (std::size_t i = 0; i < kNames.size(); ++i) {
      loggers_[i] = std::make_unique<spdlog::logger>(std::string(kNames[i]), output_);
      loggers_[i]->flush_on(spdlog::level::debug);
    }
    set_levels(get_env("DTRUN_LOGS").value_or(get_env("TORCH_LOGS").value_or("")));
  }

  spdlog::logger& of(Component component) { return *loggers_[static_cast<std::size_t>(component)]; }
  Output& output() { return *output_; }
  void set_prefix(std::string prefix) {
    const std::lock_guard lock(origin_.mutex);
    origin_.prefix = std::move(prefix);
  }
  void set_levels(std::string_view text) {
    for (const auto& logger : loggers_) logger->set_level(spdlog::level::warn);
    for (const std::string_view item : split(text, ',')) {
      if (item.empty()) continue;
      if (item.starts_with('+')) {
        set_level(item.substr(1), spdlog::level::debug);
      } else if (item.starts_with('-')) {
        set_level(item.substr(1), spdlog::level::err);
      } else {
        set_level(item, spdlog::level::info);
      }
    }
    for (std::size_t i = 0; i < kNames.size(); ++i)
      details::least[i].store(level_of(loggers_[i]->level()), std::memory_order_relaxed);
  }

 private:
  void set_level(std::string_view name, spdlog::level::level_enum level) {
    for (const auto& logger : loggers_)
      if (name == logger->name() || name == "all") logger->set_level(level);
  }

  Origin origin_;
  const std::shared_ptr<Output> output_ = std::make_shared<Output>(origin_);
  std::array<std::unique_ptr<spdlog::logger>, kNames.size()> loggers_;
};

Loggers& loggers() {
  // Never destroyed: threads may log until the very end of the process.
  static Loggers* const the_loggers = new Loggers;
  return *the_loggers;
}

}  // namespace

void set_prefix(std::string prefix) {
  loggers().set_prefix(std::move(prefix));
}

void set_levels(std::string_view text) {
  loggers().set_levels(text);
}

void set_writer(void (*writer)(const Line&)) {
  loggers().output().set_writer(writer);
}

namespace details {

constinit std::array<std::atomic<Level>, 6> least{};
static_assert(Level{} == Level::kDebug);

bool is_written(Component component, Level level) {
  return loggers().of(component).should_log(spdlog_level(level));
}

}  // namespace details

void write(Component component, Level level, std::string_view message) {
  loggers().of(component).log(spdlog_level(level), message);
}

}  // namespace dtrun::base::log
