#include "output/notice.h"

#include <fmt/core.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>

#include "dtrun/base/socket.h"
#include "dtrun/base/utf8.h"
#include "options/line_tag.h"
#include "output/notice_writer.h"
#include "text/json_text.h"

namespace dtrun::launcher {
namespace {

// There is one per process, because there is one standard error, as for the log.
struct Voice {
  std::mutex mutex;
  LineFormat format = LineFormat::kText;
  std::optional<int> node;
  std::shared_ptr<NoticeWriter> writer;  // none: this thread writes
};

Voice& voice() {
  // Never destroyed: threads may speak until the very end of the process.
  static Voice* const the_voice = new Voice;
  return *the_voice;
}

std::string_view name_of_level(NoticeLevel level) {
  constexpr std::string_view kNames[] = {"debug", "info", "warning", "error"};
  return kNames[static_cast<std::size_t>(level)];
}

std::string object_of(NoticeLevel level, std::string_view message,
                      const boost::json::object& more) {
  boost::json::object object;
  object["time"] = iso_time(std::chrono::system_clock::now());
  object["node"] = nullptr;
  {
    const std::lock_guard lock(voice().mutex);
    if (voice().node) object["node"] = *voice().node;
  }
  object["host"] = base::host_name();
  object["level"] = name_of_level(level);
  object["message"] = message;
  for (const auto& field : more) object[field.key()] = field.value();
  return json_text(object);
}

std::string without_last_break(std::string text) {
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

void say(NoticeLevel level, const std::string& line, const std::string& message) {
  if (notice_format() == LineFormat::kText) return print_as_it_is(line);
  print_as_it_is(object_of(level, without_last_break(message), {}));
}

void say_log_line(const base::log::Line& line) {
  say(line.level, std::string(line.text) + "\n", std::string(line.message));
}

}  // namespace

void use_notice_format(LineFormat format) {
  base::log::set_writer(say_log_line);
  const std::lock_guard lock(voice().mutex);
  voice().format = format;
}

LineFormat notice_format() {
  const std::lock_guard lock(voice().mutex);
  return voice().format;
}

void set_notice_node(int node_rank) {
  const std::lock_guard lock(voice().mutex);
  voice().node = node_rank;
}

void write_notices_by_thread() {
  auto writer = std::make_shared<NoticeWriter>(STDERR_FILENO);
  const std::lock_guard lock(voice().mutex);
  voice().writer = std::move(writer);
}

bool finish_notices(base::Deadline deadline) {
  std::shared_ptr<NoticeWriter> writer;
  {
    const std::lock_guard lock(voice().mutex);
    writer = voice().writer;
  }
  return !writer || writer->flush(deadline);
}

void print_as_it_is(const std::string& text) {
  std::shared_ptr<NoticeWriter> writer;
  {
    const std::lock_guard lock(voice().mutex);
    writer = voice().writer;
  }
  if (writer) return writer->put(text);
  write_all(STDERR_FILENO, text);
}

void print_error(const std::string& text) {
  say(NoticeLevel::kError, fmt::format("dtrun: error: {}\n", base::without_controls(text)), text);
}

void print_note(const LaunchPlan& plan, const std::string& text) {
  const char* const over_status_line = plan.may_stand_on_status() ? "\r\x1b[K" : "";
  const std::string line =
      fmt::format("{}dtrun: {}\n", over_status_line, base::without_controls(text));
  if (notice_format() == LineFormat::kText) return print_as_it_is(line);
  print_as_it_is(over_status_line + object_of(NoticeLevel::kInfo, text, {}));
}

void print_line(NoticeLevel level, const std::string& text) {
  say(level, fmt::format("dtrun: {}\n", base::without_controls(text)), text);
}

void print_text(NoticeLevel level, const std::string& text) {
  if (!text.empty()) say(level, text, text);
}

void print_object(NoticeLevel level, const std::string& message, const boost::json::object& more) {
  print_as_it_is(object_of(level, message, more));
}

}  // namespace dtrun::launcher
