#include "dtrun/base/tool_process.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/close_range.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

// Boost.Process 1.81 forgets these, where its paths are the standard library's.
#include <algorithm>
#include <boost/asio/detail/throw_error.hpp>
#include <boost/optional.hpp>
// Of v2 only the process and its default launcher, which forks: the one with vfork() rebuilds the
// parent's epoll set from the child at 1.81.
#include <boost/process/v2/process.hpp>

#include "dtrun/base/child_process.h"
#include "dtrun/base/error.h"
#include "dtrun/base/unique_fd.h"
#include "event_loop_impl.h"

namespace dtrun::base {
namespace {

namespace process = boost::process::v2;
using process::error_code;
using process::filesystem::path;

error_code last_error() {
  return {errno, boost::system::system_category()};
}

// What a child does between fork and exec, and the repair of three defects of 1.81: its close_all()
// leaves descriptors open, a failed exec leaves a zombie, and runs this process's exit handlers in
// the child. From 1.88 on the latter two do nothing.
class ToolSetup {
 public:
  ToolSetup(const ToolCommand& command, const ToolStreams& streams)
      : streams_(streams), group_(command.group), folder_(command.folder) {
    for (const std::string& variable : command.environment)
      environment_.push_back(variable.c_str());
    environment_.push_back(nullptr);
  }

  template <typename Launcher>
  error_code on_setup(Launcher& launcher, const path&, const char* const*) {
    launcher.env = environment_.data();
    // Its close_all() does close what is above its own pipe.
    if (streams_.inherited > 2) launcher.fd_whitelist.push_back(streams_.inherited);
    return {};
  }

  // Only what is safe between fork and exec.
  template <typename Launcher>
  error_code on_exec_setup(Launcher&, const path&, const char* const*) {
    if (group_ == ToolCommand::Group::kSession ? ::setsid() < 0 : ::setpgid(0, 0) != 0)
      return last_error();
    if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return last_error();
    if (::getppid() != parent_) ::_exit(125);  // it died before prctl
    if (!put(streams_.in, 0) || !put(streams_.out, 1) || !put(streams_.err, 2)) return last_error();
    if (!folder_.empty() && ::chdir(folder_.c_str()) != 0) return last_error();
    // glibc 2.33 and older know no close_range().
    if (::syscall(SYS_close_range, 3U, ~0U, CLOSE_RANGE_CLOEXEC) != 0) return last_error();
    if (streams_.inherited > 2 && ::fcntl(streams_.inherited, F_SETFD, 0) != 0) return last_error();
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    ::signal(SIGPIPE, SIG_DFL);
    return {};
  }

  // Not by the C library: the thread sanitizer's records of descriptors may have been copied in the
  // middle of a change, and its dup2() has crashed on them.
  static bool put(int from, int to) { return from == to || ::syscall(SYS_dup3, from, to, 0) >= 0; }

  // 1.81 to 1.87 look for the first of each pair, and call the second.
  template <typename Launcher, typename Arguments>
  void on_exec_error(Launcher&, error_code, const path&, Arguments, error_code) {}
  template <typename Launcher, typename Arguments>
  void on_exec_error(Launcher&, const path&, Arguments, error_code) {
    ::_exit(127);
  }
  template <typename Launcher, typename Arguments>
  void on_error(Launcher&, error_code, const path&, Arguments, error_code) {}
  template <typename Launcher, typename Arguments>
  void on_error(Launcher& launcher, const path&, Arguments, error_code) {
    if (launcher.pid > 0) ::waitpid(launcher.pid, nullptr, 0);
  }

 private:
  ToolStreams streams_;
  ToolCommand::Group group_;
  std::string folder_;
  std::vector<const char*> environment_;
  pid_t parent_ = ::getpid();
};

}  // namespace

// async_wait() writes into the process when it completes: its handler keeps it alive.
struct ToolProcess::Impl : std::enable_shared_from_this<Impl> {
  Impl(process::process started, OnEnd on_end)
      : program(std::move(started)), pid(program.id()), callback(std::move(on_end)) {}

  void await_end() {
    program.async_wait([self = shared_from_this()](const error_code& error, int) {
      if (!self->alive) return;
      const int status = error ? 0 : self->program.native_exit_code();
      self->forget();
      // Moved: the callback may destroy the ToolProcess.
      if (const auto on_end = std::move(self->callback))
        on_end(error ? ExitStatus{.code = 125} : ExitStatus::from_wait_status(status));
    });
  }

  // Its number may be given to another child: neither Boost nor we may use it any more.
  void forget() {
    alive = false;
    program.detach();
  }

  process::process program;
  const pid_t pid;
  OnEnd callback;
  bool alive = true;  // not reaped
};

ToolProcess::ToolProcess(EventLoop& loop, const ToolCommand& command, const ToolStreams& streams,
                         OnEnd on_end) {
  ToolStreams opened = streams;
  UniqueFd nothing;
  if (opened.in < 0) {
    nothing = UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!nothing) throw system_error("open /dev/null");
    opened.in = nothing.get();
  }
  error_code error;
  process::process started = process::default_process_launcher()(
      boost::asio::any_io_executor(loop.impl().context.get_executor()), error, path(command.path),
      command.arguments, ToolSetup(command, opened));
  if (error)
    throw SpawnError(system_error(fmt::format("start {}", command.path), error.value()),
                     error.value());
  impl_ = std::make_shared<Impl>(std::move(started), std::move(on_end));
  impl_->await_end();
}

ToolProcess::ToolProcess(EventLoop& loop, pid_t child, OnEnd on_end)
    : impl_(std::make_shared<Impl>(
          process::process(boost::asio::any_io_executor(loop.impl().context.get_executor()), child),
          std::move(on_end))) {
  impl_->await_end();
}

ToolProcess::~ToolProcess() {
  impl_->callback = nullptr;
  if (!impl_->alive) return;
  ::kill(-impl_->pid, SIGKILL);
  ::kill(impl_->pid, SIGKILL);
  while (::waitpid(impl_->pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  impl_->forget();
}

pid_t ToolProcess::pid() const {
  return impl_->alive ? impl_->pid : -1;
}

bool ToolProcess::running() const {
  return impl_->alive;
}

bool ToolProcess::stopped() const {
  siginfo_t info{};
  return impl_->alive &&
         ::waitid(P_PID, static_cast<id_t>(impl_->pid), &info, WSTOPPED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == impl_->pid;
}

void ToolProcess::signal(int signal_number) const {
  if (impl_->alive) ::kill(impl_->pid, signal_number);
}

void ToolProcess::signal_group(int signal_number) const {
  if (impl_->alive) ::kill(-impl_->pid, signal_number);
}

}  // namespace dtrun::base
