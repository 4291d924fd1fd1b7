#include "started_process.h"

#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "dtrun/base/error.h"
#include "dtrun/base/process_tree.h"

namespace dtrun::mp {

using base::Deadline;
using base::ExitStatus;

StartedProcess::StartedProcess(std::string name, bool daemon, Parts parts)
    : name_(std::move(name)), daemon_(daemon), parts_(std::move(parts)) {}

int StartedProcess::end_fd() const {
  return parts_.status_socket ? parts_.status_socket.get() : parts_.pidfd.get();
}

std::optional<ExitStatus> StartedProcess::wait(Deadline deadline) {
  if (!wait_for_end(deadline)) return std::nullopt;
  const std::lock_guard held(lock_);
  if (!status_)
    throw base::system_error(
        fmt::format("wait for process '{}' (pid {})", name_, parts_.pid), ECHILD,
        "another part of this program has reaped it: wait for particular children only");
  return status_;
}

// Nobody closes what is polled here: the descriptors live as long as this object.
bool StartedProcess::wait_for_end(Deadline deadline) {
  while (!has_ended()) {
    if (deadline.expired()) return false;
    pollfd ended{end_fd(), POLLIN, 0};
    ::poll(&ended, 1, deadline.poll_timeout_ms());
  }
  return true;
}

bool StartedProcess::has_ended() {
  const std::lock_guard held(lock_);
  if (ended_) return true;
  int status = 0;
  bool known = true;
  if (parts_.status_socket) {
    const ssize_t n = ::recv(parts_.status_socket.get(), &status, sizeof status, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    // The forkserver has died, and its children with it, by their parent-death signal.
    if (n != sizeof status) status = SIGKILL;
    ::shutdown(parts_.status_socket.get(), SHUT_RDWR);  // the server may reap it now
  } else {
    const pid_t reaped = ::waitpid(parts_.pid, &status, WNOHANG);
    if (reaped == 0 || (reaped < 0 && errno == EINTR)) return false;
    known = reaped > 0;  // else ECHILD
  }
  if (known) status_ = ExitStatus::from_wait_status(status);
  outcome_ = read_outcome(parts_.hand_over.get());
  parts_.hand_over.reset();
  ended_ = true;
  return true;
}

void StartedProcess::signal(int signal_number) {
  const std::lock_guard held(lock_);
  if (ended_) return;
  // Not yet reaped, its number is still its own; unless the forkserver, whose child it is, has
  // died, or another part of this program has reaped it.
  if (::syscall(SYS_pidfd_send_signal, parts_.pidfd.get(), 0, nullptr, 0) != 0) return;
  base::signal_process_group(parts_.pid, signal_number);
  if (signal_number != SIGKILL) base::signal_process_group(parts_.pid, SIGCONT);
}

Outcome StartedProcess::outcome() {
  const std::lock_guard held(lock_);
  return outcome_.value_or(Outcome{});
}

}  // namespace dtrun::mp
