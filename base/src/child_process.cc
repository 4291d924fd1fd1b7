#include "dtrun/base/child_process.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "clone_child.h"
#include "dtrun/base/child_birth.h"
#include "dtrun/base/process_tree.h"
#include "dtrun/base/split.h"

namespace dtrun::base {
namespace {

// 0, or why the file cannot be executed.
int executable_error(const std::string& path) {
  struct stat file {};
  if (::stat(path.c_str(), &file) != 0) return errno;
  if (S_ISDIR(file.st_mode)) return EISDIR;
  return ::access(path.c_str(), X_OK) == 0 && S_ISREG(file.st_mode) ? 0 : EACCES;
}

// 0 and `found`, or why no folder of the search path has it.
int search_program(const std::string& name, std::string_view search_path, std::string& found) {
  int error_number = ENOENT;
  for (const std::string_view folder : split(search_path, ':')) {
    found = fmt::format("{}/{}", folder.empty() ? "." : folder, name);
    const int reason = executable_error(found);
    if (reason == 0) return 0;
    // A file that is there but not executable explains more than that the next folder has none.
    if (reason == EACCES) error_number = EACCES;
  }
  return error_number;
}

}  // namespace

ChildProcess ChildProcess::spawn(const ChildCommand& command, const ChildSetup& setup) {
  return ChildBirth(command, setup).finish();
}

bool ChildProcess::can_be_born_into(int cgroup_fd) {
  return can_clone_into_cgroup(cgroup_fd);
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, 0)), pidfd_(std::move(other.pidfd_)) {}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  if (this != &other) {
    kill_and_reap();
    pid_ = std::exchange(other.pid_, 0);
    pidfd_ = std::move(other.pidfd_);
  }
  return *this;
}

ChildProcess::~ChildProcess() {
  kill_and_reap();
}

void ChildProcess::kill_and_reap() noexcept {
  if (pid_ == 0) return;
  signal_group(SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  mark_reaped();
}

// The number stays ours, even when the child has ended, until it is reaped.
void ChildProcess::signal_group(int signal_number) const {
  if (pid_ != 0) signal_process_group(pid_, signal_number);
}

std::optional<ExitStatus> ChildProcess::wait(Deadline deadline) {
  while (pid_ != 0) {
    int status = 0;
    const pid_t reaped = ::waitpid(pid_, &status, WNOHANG);
    if (reaped == pid_) {
      mark_reaped();
      return ExitStatus::from_wait_status(status);
    }
    if (reaped < 0 && errno != EINTR) throw system_error(fmt::format("wait for process {}", pid_));
    if (deadline.expired()) return std::nullopt;
    pollfd ended{pidfd_.get(), POLLIN, 0};
    ::poll(&ended, 1, deadline.poll_timeout_ms());
  }
  return std::nullopt;
}

void ChildProcess::mark_reaped() {
  pid_ = 0;
  pidfd_.reset();
}

std::pair<pid_t, UniqueFd> ChildProcess::release() {
  return {std::exchange(pid_, 0), std::move(pidfd_)};
}

std::string find_program(const std::string& name, const std::string& search_path) {
  const bool searched = name.find('/') == std::string::npos;
  std::string path = name;
  const int error_number = name.empty() ? ENOENT
                           : searched   ? search_program(name, search_path, path)
                                        : executable_error(name);
  if (error_number == 0) return path;
  if (error_number == ENOENT || error_number == ENOTDIR)
    throw SpawnError(Error(ErrorCode::kNotFound, fmt::format("there is no program '{}'", name),
                           name.empty() ? "its name is empty"
                           : searched ? fmt::format("it is in no folder of PATH ({})", search_path)
                                      : "no such file",
                           "check the spelling; a program in this folder is started as ./NAME"),
                     ENOENT);
  throw SpawnError(
      Error(ErrorCode::kSystem, fmt::format("cannot execute '{}'", name),
            error_number == EISDIR ? "it is a folder" : strerrordesc_np(error_number),
            error_number == EISDIR
                ? "name a program; a folder with a __main__.py is run by `python3 FOLDER`"
                : "chmod +x makes a file executable; *.py files are run by python3"),
      error_number);
}

}  // namespace dtrun::base
