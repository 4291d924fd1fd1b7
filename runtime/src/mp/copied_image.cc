#include "copied_image.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "child_body.h"
#include "child_environment.h"
#include "dtrun/base/error.h"
#include "fork_danger.h"
#include "live_workers.h"
#include "standard_streams.h"
#include "this_process.h"

namespace dtrun::mp {
namespace {

void refuse(const std::optional<base::Error>& danger) {
  if (danger) throw *danger;
}

// The child waits until its parent has seen that it may live; the parent's end is a no.
bool is_let_go(int gate) {
  char byte = 0;
  ssize_t n = 0;
  while ((n = ::read(gate, &byte, 1)) < 0 && errno == EINTR) {
  }
  return n == 1;
}

[[noreturn]] void live_as_copy(int hand_over, const Order& order,
                               const std::function<void()>& call) noexcept {
  close_standard_input();
  hide_variables();
  ThisProcess::begin_as_child(order);
  leave_copy(run_body(hand_over, order, call));
}

}  // namespace

void tie_to_parent(pid_t parent) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // It may have died before the prctl.
  if (::getppid() != parent) ::_exit(1);
}

StartedProcess::Parts start_copy(const Order& order, const std::function<void()>& call) {
  refuse(fork_danger(runtime::LiveWorker::count(), open_files(), {}));
  base::UniqueFd hand_over = make_hand_over();
  base::Pipe gate = base::make_pipe();
  flush_standard_streams();  // or the child prints it, too
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0)
    throw base::system_error("copy this process (fork)",
                             "raise the limit of processes (ulimit -u, pids.max)");
  if (pid == 0) {
    tie_to_parent(parent);
    gate.write_end.reset();
    if (!is_let_go(gate.read_end.get())) ::_exit(1);
    gate.read_end.reset();
    live_as_copy(hand_over.get(), order, call);
  }
  ::setpgid(pid, pid);  // whoever of the two comes first
  base::UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  // Looked at only now: thread pools that know about fork() (OpenBLAS's) have ended their threads
  // in their pthread_atfork handler. The child has done nothing yet.
  const auto danger = fork_danger(0, {}, other_threads());
  if (danger || !pidfd || ::write(gate.write_end.get(), "", 1) != 1) {
    const int error_number = errno;
    gate.write_end.reset();
    ::kill(pid, SIGKILL);
    while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    refuse(danger);
    throw base::system_error("watch a copy of this process", error_number,
                             "raise the limit of open files (ulimit -n)");
  }
  return {pid, std::move(pidfd), std::move(hand_over), {}};
}

}  // namespace dtrun::mp
