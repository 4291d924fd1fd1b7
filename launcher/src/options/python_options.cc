#include "options/python_options.h"

#include <fmt/core.h>

namespace dtrun::launcher {

void bind_python_options(OptionBinding& binding, Options& options) {
  binding.flag("run-path", options.run_path);
  binding.parsed("event-log-handler", [&options](const std::string& name) {
    options.event_log = name == "console" ? EventLog::kConsole : EventLog::kNone;
  });
  // The options without effect are parsed too, so that a wrong value is refused as torchrun refuses
  // it.
  binding.one_of("start-method", {"spawn", "fork", "forkserver"}, [](std::size_t) {});
  binding.parsed("monitor-interval", [](const std::string& text) { parse_seconds(text); });
}

void tell_python_options(const CommandLine& line, Options& options) {
  const auto tell = [&](const char* name, const std::string& why) {
    if (line.has(name)) options.tell_without_effect(line.get(name), why);
  };
  const std::string handler = line.text("event-log-handler", "null");
  if (handler != "null" && handler != "console")
    tell("event-log-handler",
         fmt::format("'{}' is a handler of Python's; dtrun has null and console", handler));
  tell("start-method", "every rank is a program of its own, started by exec");
  tell("logs-specs", "it names a plugin of Python's; --log_dir says where files go");
  tell("monitor-interval", "dtrun does not poll: it knows of a rank's end when it comes");
  if (options.run_path) tell("module", "--run_path names a file");
}

}  // namespace dtrun::launcher
