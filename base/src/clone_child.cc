#include "clone_child.h"

#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "raw_syscall.h"

// glibc's clone by its other name: the thread sanitizer wraps the usual one as a fork, and its
// bookkeeping in the child would then be done on the memory that the parent goes on with.
extern "C" int __clone(int (*function)(void*), void* stack, int flags, void* argument, ...);

namespace dtrun::base {
namespace {

// glibc keeps its clone3 to itself, and syscall() cannot return on the child's empty stack.
__attribute__((no_sanitize("address,thread,undefined"))) long clone3_and_call(
    clone_args* request, int (*function)(void*), void* argument) {
#if defined(__x86_64__)
  long result = SYS_clone3;
  register void* kept_argument asm("r8") = argument;
  register int (*kept_function)(void*) asm("r9") = function;
  asm volatile(
      "syscall\n\t"
      "test %%rax, %%rax\n\t"
      "jnz 1f\n\t"
      "xor %%ebp, %%ebp\n\t"  // the end of the chain of frames
      "mov %%r8, %%rdi\n\t"
      "call *%%r9\n\t"
      "hlt\n"
      "1:"
      : "+a"(result)
      : "D"(request), "S"(sizeof *request), "r"(kept_argument), "r"(kept_function)
      : "rcx", "r11", "memory", "cc");
  return result;
#elif defined(__aarch64__)
  register long result asm("x0") = reinterpret_cast<long>(request);
  register unsigned long bytes asm("x1") = sizeof *request;
  register void* kept_argument asm("x2") = argument;
  register int (*kept_function)(void*) asm("x3") = function;
  register long number asm("x8") = SYS_clone3;
  asm volatile(
      "svc #0\n\t"
      "cbnz x0, 1f\n\t"
      "mov x29, xzr\n\t"
      "mov x0, x2\n\t"
      "blr x3\n\t"
      "brk #0\n"
      "1:"
      : "+r"(result)
      : "r"(bytes), "r"(kept_argument), "r"(kept_function), "r"(number)
      : "memory", "cc");
  return result;
#else
  (void)request, (void)function, (void)argument;
  return -ENOSYS;
#endif
}

__attribute__((no_sanitize("address,thread,undefined"))) int leave(void*) {
  while (true) raw_syscall(SYS_exit_group, 0);
}

}  // namespace

pid_t clone_child(int (*function)(void*), void* argument, const BorrowedPlace& place) {
  constexpr auto kFlags = CLONE_VM | CLONE_FILES | CLONE_PIDFD | CLONE_CHILD_CLEARTID;
  if (place.cgroup < 0)
    return ::__clone(function, static_cast<char*>(place.stack) + place.stack_bytes,
                     kFlags | SIGCHLD, argument, place.pidfd, nullptr, place.borrowing);
  clone_args request{};
  request.flags = kFlags | CLONE_INTO_CGROUP;
  request.pidfd = reinterpret_cast<std::uintptr_t>(place.pidfd);
  request.child_tid = reinterpret_cast<std::uintptr_t>(place.borrowing);
  request.exit_signal = SIGCHLD;
  request.stack = reinterpret_cast<std::uintptr_t>(place.stack);
  request.stack_size = place.stack_bytes;
  request.cgroup = static_cast<std::uint64_t>(place.cgroup);
  const long result = clone3_and_call(&request, function, argument);
  if (result >= 0) return static_cast<pid_t>(result);
  errno = static_cast<int>(-result);
  return -1;
}

bool can_clone_into_cgroup(int cgroup) {
  alignas(64) char stack[4096];
  int pidfd = -1;
  std::atomic<std::uint32_t> borrowing = 1;
  const pid_t pid = clone_child(leave, nullptr,
                                {.stack = stack,
                                 .stack_bytes = sizeof stack,
                                 .pidfd = &pidfd,
                                 .borrowing = &borrowing,
                                 .cgroup = cgroup});
  if (pid < 0) return false;
  ::close(pidfd);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status == 0;
}

}  // namespace dtrun::base
