#include "agent/restart_commands.h"

#include <fmt/core.h>

#include <utility>

#include "dtrun/base/env.h"
#include "dtrun/base/error.h"
#include "output/notice.h"

namespace dtrun::launcher {

void RestartCommands::run(const Restart& restart, std::function<void(std::string)> done) {
  restart_ = restart;
  done_ = std::move(done);
  const std::string& command = plan_.options.on_restart;
  if (command.empty()) return check_health();
  start("--on-restart", command, [this](const std::string& fault) {
    if (!fault.empty()) print_note(plan_, fault + "; the job is restarted all the same");
    check_health();
  });
}

void RestartCommands::check_health() {
  const std::string& command = plan_.options.health_check;
  if (command.empty()) return finish("");
  start("--health-check", command, [this](const std::string& fault) { finish(fault); });
}

void RestartCommands::start(const char* option, const std::string& command,
                            std::function<void(std::string)> end) {
  base::Environment environment = base::Environment::current();
  environment.set("DTRUN_RUN_ID", plan_.run_id);
  environment.set("DTRUN_RESTART", std::to_string(restart_.number));
  environment.set("DTRUN_RESTART_CAUSE", restart_.cause.describe());
  if (restart_.cause.rank >= 0) {
    environment.set("DTRUN_FAILED_RANK", std::to_string(restart_.cause.rank));
    environment.set("DTRUN_FAILED_EXIT_CODE", std::to_string(restart_.cause.exit_code()));
  }
  if (restart_.node >= 0) environment.set("DTRUN_NODE_RANK", std::to_string(restart_.node));
  // Neither the program nor the timer may be destroyed within its own call.
  const auto settle = [this, number = ++number_, option, command, end](const std::string& what) {
    loop_.post([=, this] {
      if (number != number_) return;  // the other one was first, or it was cancelled
      ++number_;
      process_.reset();
      patience_.cancel();
      end(what.empty() ? "" : fmt::format("{} '{}' {}", option, command, what));
    });
  };
  const auto limit = plan_.options.restart_command_timeout;
  patience_.start(base::Deadline::after(limit), [settle, limit] {
    settle("has not ended within " + base::format_duration(limit));
  });
  try {
    process_ = std::make_unique<base::ToolProcess>(
        loop_,
        base::ToolCommand{.path = "/bin/sh",
                          .arguments = {"-c", command},
                          .environment = environment.as_strings()},
        base::ToolStreams{.out = 2}, [settle](base::ExitStatus status) {
          settle(status.success() ? "" : "failed: " + status.describe());
        });
  } catch (const base::Error& error) {
    settle(std::string("could not be started: ") + error.what());
  }
}

void RestartCommands::cancel() {
  ++number_;
  process_.reset();
  patience_.cancel();
  done_ = nullptr;
}

void RestartCommands::finish(const std::string& fault) {
  if (const auto done = std::exchange(done_, nullptr)) done(fault);
}

}  // namespace dtrun::launcher
