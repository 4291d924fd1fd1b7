// The forkserver's own side.
#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <list>
#include <vector>

#include "child_body.h"
#include "copied_image.h"
#include "descriptor_message.h"
#include "fork_server.h"
#include "function_table.h"
#include "this_process.h"

namespace dtrun::mp {
namespace {

struct ServedChild {
  pid_t pid = 0;
  base::UniqueFd pidfd;
  base::UniqueFd status_socket;
  bool told = false;  // the parent knows that it has ended

  // Its end; then the parent's leave to reap it.
  int awaited_fd() const { return told ? status_socket.get() : pidfd.get(); }
};

void take_environment(const Order& order) {
  ::clearenv();
  for (const std::string& entry : order.environment) {
    const auto equals = entry.find('=');
    ::setenv(entry.substr(0, equals).c_str(), entry.substr(equals + 1).c_str(), 1);
  }
}

// Whatever the server has open is none of its children's business.
void close_all_but(int fd) {
  ::syscall(SYS_close_range, STDERR_FILENO + 1, fd - 1, 0);
  ::syscall(SYS_close_range, fd + 1, ~0U, 0);
}

[[noreturn]] void live_as_served(const std::vector<base::UniqueFd>& fds) noexcept {
  const int hand_over = fds[kHandOver].get();
  ::dup2(fds[kStandardOutput].get(), STDOUT_FILENO);
  ::dup2(fds[kStandardError].get(), STDERR_FILENO);
  // Only a folder that its own user may not enter any more can be refused.
  const int folder_error = ::fchdir(fds[kWorkingFolder].get()) == 0 ? 0 : errno;
  close_all_but(hand_over);
  const Order order = take_order(hand_over);
  ThisProcess::begin_as_child(order);
  leave_copy(run_body(hand_over, order, [&] {
    take_environment(order);
    if (folder_error != 0)
      throw base::system_error("go to the folder that the parent is in", folder_error);
    const FunctionEntry entry = find_function(order.function);
    wire::Reader arguments(order.arguments);
    entry.run(entry.function, arguments);
  }));
}

void fork_child(std::vector<base::UniqueFd> fds, std::list<ServedChild>& children) {
  const pid_t server = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) {
    tie_to_parent(server);
    live_as_served(fds);
  }
  int error_number = errno;
  base::UniqueFd& socket = fds[kStatusSocket];
  if (pid > 0) {
    ::setpgid(pid, pid);
    base::UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    error_number = errno;
    if (pidfd) {
      send_message(socket.get(), pid, {pidfd.get()});
      children.push_back({pid, std::move(pidfd), std::move(socket), false});
      return;
    }
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
  send_message(socket.get(), -error_number, {});
}

void tell_end(ServedChild& child) {
  siginfo_t ended{};
  ::waitid(P_PID, static_cast<id_t>(child.pid), &ended, WEXITED | WNOWAIT);
  // As waitpid would give it: the code in the second byte, the signal in the first.
  const int dumped = ended.si_code == CLD_DUMPED ? 0x80 : 0;
  const int status =
      ended.si_code == CLD_EXITED ? (ended.si_status & 0xff) << 8 : ended.si_status | dumped;
  send_message(child.status_socket.get(), status, {});
  child.told = true;
}

void serve_once(int control, std::list<ServedChild>& children) {
  std::vector<pollfd> awaited{{control, POLLIN, 0}};
  for (const ServedChild& child : children) awaited.push_back({child.awaited_fd(), POLLIN, 0});
  if (::poll(awaited.data(), awaited.size(), -1) < 0) return;
  std::size_t i = 1;
  for (auto child = children.begin(); child != children.end(); ++i) {
    const bool ready = awaited[i].revents != 0;
    if (ready && child->told) {
      ::waitpid(child->pid, nullptr, 0);
      child = children.erase(child);
      continue;
    }
    if (ready) tell_end(*child);
    ++child;
  }
  if (awaited[0].revents == 0) return;
  auto request = receive_message(control);
  if (!request) ::_exit(0);  // the parent has ended; the children follow by their death signal
  if (request->fds.size() == kRequestFds) fork_child(std::move(request->fds), children);
}

}  // namespace

void serve_forks(base::UniqueFd control) {
  ::fcntl(control.get(), F_SETFD, FD_CLOEXEC);
  std::list<ServedChild> children;
  while (true) try {
      serve_once(control.get(), children);
    } catch (const base::Error& error) {
      // Out of descriptors, say. Its children go with it; their parent is told by the sockets' end.
      fmt::print(stderr, "forkserver (pid {}): {}\n", ::getpid(), error.what());
      ::_exit(1);
    }
}

}  // namespace dtrun::mp
