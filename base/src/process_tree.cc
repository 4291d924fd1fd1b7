#include "dtrun/base/process_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "dtrun/base/error.h"
#include "dtrun/base/unique_fd.h"

namespace dtrun::base {
namespace {

void append_children_of_thread(const char* thread, std::vector<pid_t>& pids) {
  const std::string path = fmt::format("/proc/self/task/{}/children", thread);
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) {
    const int error_number = errno;
    if (::access(fmt::format("/proc/self/task/{}", thread).c_str(), F_OK) != 0) return;  // ended
    throw system_error(fmt::format("read {}", path), error_number,
                       "dtrun needs /proc, and a kernel with CONFIG_PROC_CHILDREN");
  }
  std::string text;
  char block[4096];
  for (ssize_t n; (n = ::read(fd.get(), block, sizeof block)) != 0;) {
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) break;  // the thread has ended meanwhile
    text.append(block, static_cast<std::size_t>(n));
  }
  for (const char* at = text.c_str(); *at != '\0';) {
    char* end = nullptr;
    const long pid = std::strtol(at, &end, 10);
    if (end == at) break;
    pids.push_back(static_cast<pid_t>(pid));
    at = end;
  }
}

// Waits until the child has ended, or the deadline; reaps it.
bool reap_one(pid_t pid, Deadline deadline) {
  while (true) {
    const pid_t reaped = ::waitpid(pid, nullptr, WNOHANG);
    if (reaped == pid || (reaped < 0 && errno == ECHILD)) return true;
    if (deadline.expired()) return false;
    await_end(pid, deadline);
  }
}

bool contains(const std::vector<pid_t>& pids, pid_t pid) {
  return std::find(pids.begin(), pids.end(), pid) != pids.end();
}

// 0: it has none, or is gone.
pid_t parent_of(pid_t pid) {
  const UniqueFd fd(::open(fmt::format("/proc/{}/stat", pid).c_str(), O_RDONLY | O_CLOEXEC));
  char text[512] = {};
  if (!fd || ::read(fd.get(), text, sizeof text - 1) <= 0) return 0;
  // "12 (name) S 11 ...", and the name may have parentheses.
  const char* const name_end = std::strrchr(text, ')');
  return name_end == nullptr || std::strlen(name_end) < 4
             ? 0
             : static_cast<pid_t>(std::strtol(name_end + 4, nullptr, 10));
}

}  // namespace

void become_subreaper() {
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0)
    throw system_error("become the reaper of orphaned processes");
}

void continue_when_parent_dies() {
  if (::prctl(PR_SET_PDEATHSIG, SIGCONT, 0, 0, 0) != 0)
    throw system_error("ask for a signal when the parent dies");
}

void signal_process_group(pid_t leader, int signal_number) {
  const bool was_there = ::getpgid(leader) == leader;
  const bool somebody_was_there = ::kill(-leader, signal_number) == 0;
  // The leader may just be joining the group: it is better signalled twice than not at all.
  if (!was_there || !somebody_was_there || ::getpgid(leader) != leader)
    ::kill(leader, signal_number);
}

bool has_ended(pid_t child) {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == child;
}

// A sandbox may refuse pidfds (seccomp); SIGCHLD may go to any thread. Then it is looked at again
// and again.
bool await_end(pid_t child, Deadline deadline) {
  constexpr int kLookEvery = 20;  // ms
  const UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
  while (!has_ended(child)) {
    if (deadline.expired()) return false;
    pollfd ended{pidfd.get(), POLLIN, 0};
    const int left = deadline.poll_timeout_ms();
    ::poll(&ended, 1, pidfd || (left >= 0 && left < kLookEvery) ? left : kLookEvery);
  }
  return true;
}

bool is_above(pid_t pid) {
  for (pid_t above = ::getppid(); above > 0; above = parent_of(above))
    if (above == pid) return true;
  return false;
}

std::vector<pid_t> child_pids() {
  const std::unique_ptr<DIR, int (*)(DIR*)> threads(::opendir("/proc/self/task"), ::closedir);
  if (!threads) throw system_error("list the threads of this process", "dtrun needs /proc");
  std::vector<pid_t> result;
  while (const dirent* entry = ::readdir(threads.get()))
    if (entry->d_name[0] != '.') append_children_of_thread(entry->d_name, result);
  return result;
}

bool has_children() {
  siginfo_t info{};
  return ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT | __WALL) == 0;
}

int kill_descendants(const std::vector<pid_t>& spare, Deadline deadline) {
  if (!has_children()) return 0;  // the rule, and much cheaper than a look into /proc
  std::vector<pid_t> stuck;
  while (true) {
    std::vector<pid_t> pids = child_pids();
    std::erase_if(pids, [&](pid_t pid) { return contains(spare, pid) || contains(stuck, pid); });
    if (pids.empty()) return static_cast<int>(stuck.size());
    // A child's number cannot become another's before it is reaped here. Its group may hold
    // processes whose parent still lives: they go with it at once.
    for (const pid_t pid : pids) {
      if (::getpgid(pid) == pid) ::kill(-pid, SIGKILL);
      ::kill(pid, SIGKILL);
    }
    for (const pid_t pid : pids)
      if (!reap_one(pid, deadline)) stuck.push_back(pid);
  }
}

ChildReaper::ChildReaper(EventLoop& loop, Callback on_exit)
    : on_exit_(std::move(on_exit)), watch_(loop, {SIGCHLD}, [this](int) { reap(); }) {}

// One SIGCHLD may stand for many.
void ChildReaper::reap() {
  int status = 0;
  for (pid_t pid; (pid = ::waitpid(-1, &status, WNOHANG)) != 0;) {
    if (pid < 0 && errno == EINTR) continue;
    if (pid < 0) return;
    on_exit_(pid, ExitStatus::from_wait_status(status));
  }
}

}  // namespace dtrun::base
