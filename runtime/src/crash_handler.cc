#include "crash_handler.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <mutex>
#include <string>
#include <string_view>

#include "dtrun/base/futex.h"
#include "dtrun/base/utf8.h"
#include "dtrun/rendezvous/crash_stack.h"

namespace dtrun::runtime {
namespace {

struct CrashSignal {
  int number;
  const char* name;
};
constexpr std::array kCrashSignals = {
    CrashSignal{SIGSEGV, "SIGSEGV"}, CrashSignal{SIGBUS, "SIGBUS"}, CrashSignal{SIGFPE, "SIGFPE"},
    CrashSignal{SIGILL, "SIGILL"}, CrashSignal{SIGABRT, "SIGABRT"}};
constexpr std::size_t kHandlerStackBytes = 128 << 10;
/// A wrong access this near to the top of the stack is taken for an overflow of it.
constexpr std::uintptr_t kOverflowReach = 1 << 20;
/// How long a second thread that crashes leaves the process to the first.
constexpr auto kPatience = std::chrono::seconds(1);

/// What comes behind the frames of a report.
constexpr std::size_t kReportEndBytes = 64;

/// A text in memory that is there already. What does not fit is dropped.
class PreparedText {
 public:
  void add(std::string_view text) {
    for (const char c : text)
      if (size_ < data_.size()) data_[size_++] = c;
  }
  /// As it may stand in a JSON string.
  void add_path(const char* path) {
    const std::string_view text = path;
    for (std::size_t at = 0; at < text.size();) {
      const char c = text[at];
      const std::size_t length = std::max<std::size_t>(1, base::utf8_length(text, at));
      const bool is_ascii = c > '\x1f' && c < '\x7f';
      const bool is_plain = is_ascii ? c != '"' && c != '\\' : length > 1;
      add(is_plain ? text.substr(at, length) : "?");
      at += length;
    }
  }
  void add_number(std::uint64_t number, unsigned base = 10) {
    std::array<char, 20> digits;
    std::size_t at = digits.size();
    do digits[--at] = "0123456789abcdef"[number % base];
    while ((number /= base) != 0);
    if (base == 16) add("0x");
    add(std::string_view(digits.data() + at, digits.size() - at));
  }
  std::size_t size() const { return size_; }
  std::size_t room() const { return data_.size() - size_; }
  void cut(std::size_t size) { size_ = size; }
  void write_to(int fd) const {
    for (std::size_t at = 0; at < size_;) {
      const ssize_t n = ::write(fd, data_.data() + at, size_ - at);
      if (n < 0 && errno != EINTR) return;
      if (n > 0) at += static_cast<std::size_t>(n);
    }
  }

 private:
  std::array<char, 24 << 10> data_;
  std::size_t size_ = 0;
};

struct CrashFrames {
  std::array<std::uintptr_t, rendezvous::kMostCrashFrames> addresses;
  std::size_t count = 0;
  std::uintptr_t top = 0;   ///< of the stack of the frame that crashed
  bool in_program = false;  ///< the handler's own frames are behind
};

/// Everything that the handler needs, made before.
struct CrashHandler {
  pid_t pid = 0;
  std::string report;   ///< error.json
  std::string draft;    ///< beside it, until it is whole
  std::string program;  ///< the file that this process executes
  std::array<struct sigaction, kCrashSignals.size()> previous = {};
  std::atomic<pid_t> thread{0};        ///< that crashed first
  std::atomic<std::uint32_t> done{0};  ///< 1: its report is written
  std::atomic<bool> is_writing{false};
  CrashFrames frames;
  PreparedText text;
};
// A signal handler takes no argument of ours.
CrashHandler* the_handler = nullptr;

_Unwind_Reason_Code note_crash_frame(_Unwind_Context* context, void* data) {
  CrashFrames& frames = *static_cast<CrashFrames*>(data);
  int is_before = 0;  // only where a signal interrupted the code is the address not behind a call
  const std::uintptr_t address = _Unwind_GetIPInfo(context, &is_before);
  if (is_before != 0 && !frames.in_program) {
    frames.in_program = true;
    frames.count = 0;
    frames.top = _Unwind_GetCFA(context);
  }
  if (frames.count == frames.addresses.size()) return _URC_END_OF_STACK;
  if (address == 0 && is_before == 0) return _URC_END_OF_STACK;
  frames.addresses[frames.count++] = is_before != 0 ? address : address - 1;
  return _URC_NO_REASON;
}

void add_cause(const siginfo_t& info, const CrashFrames& frames, PreparedText& text) {
  const auto address = reinterpret_cast<std::uintptr_t>(info.si_addr);
  const auto add_address = [&](const char* before) {
    text.add(before);
    text.add_number(address, 16);
  };
  if (info.si_code == SI_TKILL || info.si_code == SI_USER) {
    if (info.si_pid == ::getpid()) return text.add(info.si_signo == SIGABRT ? ": it aborted" : "");
    text.add(": sent by PID ");
    return text.add_number(static_cast<std::uint64_t>(info.si_pid));
  }
  if (info.si_code <= 0) return;
  if (info.si_signo == SIGFPE && info.si_code == FPE_INTDIV)
    return text.add(": an integer was divided by zero");
  if (info.si_signo == SIGSEGV && frames.top != 0 && address + kOverflowReach > frames.top &&
      address < frames.top + kOverflowReach)
    return add_address(": the stack has overflowed, at address ");
  if (info.si_signo == SIGSEGV && info.si_code == SEGV_MAPERR)
    return add_address(": nothing is mapped at address ");
  if (info.si_signo == SIGSEGV && info.si_code == SEGV_ACCERR)
    return add_address(": no right to what is at address ");
  if (info.si_signo == SIGBUS && info.si_code == BUS_ADRERR)
    return add_address(": behind the end of a mapped file, or without memory left: address ");
  if (info.si_code != SI_KERNEL) add_address(": address ");
}

// _dl_find_object takes no lock, dladdr does.
void add_frame(std::size_t number, std::uintptr_t address, PreparedText& text) {
  text.add(number == 0 ? "#" : "\\n#");
  text.add_number(number);
  text.add(" ");
  text.add_number(address, 16);
  dl_find_object found{};
  if (::_dl_find_object(reinterpret_cast<void*>(address), &found) != 0) return;
  const char* const name = found.dlfo_link_map->l_name;
  text.add(" ");
  text.add_path(name == nullptr || *name == '\0' ? the_handler->program.c_str() : name);
  text.add("+");
  text.add_number(address - found.dlfo_link_map->l_addr, 16);
}

const char* name_of_signal(int number) {
  for (const CrashSignal& one : kCrashSignals)
    if (one.number == number) return one.name;
  return "?";
}

void write_crash_report(const siginfo_t& info) {
  CrashHandler& handler = *the_handler;
  PreparedText& text = handler.text;
  text.add(R"({"message":{"message":"Signal )");
  text.add_number(static_cast<std::uint64_t>(info.si_signo));
  text.add(" (");
  text.add(name_of_signal(info.si_signo));
  text.add(") received by PID ");
  text.add_number(static_cast<std::uint64_t>(handler.pid));
  add_cause(info, handler.frames, text);
  text.add(R"(","extraInfo":{"py_callstack":")");
  for (std::size_t i = 0; i < handler.frames.count; ++i) {
    const std::size_t before = text.size();
    add_frame(i, handler.frames.addresses[i], text);
    if (text.room() >= kReportEndBytes) continue;
    text.cut(before);
    break;
  }
  text.add(R"(","timestamp":")");
  text.add_number(static_cast<std::uint64_t>(::time(nullptr)));
  text.add("\"}}}\n");
  const int fd = ::open(handler.draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return;
  text.write_to(fd);
  ::close(fd);
  ::rename(handler.draft.c_str(), handler.report.c_str());
}

// A call to where no code is: the walk ends there, but its caller stands where calls leave it.
void add_caller_of_no_code(const ucontext_t& context, CrashFrames& frames) {
  dl_find_object found{};
  if (frames.count != 1 ||
      ::_dl_find_object(reinterpret_cast<void*>(frames.addresses[0]), &found) == 0)
    return;
#if defined(__x86_64__)
  const auto* const stack =
      reinterpret_cast<const std::uintptr_t*>(context.uc_mcontext.gregs[REG_RSP]);
  frames.addresses[frames.count++] = *stack - 1;
#elif defined(__aarch64__)
  frames.addresses[frames.count++] = context.uc_mcontext.regs[30] - 1;
#endif
}

/// The first thread that crashes writes; one that comes meanwhile waits for it.
void tell_crash(const siginfo_t& info, const ucontext_t& context) {
  CrashHandler& handler = *the_handler;
  pid_t nobody = 0;
  const pid_t me = ::gettid();
  if (handler.thread.compare_exchange_strong(nobody, me)) {
    _Unwind_Backtrace(note_crash_frame, &handler.frames);
    add_caller_of_no_code(context, handler.frames);
  } else if (nobody != me) {
    const auto deadline = base::Deadline::after(kPatience);
    while (handler.done.load() == 0 && !deadline.expired())
      base::futex_wait(handler.done, 0, deadline);
    return;
  }
  // A broken stack may crash the walk: this thread comes here again, with the frames so far.
  if (!handler.is_writing.exchange(true)) write_crash_report(info);
  handler.done = 1;
  base::futex_wake_all(handler.done);
}

const struct sigaction& previous_of(int number) {
  std::size_t i = 0;
  while (kCrashSignals[i].number != number) ++i;
  return the_handler->previous[i];
}

// Somebody's handler has repaired what was wrong, so the process runs on.
void withdraw_crash_report() {
  CrashHandler& handler = *the_handler;
  if (handler.pid != ::getpid() || handler.thread.load() != ::gettid()) return;
  ::unlink(handler.report.c_str());
  handler.frames = {};
  handler.text = {};
  handler.is_writing = false;
  handler.done = 0;
  handler.thread = 0;
}

/// Whether the process dies although a handler has returned: it has set the default action, and the
/// code fails again; or abort() called it.
bool is_the_end(int number, const siginfo_t& info) {
  struct sigaction now {};
  ::sigaction(number, nullptr, &now);
  return now.sa_handler == SIG_DFL || (number == SIGABRT && info.si_pid == ::getpid());
}

void on_crash(int number, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  if (the_handler->pid == ::getpid()) tell_crash(*info, *static_cast<const ucontext_t*>(context));
  const struct sigaction& previous = previous_of(number);
  if (previous.sa_handler == SIG_DFL) {
    // The same signal again, with all that is known about it. It comes where the code was
    // interrupted, so the core shows that.
    ::sigaction(number, &previous, nullptr);
    sigset_t own;
    ::sigemptyset(&own);
    ::sigaddset(&own, number);
    ::pthread_sigmask(SIG_BLOCK, &own, nullptr);
    ::syscall(SYS_rt_tgsigqueueinfo, ::getpid(), ::gettid(), number, info);
  } else {
    if ((previous.sa_flags & SA_SIGINFO) != 0)
      previous.sa_sigaction(number, info, context);
    else
      previous.sa_handler(number);
    if (!is_the_end(number, *info)) withdraw_crash_report();
  }
  errno = saved_errno;
}

/// Never freed: the thread may crash until the end of the process.
void give_handler_stack() {
  stack_t present{};
  if (::sigaltstack(nullptr, &present) != 0 || (present.ss_flags & SS_DISABLE) == 0) return;
  void* const memory = ::mmap(nullptr, kHandlerStackBytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED) return;
  stack_t own{};
  own.ss_sp = memory;
  own.ss_size = kHandlerStackBytes;
  if (::sigaltstack(&own, nullptr) != 0) ::munmap(memory, kHandlerStackBytes);
}

std::string executed_file() {
  std::array<char, 4096> path;
  const ssize_t n = ::readlink("/proc/self/exe", path.data(), path.size());
  return {path.data(), static_cast<std::size_t>(n > 0 ? n : 0)};
}

void install_crash_handler(const std::string& error_file) {
  auto* const handler = new CrashHandler;
  handler->pid = ::getpid();
  handler->report = error_file;
  handler->draft = error_file + ".crash";
  handler->program = executed_file();
  // The first walk of a process prepares what later ones find.
  _Unwind_Backtrace(note_crash_frame, &handler->frames);
  handler->frames = {};
  the_handler = handler;
  struct sigaction action {};
  action.sa_sigaction = on_crash;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  ::sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < kCrashSignals.size(); ++i) {
    const int number = kCrashSignals[i].number;
    ::sigaction(number, nullptr, &handler->previous[i]);
    if (handler->previous[i].sa_handler != SIG_IGN) ::sigaction(number, &action, nullptr);
  }
}

}  // namespace

void report_crashes(const base::Environment& environment) {
  const std::string error_file = environment.get("TORCHELASTIC_ERROR_FILE").value_or("");
  if (error_file.empty()) return;
  static std::once_flag once;
  std::call_once(once, [&] { install_crash_handler(error_file); });
  if (the_handler->pid == ::getpid()) return give_handler_stack();
  // A child of fork that is a rank itself.
  the_handler->pid = ::getpid();
  the_handler->report = error_file;
  the_handler->draft = error_file + ".crash";
  give_handler_stack();
}

}  // namespace dtrun::runtime
