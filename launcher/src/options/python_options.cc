#include "options/python_options.h"

#include <fmt/core.h>

namespace dtrun::launcher {
namespace {

EventLog read_event_log(const OptionValues& values, Options& options) {
  const std::string name = values.text("event-log-handler", "null");
  if (name == "console") return EventLog::kConsole;
  if (name != "null")
    options.tell_without_effect(
        values.get("event-log-handler"),
        fmt::format("'{}' is a handler of Python's; dtrun has null and console", name));
  return EventLog::kNone;
}

}  // namespace

void read_python_options(const OptionValues& values, Options& options) {
  options.run_path = values.has("run-path");
  options.event_log = read_event_log(values, options);
  const std::string method = values.text("start-method", "spawn");
  if (method != "spawn" && method != "fork" && method != "forkserver")
    values.reject("start-method", "must be spawn, fork or forkserver");
  if (values.has("start-method"))
    options.tell_without_effect(values.get("start-method"),
                                "every rank is a program of its own, started by exec");
  if (values.has("logs-specs"))
    options.tell_without_effect(values.get("logs-specs"),
                                "it names a plugin of Python's; --log_dir says where files go");
  values.seconds("monitor-interval", {});
  if (values.has("monitor-interval"))
    options.tell_without_effect(values.get("monitor-interval"),
                                "dtrun does not poll: it knows of a rank's end when it comes");
  if (options.run_path && values.has("module"))
    options.tell_without_effect(values.get("module"), "--run_path names a file");
}

}  // namespace dtrun::launcher
