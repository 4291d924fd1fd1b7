#include "dtrun/base/process_tree.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "dtrun/base/child_process.h"

namespace dtrun::base {
namespace {

using std::chrono::seconds;

ChildProcess start(const std::string& script, int stdout_fd = 1) {
  ChildSetup setup;
  setup.stdout_fd = stdout_fd;
  return ChildProcess::spawn({"/bin/sh", {"sh", "-c", script}, {"PATH=/usr/bin:/bin"}, {}}, setup);
}

// Starts a script that prints a line once it is as the test wants it.
ChildProcess start_ready(const std::string& script) {
  Pipe pipe = make_pipe();
  ChildProcess child = start(script, pipe.write_end.get());
  char line[64];
  EXPECT_GT(::read(pipe.read_end.get(), line, sizeof line), 0);
  return child;
}

TEST(ProcessTreeTest, OnlyParentsAreAbove) {
  EXPECT_TRUE(is_above(::getppid()));
  EXPECT_FALSE(is_above(::getpid()));
  EXPECT_FALSE(is_above(0));
  const pid_t child = ::fork();
  if (child == 0) {
    ::raise(SIGSTOP);
    ::_exit(0);
  }
  ::waitpid(child, nullptr, WUNTRACED);
  EXPECT_FALSE(is_above(child));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST(ProcessTreeTest, ADetachedGrandchildComesBackAndIsKilled) {
  become_subreaper();
  ChildProcess child = start_ready("setsid sh -c 'setsid sleep 1000 & echo ready; wait' & wait");
  child.signal_group(SIGKILL);
  EXPECT_EQ(child.wait(Deadline::after(seconds(5)))->signal, SIGKILL);
  EXPECT_FALSE(child_pids().empty());
  EXPECT_EQ(kill_descendants({}, Deadline::after(seconds(5))), 0);
  EXPECT_TRUE(child_pids().empty());
}

TEST(ProcessTreeTest, AChildThatHasEndedIsOneUntilItIsReaped) {
  EXPECT_FALSE(has_children());
  ChildProcess child = start_ready("echo up; exec sleep 1000");
  EXPECT_TRUE(has_children());
  ::kill(child.pid(), SIGKILL);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child.pid()), &info, WEXITED | WNOWAIT), 0);
  EXPECT_TRUE(has_children());
  EXPECT_EQ(kill_descendants({}, Deadline::after(seconds(5))), 0);
  child.mark_reaped();
  EXPECT_FALSE(has_children());
}

// Goes over to its parent's group and back, all the time, and answers the signals, which are
// blocked.
[[noreturn]] void change_groups_and_answer(const sigset_t& set, const UniqueFd& answers) {
  const timespec at_once{};
  while (true) {
    ::setpgid(0, 0);
    const int number = ::sigtimedwait(&set, nullptr, &at_once);
    const char answer = static_cast<char>(number);
    if (number > 0 && ::write(answers.get(), &answer, 1) != 1) ::_exit(1);
    ::setpgid(0, ::getpgid(::getppid()));
  }
}

TEST(ProcessTreeTest, AChildThatIsJustChangingItsGroupGetsEverySignal) {
  Pipe answers = make_pipe();
  sigset_t set, before;
  ::sigemptyset(&set);
  for (const int number : {SIGUSR1, SIGUSR2}) ::sigaddset(&set, number);
  ::sigprocmask(SIG_BLOCK, &set, &before);
  const pid_t child = ::fork();
  if (child == 0) change_groups_and_answer(set, answers.write_end);
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  answers.write_end.reset();
  ::setpgid(child, child);
  int lost = 0;
  for (int i = 0; i < 2000 && lost == 0; ++i) {
    const int number = i % 2 == 0 ? SIGUSR1 : SIGUSR2;
    signal_process_group(child, number);
    // One that came twice is answered twice: the last round's number may come first.
    for (char answer = 0; answer != number && lost == 0;) {
      pollfd ready{answers.read_end.get(), POLLIN, 0};
      if (::poll(&ready, 1, 10'000) != 1 || ::read(ready.fd, &answer, 1) != 1) ++lost;
    }
  }
  EXPECT_EQ(lost, 0);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST(ProcessTreeTest, ThoseToBeSparedAreSpared) {
  become_subreaper();
  ChildProcess spared = start("sleep 1000");
  ChildProcess other = start("sleep 1000");
  EXPECT_EQ(kill_descendants({spared.pid()}, Deadline::after(seconds(5))), 0);
  other.mark_reaped();
  EXPECT_EQ(child_pids(), std::vector<pid_t>{spared.pid()});
}

TEST(ProcessTreeTest, AForkStormIsEnded) {
  become_subreaper();
  ChildProcess child = start_ready(
      "for i in 1 2 3 4 5 6 7 8; do setsid sh -c "
      "'while :; do setsid sleep 5 & sleep 0.01; done' & done; echo ready; wait");
  kill_descendants({}, Deadline::after(seconds(20)));
  child.mark_reaped();
  EXPECT_TRUE(child_pids().empty());
}

TEST(ChildReaperTest, TellsOfChildrenAndReapsWhatItAdopts) {
  become_subreaper();
  EventLoop loop;
  std::vector<std::pair<pid_t, ExitStatus>> ends;
  ChildReaper reaper(loop, [&](pid_t pid, ExitStatus status) { ends.emplace_back(pid, status); });
  ChildProcess child = start("(exit 5) & exec sh -c 'sleep 0.05 & exit 3'");
  const Deadline deadline = Deadline::after(seconds(10));
  while ((ends.size() < 2 || !child_pids().empty()) && !deadline.expired()) loop.run_some(deadline);
  const auto found = std::find_if(ends.begin(), ends.end(),
                                  [&](const auto& end) { return end.first == child.pid(); });
  ASSERT_NE(found, ends.end());
  EXPECT_EQ(found->second.code, 3);
  EXPECT_TRUE(child_pids().empty());
  child.mark_reaped();
}

}  // namespace
}  // namespace dtrun::base
