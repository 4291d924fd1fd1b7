#include "support/command.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

#include "dtrun/base/child_process.h"
#include "dtrun/base/env.h"
#include "dtrun/base/event_loop.h"
#include "dtrun/base/tool_process.h"
#include "dtrun/base/unique_fd.h"

extern char** environ;

namespace dtrun::testing_support {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<std::string> make_environment(const CommandOptions& options) {
  static const char* const kWorkerNames[] = {
      "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"};
  std::map<std::string, std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text(*entry);
    variables[text.substr(0, text.find('='))] = text.substr(text.find('=') + 1);
  }
  for (const char* name : kWorkerNames) variables.erase(name);
  for (const auto& [name, value] : options.environment) {
    variables.erase(name);
    if (value) variables[name] = *value;
  }
  std::vector<std::string> result;
  for (const auto& [name, value] : variables) result.push_back(name + "=" + value);
  return result;
}

// What a program writes to one descriptor, until it is closed.
class Stream {
 public:
  Stream(base::EventLoop& loop, base::UniqueFd fd, std::string& text)
      : fd_(std::move(fd)), text_(text), watch_(std::in_place, loop, fd_.get()) {
    watch_->on_readable([this] { read_some(); });
  }

  bool open() const { return static_cast<bool>(fd_); }

 private:
  void read_some() {
    char block[65536];
    const ssize_t n = ::read(fd_.get(), block, sizeof block);
    if (n > 0) text_.append(block, static_cast<std::size_t>(n));
    if (n > 0 || (n < 0 && errno == EINTR)) return;
    watch_.reset();
    fd_.reset();
  }

  base::UniqueFd fd_;
  std::string& text_;
  std::optional<base::FdWatch> watch_;
};

}  // namespace

struct Command::Program {
  Program(const std::vector<std::string>& argv, const CommandOptions& options,
          CommandResult& result);

  // Waits for the next thing to happen; false once the limit has passed.
  bool pump() { return loop.run_some(limit) > 0 || !limit.expired(); }
  bool output_open() const { return (out && out->open()) || (err && err->open()); }

  const Clock::time_point start = Clock::now();
  const base::Deadline limit;
  base::EventLoop loop;
  base::UniqueFd input;
  std::optional<Stream> out, err;
  std::optional<base::ToolProcess> process;
  std::optional<base::ExitStatus> status;
};

Command::Program::Program(const std::vector<std::string>& argv, const CommandOptions& options,
                          CommandResult& result)
    : limit(base::Deadline::at(start + options.limit)) {
  base::Pipe to = base::make_pipe(), from = base::make_pipe(), errors = base::make_pipe();
  const bool speaks = options.input == CommandOptions::Input::kPipe;
  try {
    const base::ToolCommand command{
        .path = base::find_program(argv.front(), base::get_env("PATH").value_or("")),
        .arguments = {argv.begin() + 1, argv.end()},
        .environment = make_environment(options),
        .group = base::ToolCommand::Group::kProcessGroup,
        .folder = options.folder};
    process.emplace(loop, command,
                    base::ToolStreams{.in = speaks ? to.read_end.get() : -1,
                                      .out = from.write_end.get(),
                                      .err = errors.write_end.get()},
                    [this](base::ExitStatus ended) { status = ended; });
  } catch (const base::SpawnError& error) {
    result.err = error.what();
    status = base::ExitStatus{.code = 127};
  }
  if (speaks) input = std::move(to.write_end);
  out.emplace(loop, std::move(from.read_end), result.out);
  err.emplace(loop, std::move(errors.read_end), result.err);
}

std::vector<std::string> CommandResult::sorted_lines() const {
  std::vector<std::string> lines;
  std::istringstream stream(out);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  std::sort(lines.begin(), lines.end());
  return lines;
}

std::string CommandResult::describe() const {
  std::ostringstream text;
  text << (killed_at_limit ? "killed at its time limit, " : "") << "exit code " << exit_code
       << ", signal " << signal << ", " << elapsed.count() << " s\n--- stdout\n"
       << out << "--- stderr\n"
       << err << "---";
  return text.str();
}

Command::Command(const std::vector<std::string>& argv, CommandOptions options)
    : program_(std::make_unique<Program>(argv, options, result_)) {}

Command::~Command() = default;

pid_t Command::pid() const {
  return program_->process ? program_->process->pid() : -1;
}

void Command::close_input() {
  program_->input.reset();
}

void Command::signal(int signal_number) const {
  if (program_->process) program_->process->signal(signal_number);
}

bool Command::wait_for_output(const std::string& text) {
  while (result_.out.find(text) == std::string::npos)
    if (!program_->output_open() || !program_->pump()) return false;
  return true;
}

std::optional<std::string> Command::next_line(const std::string& prefix) {
  while (true) {
    const auto end = result_.out.find('\n', seen_);
    if (end != std::string::npos) {
      const std::string line = result_.out.substr(seen_, end - seen_);
      seen_ = end + 1;
      if (line.starts_with(prefix)) return line;
    } else if (!program_->output_open() || !program_->pump()) {
      return std::nullopt;
    }
  }
}

// Output may end before the program does, or stay open in a child that outlives it, for as long as
// the limit allows.
CommandResult Command::finish() {
  Program& program = *program_;
  while ((program.output_open() || !program.status) && program.pump()) {
  }
  if (!program.status) {
    result_.killed_at_limit = true;
    program.process->signal_group(SIGKILL);
    program.process->signal(SIGKILL);
    while (!program.status) program.loop.run_some(base::Deadline::never());
  }
  if (program.status->signal == 0) result_.exit_code = program.status->code;
  result_.signal = program.status->signal;
  result_.elapsed = Clock::now() - program.start;
  return result_;
}

CommandResult run_command(const std::vector<std::string>& argv, CommandOptions options) {
  return Command(argv, std::move(options)).finish();
}

}  // namespace dtrun::testing_support
