// A rank that crashes: crash HOW. Ranks other than 0 wait for it in a barrier.
#include <dtrun/dtrun.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <thread>

using namespace dtrun;

namespace {

[[gnu::noinline]] int overflow_the_stack(volatile int* depth) {
  volatile char room[512];
  room[0] = static_cast<char>(*depth);
  *depth = *depth + 1;
  if (*depth < 0) return 0;
  return overflow_the_stack(depth) + room[0];
}

[[gnu::noinline]] void write_to_nothing(volatile int* nothing) {
  *nothing = 1;
}

[[gnu::noinline]] void divide_by(volatile int* divisor) {
  *divisor = 1000 / *divisor;
}

void repair(int, siginfo_t* info, void*) {
  const auto page = reinterpret_cast<std::uintptr_t>(info->si_addr) & ~std::uintptr_t{4095};
  ::mprotect(reinterpret_cast<void*>(page), 4096, PROT_READ | PROT_WRITE);
}

void complain(int number) {
  constexpr char kText[] = "this program crashes\n";
  (void)!::write(2, kText, sizeof kText - 1);
  if (number == SIGSEGV) ::signal(number, SIG_DFL);
}

[[gnu::noinline]] void call(void (*volatile* function)()) {
  (*function)();
}

void install_repair() {
  struct sigaction action {};
  action.sa_sigaction = repair;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGSEGV, &action, nullptr);
}

[[gnu::noinline]] void crash(const std::string& how) {
  if (how == "segv") write_to_nothing(nullptr);
  if (how == "thread") std::thread([] { write_to_nothing(nullptr); }).join();
  if (how == "overflow") {
    volatile int depth = 0;
    overflow_the_stack(&depth);
  }
  if (how == "divide") {
    volatile int zero = 0;
    divide_by(&zero);
  }
  if (how == "call") {
    void (*volatile none)() = nullptr;
    call(&none);
  }
  if (how == "complain") write_to_nothing(nullptr);
  if (how == "abort" || how == "complain_of_abort") std::abort();
  if (how == "kill") ::kill(::getpid(), SIGSEGV);
  if (how == "repair") {  // by a handler that was there before
    void* const page = ::mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    write_to_nothing(static_cast<volatile int*>(page));
    ::exit(3);
  }
  if (how == "child") {  // whose crash is not the rank's
    const pid_t child = ::fork();
    if (child == 0) write_to_nothing(nullptr);
    int status = 0;
    ::waitpid(child, &status, 0);
    ::exit(WIFSIGNALED(status) ? 4 : 5);
  }
  if (how == "all") {  // threads, at once
    std::thread first([] { write_to_nothing(nullptr); }), second([] { write_to_nothing(nullptr); });
    first.join();
    second.join();
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string how = argc > 1 ? argv[1] : "";
  if (how == "repair") install_repair();
  if (how == "complain") ::signal(SIGSEGV, complain);
  if (how == "complain_of_abort") ::signal(SIGABRT, complain);
  dist::init_process_group();
  dist::barrier();
  if (dist::get_rank() == 0) crash(how);
  dist::barrier();
  dist::destroy_process_group();
}
