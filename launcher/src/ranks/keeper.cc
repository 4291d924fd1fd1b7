#include "ranks/keeper.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include "dtrun/base/error.h"
#include "dtrun/base/log.h"
#include "dtrun/base/process_tree.h"
#include "options/exit_code.h"
#include "output/notice.h"
#include "ranks/containment.h"
#include "ranks/guard.h"

namespace dtrun::launcher {
namespace {

using base::Deadline;
using base::ExitStatus;
using base::UniqueFd;
using std::chrono::seconds;

// Each waits longer than the one below needs at the most: the keeper for the guard, which waits
// kKillPatience for processes that SIGKILL does not end, and the agent for the keeper.
constexpr auto kGuardPatience = seconds(12);
constexpr auto kKeeperPatience = seconds(24);
constexpr char kKill = 'k';
constexpr char kFarewell = 'f';

sigset_t child_signal() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGCHLD);
  return set;
}

// A signal to all processes of dtrun is meant for the agent; the others end when it does.
void leave_signals_to_the_agent() {
  for (const int number : {SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGPIPE, SIGALRM, SIGTERM,
                           SIGTSTP, SIGTTIN, SIGTTOU})
    ::signal(number, SIG_IGN);
}

std::string text_of(const base::Error& error) {
  return error.summary() + '\n' + error.why() + '\n' + error.remedy();
}

// The first packet to the agent: "+", then the folder of the containment; or "-", then the three
// texts of the Error, for which there is no containment.
void greet(int channel, const std::string& text) {
  (void)!::send(channel, text.data(), text.size(), MSG_NOSIGNAL);
}

// A console that nobody reads must not stop this process.
bool console_has_room() {
  pollfd console{STDERR_FILENO, POLLOUT, 0};
  return ::poll(&console, 1, 0) == 1 && console.revents == POLLOUT;
}

void accept(int channel, const Containment& containment) {
  greet(channel, "+" + containment.folder());
  if (console_has_room())
    base::log::info(base::log::Component::kLauncher, "{}", containment.describe());
}

void refuse(int channel, const std::string& text) {
  greet(channel, "-" + text);
}

// The end of the pipe means that the guard is in its namespace; a text before it says why not.
void enter(const Containment& containment, UniqueFd settling) {
  try {
    containment.enter();
  } catch (const base::Error& error) {
    const std::string text = text_of(error);
    (void)!::write(settling.get(), text.data(), text.size());
    ::_exit(kExitUsage);
  }
}

[[noreturn]] void guard_main(const LaunchPlan& plan, const LogFolder& errors,
                             Containment& containment, GuardLink link, UniqueFd farewell) {
  int code = kExitInternal;
  try {
    code = run_guard(plan, errors, containment, std::move(link));
  } catch (const std::exception& error) {
    print_error(error.what());
  }
  containment.kill();
  const int unkillable = base::kill_descendants({}, Deadline::after(kKillPatience));
  // The keeper may have been killed.
  containment.remove(Deadline::after(kKillPatience));
  errors.remove();
  // Nothing is left but this process.
  if (unkillable == 0) (void)!::write(farewell.get(), &kFarewell, 1);
  ::_exit(code);
}

class Keeper {
 public:
  /// @param settling read until its end, before the agent is greeted; may be closed
  /// @param farewell the guard's last word
  Keeper(pid_t guard, const UniqueFd& channel, UniqueFd settling, UniqueFd farewell,
         const Containment& containment)
      : guard_(guard),
        channel_(channel.get()),
        settling_(std::move(settling)),
        farewell_(std::move(farewell)),
        containment_(containment) {
    const sigset_t child = child_signal();
    child_events_ = UniqueFd(::signalfd(-1, &child, SFD_CLOEXEC));
    if (!child_events_)
      throw base::system_error("wait for the guard", "raise the limit of open files (ulimit -n)");
  }

  // Until the guard has ended; it ends with the agent. Nothing: it has nothing more to do, and the
  // agent waits for its end, so that both processes can end at the same time.
  std::optional<ExitStatus> wait_for_guard() {
    while (true) {
      int status = 0;
      if (::waitpid(guard_, &status, WNOHANG | WUNTRACED) == guard_) {
        if (WIFSTOPPED(status)) {
          resume_guard();
        } else {
          if (settling_) settle();
          return ExitStatus::from_wait_status(status);
        }
      }
      if (patience_.expired()) ::kill(guard_, SIGKILL);
      // After SIGKILL no timeout is left.
      const int timeout = patience_.expired() ? -1 : patience_.poll_timeout_ms();
      pollfd events[] = {{child_events_.get(), POLLIN, 0},
                         {channel_, POLLIN, 0},
                         {settling_ ? settling_.get() : -1, POLLIN, 0},
                         {farewell_ ? farewell_.get() : -1, POLLIN, 0}};
      if (::poll(events, 4, timeout) < 0) continue;
      signalfd_siginfo ignored;
      if (events[0].revents != 0) (void)!::read(child_events_.get(), &ignored, sizeof ignored);
      if (events[1].revents != 0) read_order();
      if (events[2].revents != 0) settle();
      if (events[3].revents != 0) hear_farewell();
      if (said_farewell_ && channel_ < 0) return std::nullopt;
    }
  }

 private:
  // Without it ranks are not watched, their output is not read and nothing can be stopped.
  void resume_guard() {
    ::kill(guard_, SIGCONT);
    // A console that nobody reads must not stop this process.
    pollfd console{STDERR_FILENO, POLLOUT, 0};
    if (::poll(&console, 1, 0) != 1 || console.revents != POLLOUT) return;
    print_line(NoticeLevel::kWarning,
               fmt::format("the guard (pid {}) was stopped, and goes on: stop the ranks themselves "
                           "if they are to pause",
                           guard_));
  }

  void settle() {
    char text[2048];
    const ssize_t n = ::read(settling_.get(), text, sizeof text);
    settling_.reset();
    if (n > 0) return refuse(channel_, std::string(text, text + n));
    accept(channel_, containment_);
  }

  void hear_farewell() {
    char word = 0;
    said_farewell_ = ::read(farewell_.get(), &word, 1) == 1 && word == kFarewell;
    farewell_.reset();
  }

  void read_order() {
    char order = 0;
    if (::recv(channel_, &order, 1, 0) == 1) {
      ::kill(guard_, SIGKILL);
    } else {
      channel_ = -1;
      patience_ = Deadline::after(kGuardPatience);
    }
  }

  pid_t guard_;
  int channel_;  // -1: the agent has closed its end, or has died
  UniqueFd settling_;
  UniqueFd farewell_;
  bool said_farewell_ = false;
  const Containment& containment_;
  UniqueFd child_events_;
  Deadline patience_ = Deadline::never();
};

// The agent needs the error files until it closes its end.
void tell_agent(const UniqueFd& channel, const GuardEnd& end) {
  (void)!::send(channel.get(), &end, sizeof end, MSG_NOSIGNAL);
  for (char order; ::recv(channel.get(), &order, 1, 0) > 0;) {
  }
}

Containment choose_containment(const LaunchPlan& plan, const UniqueFd& channel) {
  try {
    return Containment::choose(plan.options.containment);
  } catch (const base::Error& error) {
    refuse(channel.get(), text_of(error));
    ::_exit(kExitUsage);
  }
}

// The pipe on which the guard reports about its namespace; both ends are closed without one.
struct Settling {
  UniqueFd read_end, write_end;

  explicit Settling(const Containment& containment) {
    int ends[2];
    if (!containment.has_namespace()) return;
    if (::pipe2(ends, O_CLOEXEC) != 0)
      throw base::system_error("make a pipe", "raise the limit of open files (ulimit -n)");
    read_end = UniqueFd(ends[0]);
    write_end = UniqueFd(ends[1]);
  }
};

[[noreturn]] void keeper_main(const LaunchPlan& plan, const LogFolder& errors, UniqueFd channel,
                              GuardLink link) {
  // The keeper must not hold the listening socket: when the agent is dead, nobody would answer
  // there.
  if (plan.options.listener_fd) UniqueFd(*plan.options.listener_fd).reset();
  ::setsid();
  ::prctl(PR_SET_NAME, "dtrun-keeper");
  leave_signals_to_the_agent();
  base::become_subreaper();
  base::continue_when_parent_dies();
  const sigset_t child = child_signal();
  ::sigprocmask(SIG_BLOCK, &child, nullptr);
  Containment containment = choose_containment(plan, channel);
  base::continue_when_parent_dies();  // a user namespace has made the kernel forget it
  Settling settling(containment);
  base::Pipe farewell = base::make_pipe();
  const pid_t guard = ::fork();
  if (guard == 0) {
    ::sigprocmask(SIG_UNBLOCK, &child, nullptr);
    channel.reset();
    settling.read_end.reset();
    farewell.read_end.reset();
    enter(containment, std::move(settling.write_end));
    guard_main(plan, errors, containment, std::move(link), std::move(farewell.write_end));
  }
  link.close();
  settling.write_end.reset();
  farewell.write_end.reset();
  if (guard > 0)
    containment.prove([&] {
      if (!containment.has_namespace()) accept(channel.get(), containment);
    });
  if (plan.debug_terminal) plan.debug_terminal->leave_rank_end();
  GuardEnd end;
  if (guard > 0) {
    Keeper keeper(guard, channel, std::move(settling.read_end), std::move(farewell.read_end),
                  containment);
    const std::optional<ExitStatus> status = keeper.wait_for_guard();
    if (!status) {
      errors.remove();
      ::_exit(0);
    }
    end.status = *status;
  } else {
    print_error(base::system_error("start the guard", "raise the limit of processes").what());
    end.status.code = kExitSystem;
  }
  containment.kill();
  end.unkillable = base::kill_descendants({}, Deadline::after(kKillPatience));
  containment.remove(Deadline::after(kKillPatience));
  tell_agent(channel, end);
  errors.remove();
  ::_exit(0);
}

}  // namespace

GuardHandle GuardHandle::start(const LaunchPlan& plan, const LogFolder& errors) {
  GuardLink::Ends ends = GuardLink::make();
  int channel[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, channel) != 0)
    throw base::system_error("make a socket pair", "raise the limit of open files (ulimit -n)");
  UniqueFd of_agent(channel[0]), of_keeper(channel[1]);
  const pid_t pid = ::fork();
  if (pid < 0) throw base::system_error("start the guard", "raise the limit of processes");
  if (pid == 0) {
    ends.agent.close();
    of_agent.reset();
    try {
      keeper_main(plan, errors, std::move(of_keeper), std::move(ends.guard));
    } catch (const std::exception& error) {
      print_error(error.what());
    }
    base::kill_descendants({}, Deadline::after(kKillPatience));
    ::_exit(kExitSystem);
  }
  GuardHandle handle(pid, std::move(of_agent), std::move(ends.agent));
  // A containment that was asked for by name may fail: wait for its answer.
  if (plan.options.containment != ContainmentWish::kAuto) handle.receive_greeting();
  return handle;
}

GuardHandle::GuardHandle(pid_t keeper, UniqueFd channel, GuardLink link)
    : keeper_(keeper), channel_(std::move(channel)), link_(std::move(link)) {}

bool GuardHandle::kill() {
  ::kill(keeper_, SIGCONT);
  return ::send(channel_.get(), &kKill, 1, MSG_NOSIGNAL) == 1;
}

ExitStatus GuardHandle::reap_keeper() {
  ::kill(keeper_, SIGKILL);
  int status = 0;
  while (::waitpid(keeper_, &status, 0) < 0 && errno == EINTR) {
  }
  keeper_ = 0;
  return ExitStatus::from_wait_status(status);
}

void GuardHandle::receive_greeting() {
  if (greeted_) return;
  greeted_ = true;
  // It comes when the cgroup has been tried. A stopped keeper would never send it.
  ::kill(keeper_, SIGCONT);
  const auto deadline = Deadline::after(kKeeperPatience);
  pollfd ready{channel_.get(), POLLIN, 0};
  while (::poll(&ready, 1, deadline.poll_timeout_ms()) < 0 && errno == EINTR) {
  }
  char text[4096];
  const ssize_t n = ::recv(channel_.get(), text, sizeof text, MSG_DONTWAIT);
  if (n < 1) return;
  if (text[0] == '+') {
    folder_.assign(text + 1, text + n);
    return;
  }
  std::istringstream words(std::string(text + 1, text + n));
  std::string what, why, remedy;
  std::getline(words, what);
  std::getline(words, why);
  std::getline(words, remedy);
  throw base::Error(base::ErrorCode::kUnavailable, what, why, remedy);
}

GuardEnd GuardHandle::wait(const std::vector<pid_t>& not_ours) {
  GuardEnd end;
  receive_greeting();
  ::kill(keeper_, SIGCONT);
  const auto deadline = Deadline::after(kKeeperPatience);
  pollfd ready{channel_.get(), POLLIN, 0};
  while (::poll(&ready, 1, deadline.poll_timeout_ms()) < 0 && errno == EINTR) {
  }
  if (::recv(channel_.get(), &end, sizeof end, MSG_DONTWAIT) == sizeof end) return end;
  end.status = reap_keeper();
  end.unkillable = base::kill_descendants(not_ours, Deadline::after(kKillPatience));
  if (!folder_.empty()) remove_job_cgroup(folder_, Deadline::after(kKillPatience));
  return end;
}

void GuardHandle::end(const std::vector<pid_t>& not_ours) {
  if (keeper_ == 0) return;
  receive_greeting();
  link_.close();
  channel_.reset();
  ::kill(keeper_, SIGCONT);
  base::await_end(keeper_, Deadline::after(kKeeperPatience));
  // A keeper that was killed has left its work to this process; another one has left the guard,
  // which is ending.
  const bool killed = !reap_keeper().success();
  base::kill_descendants(not_ours, Deadline::after(kKillPatience));
  if (!killed) return;
  if (!folder_.empty()) remove_job_cgroup(folder_, Deadline::after(kKillPatience));
}

}  // namespace dtrun::launcher
