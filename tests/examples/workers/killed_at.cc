// killed_at NUMBER FILE PROGRAM [ARGUMENTS]: runs PROGRAM in this process and ends it by SIGKILL at
// its NUMBER-th system call, counted over all its threads; 0: never. At the end FILE holds the
// count and the time of the kill in nanoseconds of CLOCK_MONOTONIC. So a test can kill a program
// that knows nothing of tests anywhere in its life.
#include <errno.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

[[noreturn]] void fail(const char* action) {
  std::fprintf(stderr, "killed_at: cannot %s: %s\n", action, std::strerror(errno));
  std::_Exit(70);
}

void write_result(const char* path, long count) {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  std::FILE* file = std::fopen(path, "w");
  if (file == nullptr) fail("write the result");
  std::fprintf(file, "%ld %lld\n", count, now.tv_sec * 1'000'000'000LL + now.tv_nsec);
  std::fclose(file);
}

// Lets the stopped thread run on to its next stop. A thread that was killed meanwhile is fine.
void go_on(pid_t thread, int signal_number) {
  if (::ptrace(PTRACE_SYSCALL, thread, nullptr, static_cast<long>(signal_number)) != 0 &&
      errno != ESRCH)
    fail("continue a thread");
}

// The signal to pass on at this stop: 0 at the stops that the tracing itself makes.
int signal_of_stop(int status) {
  if (status >> 16 != 0) return 0;                     // an event: clone, exec, attach
  if (WSTOPSIG(status) == (SIGTRAP | 0x80)) return 0;  // a system call
  return WSTOPSIG(status);
}

// Two stops, entry and exit, per call: every second one counts. Threads interleave, which moves the
// count by a few and does no harm.
void trace(pid_t program, long number, const char* path) {
  long stops = 0;
  while (true) {
    int status = 0;
    const pid_t thread = ::waitpid(-1, &status, __WALL);
    if (thread < 0) break;  // all have ended
    if (!WIFSTOPPED(status)) continue;
    if (WSTOPSIG(status) == (SIGTRAP | 0x80)) ++stops;
    // Before the end is seen outside: dtrun sweeps what a rank leaves, this process included.
    if (thread == program && status >> 8 == (SIGTRAP | PTRACE_EVENT_EXIT << 8))
      write_result(path, stops / 2);
    if (number > 0 && stops / 2 >= number) {
      write_result(path, stops / 2);
      ::kill(program, SIGKILL);
      return;
    }
    go_on(thread, signal_of_stop(status));
  }
}

// In a child: traces its parent, which waits for the byte until it is attached.
[[noreturn]] void run_tracer(pid_t program, long number, const char* path, int ready) {
  constexpr long kOptions = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXIT;
  if (::ptrace(PTRACE_SEIZE, program, nullptr, kOptions) != 0) fail("attach");
  if (::ptrace(PTRACE_INTERRUPT, program, nullptr, nullptr) != 0) fail("stop the program");
  if (::write(ready, "x", 1) != 1) fail("tell that it is attached");
  trace(program, number, path);
  std::_Exit(0);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 64;
  const long number = std::atol(argv[1]);
  int ready[2];
  if (::pipe(ready) != 0) fail("make a pipe");
  const pid_t program = ::getpid();
  const pid_t tracer = ::fork();
  if (tracer < 0) fail("fork");
  if (tracer == 0) run_tracer(program, number, argv[2], ready[1]);
  char byte = 0;
  if (::read(ready[0], &byte, 1) != 1) fail("wait for the tracer");
  ::close(ready[0]);
  ::close(ready[1]);
  ::execv(argv[3], argv + 3);
  fail("start the program");
}
