// ToolProcess, and the defects of Boost.Process 1.81 that it repairs.
#include "dtrun/base/tool_process.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <optional>

#include "dtrun/base/child_process.h"
#include "dtrun/base/process_tree.h"
#include "dtrun/base/unique_fd.h"

namespace dtrun::base {
namespace {

using testing::HasSubstr;

class ToolProcessTest : public testing::Test {
 protected:
  /// Other tests of this process become subreapers: what a tool leaves is not to come to this one.
  void SetUp() override { ASSERT_EQ(::prctl(PR_SET_CHILD_SUBREAPER, 0), 0); }

  ToolCommand shell(const std::string& script) const {
    return {"/bin/sh", {"-c", script}, {"PATH=/usr/bin:/bin", "GIVEN=value"}};
  }

  void start(const ToolCommand& command, ToolStreams streams = {}) {
    tool_ = std::make_unique<ToolProcess>(loop_, command, streams, [this](ExitStatus status) {
      ended_ = status;
      loop_.stop();
    });
  }

  ExitStatus end_of(const std::string& script) {
    start(shell(script));
    loop_.run();
    return *ended_;
  }

  // What it writes on standard output until its end.
  std::string output_of(const std::string& script, ToolStreams streams = {}) {
    Pipe out = make_pipe();
    streams.out = out.write_end.get();
    start(shell(script), streams);
    out.write_end.reset();
    loop_.run();
    std::string text(4096, '\0');
    const ssize_t size = ::read(out.read_end.get(), text.data(), text.size());
    text.resize(size < 0 ? 0 : static_cast<std::size_t>(size));
    return text;
  }

  EventLoop loop_;
  std::unique_ptr<ToolProcess> tool_;
  std::optional<ExitStatus> ended_;
};

TEST_F(ToolProcessTest, ItsEndIsReportedAsByWait) {
  EXPECT_EQ(end_of("exit 3").code, 3);
  EXPECT_FALSE(tool_->running());
  EXPECT_EQ(end_of("kill -TERM $$").signal, SIGTERM);
  // An exit code that looks like a signal's number is none.
  EXPECT_EQ(end_of("exit 15").signal, 0);
}

TEST_F(ToolProcessTest, ItHasTheEnvironmentThatIsGivenAndASessionOfItsOwn) {
  EXPECT_EQ(output_of("echo $GIVEN:$HOME"), "value:\n");
  const std::string session = output_of("cut -d' ' -f6 /proc/$$/stat; echo $$");
  EXPECT_EQ(session.substr(0, session.find('\n')),
            session.substr(session.find('\n') + 1, session.find('\n')));
}

TEST_F(ToolProcessTest, ItInheritsNoDescriptorButTheNamedOne) {
  // As somebody else's library may leave them, open across exec: below and above those of the
  // start.
  const UniqueFd low(::open("/dev/null", O_RDONLY)), high(::fcntl(low.get(), F_DUPFD, 60));
  ASSERT_EQ(::fcntl(low.get(), F_GETFD), 0);
  const UniqueFd given(::fcntl(low.get(), F_DUPFD_CLOEXEC, 50));
  // The shell opens the folder itself, as 3.
  const std::string script = "for fd in /proc/$$/fd/*; do echo ${fd##*/}; done";
  EXPECT_EQ(output_of(script), "0\n1\n2\n3\n");
  EXPECT_EQ(output_of(script, {.inherited = given.get()}), "0\n1\n2\n3\n50\n");
  EXPECT_EQ(output_of(script, {.inherited = low.get()}),
            low.get() == 3 ? "0\n1\n2\n3\n4\n" : "0\n1\n2\n3\n" + std::to_string(low.get()) + "\n");
}

int exit_pipe = -1;

TEST_F(ToolProcessTest, AProgramThatIsNotThereLeavesNoZombieAndRunsNoExitHandler) {
  Pipe pipe = make_pipe();
  exit_pipe = pipe.write_end.get();
  ::atexit([] {
    if (exit_pipe >= 0 && ::write(exit_pipe, "x", 1) != 1) ::abort();
  });
  try {
    start({"/no/such/program", {}, {}});
    FAIL() << "it was started";
  } catch (const SpawnError& error) {
    EXPECT_EQ(error.error_number(), ENOENT);
    EXPECT_THAT(error.what(), HasSubstr("/no/such/program"));
  }
  EXPECT_FALSE(has_children());
  ASSERT_EQ(::fcntl(pipe.read_end.get(), F_SETFL, O_NONBLOCK), 0);
  char byte = 0;
  EXPECT_EQ(::read(pipe.read_end.get(), &byte, 1), -1);
  exit_pipe = -1;
}

TEST_F(ToolProcessTest, DestroyedItIsKilledAndReapedWithItsGroup) {
  Pipe out = make_pipe();
  start(shell("sleep 1000 & echo up; wait"), {.out = out.write_end.get()});
  out.write_end.reset();
  char text[3];
  ASSERT_EQ(::read(out.read_end.get(), text, sizeof text), 3);
  tool_.reset();
  EXPECT_FALSE(has_children());
  // Closed: the sleep, which has it too, is dead.
  EXPECT_EQ(::read(out.read_end.get(), text, sizeof text), 0);
  loop_.run_some(Deadline::after({}));
  EXPECT_FALSE(ended_);
}

TEST_F(ToolProcessTest, AChildThatTheCallerHasForkedIsWaitedForToo) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(7);
  ASSERT_GT(child, 0);
  ToolProcess adopted(loop_, child, [this](ExitStatus status) {
    ended_ = status;
    loop_.stop();
  });
  loop_.run();
  EXPECT_EQ(ended_->shell_code(), 7);
  EXPECT_FALSE(adopted.running());
  EXPECT_EQ(::waitpid(child, nullptr, WNOHANG), -1);
}

TEST_F(ToolProcessTest, OtherChildrenAreLeftToTheirOwner) {
  const pid_t other = ::fork();
  if (other == 0) ::_exit(7);
  EXPECT_EQ(end_of("exit 0").code, 0);
  int status = 0;
  EXPECT_EQ(::waitpid(other, &status, 0), other);
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

TEST_F(ToolProcessTest, InAGroupOfTheSessionItCanBeStopped) {
  Pipe out = make_pipe();
  ToolCommand command = shell("kill -TSTP $$; echo on");
  command.group = ToolCommand::Group::kProcessGroup;
  start(command, {.out = out.write_end.get()});
  const pid_t pid = child_pids().at(0);
  siginfo_t stopped{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(pid), &stopped, WSTOPPED | WNOWAIT), 0);
  EXPECT_EQ(stopped.si_code, CLD_STOPPED);
  EXPECT_TRUE(tool_->stopped());
  tool_->signal(SIGCONT);
  loop_.run();
  EXPECT_EQ(ended_->code, 0);
}

}  // namespace
}  // namespace dtrun::base
