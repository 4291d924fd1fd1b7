#include "dtrun/base/child_birth.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/close_range.h>
#include <linux/mempolicy.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>

#include "clone_child.h"
#include "dtrun/base/futex.h"
#include "raw_syscall.h"

// The child's functions run on borrowed memory: no instrumentation may touch the parent's shadow,
// and none but raw system calls may be made, for errno is the parent's.
#define DT_IN_CHILD __attribute__((no_sanitize("address,thread,undefined")))

namespace dtrun::base {
// Everything the child reads and writes, laid out before the clone.
struct BirthRequest {
  const char* path;
  const char* folder;  // nullptr: the parent's
  char* const* argv;
  char* const* envp;
  int stdio[3];
  const int* inherited;
  std::size_t inherited_count;
  unsigned first_foreign;  // no descriptor from here on is the child's
  ChildSetup::Group group;
  bool takes_terminal;
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

namespace {

// As the kernel lays it out; all zero is SIG_DFL with an empty mask.
struct KernelSigaction {
  void* handler;
  unsigned long flags;
  void* restorer;
  unsigned long mask;
};

DT_IN_CHILD long word(const void* pointer) {
  return reinterpret_cast<long>(pointer);
}

/// @param result of the step that failed: -errno
[[noreturn]] DT_IN_CHILD void give_up(BirthRequest* request, const char* step, long result) {
  request->failed_step = step;
  request->error_number = static_cast<int>(-result);
  while (true) raw_syscall(SYS_exit_group, 127);
}

// What the step returns where it does not fail.
DT_IN_CHILD long checked(BirthRequest* request, const char* step, long result) {
  if (result < 0) give_up(request, step, result);
  return result;
}

DT_IN_CHILD void set_up_signals() {
  KernelSigaction action{};
  for (int number = 1; number <= 64; ++number)
    if (number != SIGKILL && number != SIGSTOP)
      raw_syscall(SYS_rt_sigaction, number, word(&action), 0, sizeof action.mask);
  unsigned long empty = 0;
  raw_syscall(SYS_rt_sigprocmask, SIG_SETMASK, word(&empty), 0, sizeof empty);
}

DT_IN_CHILD void set_up_stdio(BirthRequest* request) {
  if (request->stdio[0] < 0)
    request->stdio[0] = static_cast<int>(
        checked(request, "open /dev/null",
                raw_syscall(SYS_openat, AT_FDCWD, word("/dev/null"), O_RDONLY | O_CLOEXEC)));
  // A source that itself lies in 0..2 is moved up first, lest an earlier dup3 overwrite it.
  for (int target = 0; target < 3; ++target) {
    int& source = request->stdio[target];
    if (source > 2 || source == target) continue;
    source = static_cast<int>(checked(request, "duplicate a standard stream",
                                      raw_syscall(SYS_fcntl, source, F_DUPFD_CLOEXEC, 3)));
  }
  for (int target = 0; target < 3; ++target) {
    const int source = request->stdio[target];
    checked(request, "connect a standard stream",
            source == target ? raw_syscall(SYS_fcntl, target, F_SETFD, 0)
                             : raw_syscall(SYS_dup3, source, target, 0));
  }
}

DT_IN_CHILD void set_up_descriptors(BirthRequest* request) {
  // The table is the parent's until here. Only what the child needs is copied of it, and closed by
  // execve: both would cost the more, the more ranks the parent has the pipes of.
  checked(request, "leave the parent's descriptors (close_range)",
          raw_syscall(SYS_close_range, request->first_foreign, ~0U, CLOSE_RANGE_UNSHARE));
  set_up_stdio(request);
  checked(request, "close descriptors (close_range)",
          raw_syscall(SYS_close_range, 3, ~0U, CLOSE_RANGE_CLOEXEC));
  for (std::size_t i = 0; i < request->inherited_count; ++i)
    checked(request, "pass on a descriptor",
            raw_syscall(SYS_fcntl, request->inherited[i], F_SETFD, 0));
}

DT_IN_CHILD void set_up_limits(BirthRequest* request) {
  if (request->has_limit) {
    rlimit limit{};
    raw_syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, 0, word(&limit));
    limit.rlim_cur = request->soft_limit;
    checked(request, "restore the limit of open files",
            raw_syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, word(&limit)));
  }
  if (request->cpu_mask_bytes != 0)
    checked(request, "bind to CPUs",
            raw_syscall(SYS_sched_setaffinity, 0, static_cast<long>(request->cpu_mask_bytes),
                        word(request->cpu_mask)));
  if (request->memory_mask_bits != 0)
    checked(request, "bind to a NUMA node's memory",
            raw_syscall(SYS_set_mempolicy, MPOL_PREFERRED, word(request->memory_mask),
                        static_cast<long>(request->memory_mask_bits)));
}

DT_IN_CHILD int child_main(void* argument) {
  BirthRequest* const request = static_cast<BirthRequest*>(argument);
  checked(request, "make a process group",
          request->group == ChildSetup::Group::kSession ? raw_syscall(SYS_setsid)
                                                        : raw_syscall(SYS_setpgid, 0, 0));
  checked(request, "set the parent-death signal",
          raw_syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL));
  // The parent may have died before the prctl; then nobody reads what is written here. Or this is
  // the first process of a pid namespace, from which it cannot be seen.
  if (raw_syscall(SYS_getppid) != request->parent) give_up(request, "find the parent", -ESRCH);
  set_up_signals();
  set_up_descriptors(request);
  if (request->takes_terminal)
    checked(request, "take the terminal", raw_syscall(SYS_ioctl, 0, TIOCSCTTY, 0));
  set_up_limits(request);
  if (request->folder != nullptr)
    checked(request, "enter its folder", raw_syscall(SYS_chdir, word(request->folder)));
  give_up(request, "execute",
          raw_syscall(SYS_execve, word(request->path), word(request->argv), word(request->envp)));
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

// A signal that stops a child before its exec stops its parent as well, because it shares the
// parent's memory. The parent sends SIGCONT after this time: the program has not begun, so the stop
// meant nothing to it.
constexpr auto kStopPatience = std::chrono::seconds(1);

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

}  // namespace

// At its place until the child has exec'd: the child's memory is this.
struct ChildBirth::State {
  State(ChildCommand of_all, ChildSetup of_this)
      : command(std::move(of_all)), setup(std::move(of_this)) {}

  ChildCommand command;
  ChildSetup setup;
  std::vector<char*> argv = pointers(command.arguments);
  std::vector<char*> envp = pointers(command.environment, setup.environment);
  Bits cpu_mask = bits_of(setup.cpus);
  Bits memory_mask = setup.memory_node ? bits_of({*setup.memory_node}) : Bits();
  BirthRequest request = make_request();
  std::atomic<std::uint32_t> borrowing = 1;  ///< cleared by the kernel at the exec, or the end
  pid_t pid = -1;
  UniqueFd pidfd;
  alignas(64) char stack[16 << 10];

  BirthRequest make_request();
  void clone();
};

BirthRequest ChildBirth::State::make_request() {
  BirthRequest made{};
  made.path = command.path.c_str();
  made.folder = command.folder.empty() ? nullptr : command.folder.c_str();
  made.argv = argv.data();
  made.envp = envp.data();
  made.stdio[0] = setup.stdin_fd;
  made.stdio[1] = setup.stdout_fd;
  made.stdio[2] = setup.stderr_fd;
  made.inherited = setup.inherited_fds.data();
  made.inherited_count = setup.inherited_fds.size();
  int highest = std::max({2, setup.stdin_fd, setup.stdout_fd, setup.stderr_fd});
  for (const int fd : setup.inherited_fds) highest = std::max(highest, fd);
  made.first_foreign = static_cast<unsigned>(highest) + 1;
  made.group = setup.group;
  made.takes_terminal = setup.takes_terminal;
  made.parent = ::getpid();
  made.has_limit = command.open_files_soft_limit.has_value();
  made.soft_limit = command.open_files_soft_limit.value_or(0);
  made.cpu_mask = cpu_mask.data();
  made.cpu_mask_bytes = cpu_mask.size() * sizeof cpu_mask[0];
  made.memory_mask = memory_mask.data();
  // The kernel takes one bit less than it is told.
  made.memory_mask_bits = memory_mask.empty() ? 0 : memory_mask.size() * kBitsPerWord + 1;
  return made;
}

void ChildBirth::State::clone() {
  // No handler of ours may run in the child, where it would work on this process's memory.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  int raw_pidfd = -1;
  pid = clone_child(child_main, &request,
                    {.stack = stack,
                     .stack_bytes = sizeof stack,
                     .pidfd = &raw_pidfd,
                     .borrowing = &borrowing,
                     .cgroup = setup.cgroup_fd});
  const int clone_error = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) throw spawn_error(command.path, "clone", clone_error);
  pidfd = UniqueFd(raw_pidfd);
}

ChildBirth::ChildBirth(ChildCommand command, ChildSetup setup)
    : state_(new State(std::move(command), std::move(setup))) {
  state_->clone();
}

ChildBirth::ChildBirth(ChildBirth&&) noexcept = default;

ChildBirth::~ChildBirth() {
  if (!state_) return;
  try {
    finish();
  } catch (const Error&) {
    // The child has ended and left nothing, as intended.
  }
}

ChildProcess ChildBirth::finish() {
  while (state_->borrowing.load() != 0) {
    futex_wait(state_->borrowing, 1, Deadline::after(kStopPatience));
    if (state_->borrowing.load() != 0) ::kill(state_->pid, SIGCONT);
  }
  const std::unique_ptr<State> state = std::move(state_);
  if (state->request.failed_step == nullptr)
    return ChildProcess(state->pid, std::move(state->pidfd));
  while (::waitpid(state->pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  throw spawn_error(state->command.path, state->request.failed_step, state->request.error_number);
}

}  // namespace dtrun::base
