#include "dtrun/base/child_process.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/close_range.h>
#include <linux/mempolicy.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "clone_child.h"
#include "dtrun/base/process_tree.h"

// The child's functions run on borrowed memory: no instrumentation may touch the parent's shadow.
#define DT_IN_CHILD __attribute__((no_sanitize("address,thread,undefined")))

namespace dtrun::base {
namespace {

// Everything the child reads and writes, laid out before the clone: after it only system calls.
struct Request {
  const char* path;
  char* const* argv;
  char* const* envp;
  int stdio[3];
  const int* inherited;
  std::size_t inherited_count;
  unsigned first_foreign;  // no descriptor from here on is the child's
  ChildSetup::Group group;
  pid_t parent;
  bool has_limit;
  rlim_t soft_limit;
  const unsigned long* cpu_mask;
  std::size_t cpu_mask_bytes;  // 0: none
  const unsigned long* memory_mask;
  std::size_t memory_mask_bits;  // 0: none
  // Written by the child when a step fails.
  int error_number;
  const char* failed_step;
};

// As the kernel lays it out; all zero is SIG_DFL with an empty mask.
struct KernelSigaction {
  void* handler;
  unsigned long flags;
  void* restorer;
  unsigned long mask;
};

[[noreturn]] DT_IN_CHILD void give_up(Request* request, const char* step) {
  request->failed_step = step;
  request->error_number = errno;
  while (true) ::syscall(SYS_exit_group, 127);
}

DT_IN_CHILD void set_up_signals() {
  KernelSigaction action{};
  for (int number = 1; number <= 64; ++number)
    if (number != SIGKILL && number != SIGSTOP)
      ::syscall(SYS_rt_sigaction, number, &action, nullptr, sizeof(action.mask));
  unsigned long empty = 0;
  ::syscall(SYS_rt_sigprocmask, SIG_SETMASK, &empty, nullptr, sizeof empty);
}

DT_IN_CHILD void set_up_stdio(Request* request) {
  if (request->stdio[0] < 0) {
    request->stdio[0] =
        static_cast<int>(::syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDONLY | O_CLOEXEC));
    if (request->stdio[0] < 0) give_up(request, "open /dev/null");
  }
  // A source that itself lies in 0..2 is moved up first, lest an earlier dup3 overwrite it.
  for (int target = 0; target < 3; ++target) {
    int& source = request->stdio[target];
    if (source > 2 || source == target) continue;
    source = static_cast<int>(::syscall(SYS_fcntl, source, F_DUPFD_CLOEXEC, 3));
    if (source < 0) give_up(request, "duplicate a standard stream");
  }
  for (int target = 0; target < 3; ++target) {
    const int source = request->stdio[target];
    const long done = source == target ? ::syscall(SYS_fcntl, target, F_SETFD, 0)
                                       : ::syscall(SYS_dup3, source, target, 0);
    if (done < 0) give_up(request, "connect a standard stream");
  }
}

DT_IN_CHILD void set_up_descriptors(Request* request) {
  // The table is the parent's until here. Only what the child needs is copied of it, and closed by
  // execve: both would cost the more, the more ranks the parent has the pipes of.
  if (::syscall(SYS_close_range, request->first_foreign, ~0U, CLOSE_RANGE_UNSHARE) != 0)
    give_up(request, "leave the parent's descriptors (close_range)");
  set_up_stdio(request);
  if (::syscall(SYS_close_range, 3U, ~0U, CLOSE_RANGE_CLOEXEC) != 0)
    give_up(request, "close descriptors (close_range)");
  for (std::size_t i = 0; i < request->inherited_count; ++i)
    if (::syscall(SYS_fcntl, request->inherited[i], F_SETFD, 0) != 0)
      give_up(request, "pass on a descriptor");
}

DT_IN_CHILD int child_main(void* argument) {
  Request* const request = static_cast<Request*>(argument);
  const long own_group = request->group == ChildSetup::Group::kSession
                             ? ::syscall(SYS_setsid)
                             : ::syscall(SYS_setpgid, 0, 0);
  if (own_group < 0) give_up(request, "make a process group");
  if (::syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0)
    give_up(request, "set the parent-death signal");
  // The parent may have died before the prctl; then nobody reads what is written here. Or this is
  // the first process of a pid namespace, from which it cannot be seen.
  if (::syscall(SYS_getppid) != request->parent) {
    errno = ESRCH;  // the call itself has not failed
    give_up(request, "find the parent");
  }
  set_up_signals();
  set_up_descriptors(request);
  if (request->has_limit) {
    rlimit limit{};
    ::syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, nullptr, &limit);
    limit.rlim_cur = request->soft_limit;
    if (::syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, &limit, nullptr) != 0)
      give_up(request, "restore the limit of open files");
  }
  if (request->cpu_mask_bytes != 0 &&
      ::syscall(SYS_sched_setaffinity, 0, request->cpu_mask_bytes, request->cpu_mask) != 0)
    give_up(request, "bind to CPUs");
  if (request->memory_mask_bits != 0 &&
      ::syscall(SYS_set_mempolicy, MPOL_PREFERRED, request->memory_mask,
                request->memory_mask_bits) != 0)
    give_up(request, "bind to a NUMA node's memory");
  ::syscall(SYS_execve, request->path, request->argv, request->envp);
  give_up(request, "execute");
}

std::vector<char*> pointers(const std::vector<std::string>& first,
                            const std::vector<std::string>& second = {}) {
  std::vector<char*> result;
  result.reserve(first.size() + second.size() + 1);
  for (const auto* list : {&first, &second})
    for (const std::string& text : *list) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

SpawnError spawn_error(const std::string& path, const char* step, int error_number) {
  const char* remedy = "";
  if (error_number == EAGAIN) remedy = "raise the limit of processes (ulimit -u, pids.max)";
  if (error_number == EMFILE) remedy = "raise the limit of open files (ulimit -n)";
  if (error_number == ENOENT) remedy = "check the path, and the interpreter after its '#!'";
  if (error_number == ENOEXEC) remedy = "give a script a first line like '#!/bin/sh'";
  return SpawnError(system_error(fmt::format("start {} ({})", path, step), error_number, remedy),
                    error_number);
}

using Bits = std::vector<unsigned long>;
constexpr std::size_t kBitsPerWord = 8 * sizeof(unsigned long);

// As the kernel wants sets of CPUs and of nodes; empty for none.
Bits bits_of(const std::vector<int>& numbers) {
  Bits bits;
  for (const int number : numbers) {
    const auto index = static_cast<std::size_t>(number);
    if (bits.size() <= index / kBitsPerWord) bits.resize(index / kBitsPerWord + 1);
    bits[index / kBitsPerWord] |= 1UL << index % kBitsPerWord;
  }
  return bits;
}

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
  while (true) {
    const auto colon = search_path.find(':');
    const std::string_view folder = search_path.substr(0, colon);
    found = fmt::format("{}/{}", folder.empty() ? "." : folder, name);
    const int reason = executable_error(found);
    if (reason == 0) return 0;
    // A file that is there but not executable explains more than that the next folder has none.
    if (reason == EACCES) error_number = EACCES;
    if (colon == std::string_view::npos) return error_number;
    search_path.remove_prefix(colon + 1);
  }
}

}  // namespace

ChildProcess ChildProcess::spawn(const ChildCommand& command, const ChildSetup& setup) {
  const std::vector<char*> argv = pointers(command.arguments);
  const std::vector<char*> envp = pointers(command.environment, setup.environment);
  Request request{};
  request.path = command.path.c_str();
  request.argv = argv.data();
  request.envp = envp.data();
  request.stdio[0] = setup.stdin_fd;
  request.stdio[1] = setup.stdout_fd;
  request.stdio[2] = setup.stderr_fd;
  request.inherited = setup.inherited_fds.data();
  request.inherited_count = setup.inherited_fds.size();
  int highest = std::max({2, setup.stdin_fd, setup.stdout_fd, setup.stderr_fd});
  for (const int fd : setup.inherited_fds) highest = std::max(highest, fd);
  request.first_foreign = static_cast<unsigned>(highest) + 1;
  request.group = setup.group;
  request.parent = ::getpid();
  request.has_limit = command.open_files_soft_limit.has_value();
  request.soft_limit = command.open_files_soft_limit.value_or(0);
  const Bits cpu_mask = bits_of(setup.cpus);
  request.cpu_mask = cpu_mask.data();
  request.cpu_mask_bytes = cpu_mask.size() * sizeof cpu_mask[0];
  const Bits memory_mask = setup.memory_node ? bits_of({*setup.memory_node}) : Bits();
  request.memory_mask = memory_mask.data();
  // The kernel takes one bit less than it is told.
  request.memory_mask_bits = memory_mask.empty() ? 0 : memory_mask.size() * kBitsPerWord + 1;

  constexpr std::size_t kStackBytes = 64 << 10;
  const auto stack = std::make_unique_for_overwrite<char[]>(kStackBytes);
  const auto bottom = reinterpret_cast<std::uintptr_t>(stack.get());
  const std::uintptr_t top = (bottom + kStackBytes) & ~std::uintptr_t{63};
  // No handler of ours may run in the child, where it would work on this process's memory.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  int pidfd = -1;
  const pid_t pid =
      clone_child(child_main, stack.get(), top - bottom, &request, &pidfd, setup.cgroup_fd);
  const int clone_error = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) throw spawn_error(command.path, "clone", clone_error);
  UniqueFd owned_pidfd(pidfd);
  if (request.failed_step != nullptr) {
    while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    throw spawn_error(command.path, request.failed_step, request.error_number);
  }
  return ChildProcess(pid, std::move(owned_pidfd));
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
  throw SpawnError(Error(ErrorCode::kSystem, fmt::format("cannot execute '{}'", name),
                         error_number == EISDIR ? "it is a folder" : strerrordesc_np(error_number),
                         "chmod +x makes a file executable; *.py files are run by python3"),
                   error_number);
}

}  // namespace dtrun::base
