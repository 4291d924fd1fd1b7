#include "support/command.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

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

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> result;
  for (std::string& word : words) result.push_back(word.data());
  result.push_back(nullptr);
  return result;
}

// Appends what there is; false once the other side has closed.
bool read_some(int& fd, std::string& to) {
  char block[65536];
  const ssize_t n = ::read(fd, block, sizeof block);
  if (n > 0) {
    to.append(block, static_cast<std::size_t>(n));
    return true;
  }
  if (n < 0 && errno == EINTR) return true;
  ::close(fd);
  fd = -1;
  return false;
}

}  // namespace

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
    : start_(Clock::now()), options_(std::move(options)) {
  std::vector<std::string> words = argv, variables = make_environment(options_);
  const std::vector<char*> arguments = pointers(words), environment = pointers(variables);
  int out[2], err[2];
  if (::pipe2(out, O_CLOEXEC) != 0 || ::pipe2(err, O_CLOEXEC) != 0) return;
  pid_ = ::fork();
  if (pid_ == 0) {
    ::setpgid(0, 0);
    // Not by the C library: the thread sanitizer's records of descriptors may have been copied in
    // the middle of a change, and its dup2() has crashed on them.
    const long null = ::syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDONLY | O_CLOEXEC);
    ::syscall(SYS_dup3, null, 0, 0);
    ::syscall(SYS_dup3, out[1], 1, 0);
    ::syscall(SYS_dup3, err[1], 2, 0);
    if (!options_.folder.empty() && ::chdir(options_.folder.c_str()) != 0) ::_exit(125);
    ::execvpe(arguments[0], arguments.data(), environment.data());
    ::_exit(127);
  }
  ::close(out[1]);
  ::close(err[1]);
  out_fd_ = out[0];
  err_fd_ = err[0];
}

Command::~Command() {
  if (pid_ > 0) {
    ::kill(-pid_, SIGKILL);
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  for (const int fd : {out_fd_, err_fd_})
    if (fd >= 0) ::close(fd);
}

void Command::signal(int signal_number) const {
  ::kill(pid_, signal_number);
}

bool Command::pump(Clock::time_point until) {
  pollfd fds[2] = {{out_fd_, POLLIN, 0}, {err_fd_, POLLIN, 0}};
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
  if (left <= 0 || ::poll(fds, 2, static_cast<int>(left)) == 0) return false;
  if (fds[0].revents != 0) read_some(out_fd_, result_.out);
  if (fds[1].revents != 0) read_some(err_fd_, result_.err);
  return out_fd_ >= 0 || err_fd_ >= 0;
}

bool Command::wait_for_output(const std::string& text) {
  const auto until = start_ + options_.limit;
  while (result_.out.find(text) == std::string::npos)
    if (!pump(until)) return result_.out.find(text) != std::string::npos;
  return true;
}

std::optional<std::string> Command::next_line(const std::string& prefix) {
  const auto until = start_ + options_.limit;
  while (true) {
    const auto end = result_.out.find('\n', seen_);
    if (end != std::string::npos) {
      const std::string line = result_.out.substr(seen_, end - seen_);
      seen_ = end + 1;
      if (line.starts_with(prefix)) return line;
    } else if (!pump(until) && result_.out.find('\n', seen_) == std::string::npos) {
      return std::nullopt;
    }
  }
}

CommandResult Command::finish() {
  const auto until = start_ + options_.limit;
  while (pump(until)) {
  }
  // Output may end before the program does, or stay open in a child that outlives it: the program's
  // end counts.
  pollfd ended{static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)), POLLIN, 0};
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
  if (::poll(&ended, 1, static_cast<int>(std::max<long long>(left, 0))) <= 0) {
    result_.killed_at_limit = true;
    ::kill(-pid_, SIGKILL);
    ::kill(pid_, SIGKILL);
  }
  ::close(ended.fd);
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = -1;
  if (WIFEXITED(status)) result_.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result_.signal = WTERMSIG(status);
  result_.elapsed = Clock::now() - start_;
  return result_;
}

CommandResult run_command(const std::vector<std::string>& argv, CommandOptions options) {
  return Command(argv, std::move(options)).finish();
}

}  // namespace dtrun::testing_support
