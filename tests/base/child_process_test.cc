#include "dtrun/base/child_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "dtrun/base/cpu_list.h"
#include "dtrun/base/process_tree.h"

namespace dtrun::base {
namespace {

using std::chrono::seconds;

ChildCommand shell(const std::string& script) {
  return {"/bin/sh", {"sh", "-c", script}, {"PATH=/usr/bin:/bin"}, {}};
}

struct Ran {
  std::string out;
  ExitStatus status;
};

// Runs the command with its standard output in a pipe.
Ran run(const ChildCommand& command, ChildSetup setup = {}) {
  Pipe pipe = make_pipe();
  setup.stdout_fd = pipe.write_end.get();
  ChildProcess child = ChildProcess::spawn(command, setup);
  pipe.write_end.reset();
  Ran ran;
  char block[4096];
  for (ssize_t n; (n = ::read(pipe.read_end.get(), block, sizeof block)) > 0;)
    ran.out.append(block, static_cast<std::size_t>(n));
  ran.status = child.wait(Deadline::after(seconds(10))).value_or(ExitStatus{-1, -1, false});
  return ran;
}

int open_descriptors() {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    (void)entry;
    ++count;
  }
  return count;
}

std::string temporary_file(const std::string& text, mode_t mode) {
  std::string path = testing::TempDir() + "child_process_XXXXXX";
  const UniqueFd fd(::mkstemp(path.data()));
  EXPECT_EQ(::write(fd.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  ::fchmod(fd.get(), mode);
  return path;
}

int spawn_errno(const std::string& path) {
  try {
    ChildProcess::spawn({path, {path}, {}, {}}, {});
  } catch (const SpawnError& error) {
    return error.error_number();
  }
  return 0;
}

TEST(ChildProcessTest, OutputArgumentsAndEnvironmentReachTheChildAndItsCodeComesBack) {
  ChildCommand command = shell("echo \"$0 $A $B\"; exit 7");
  command.arguments.push_back("two words");
  command.environment.push_back("A=shared");
  ChildSetup setup;
  setup.environment = {"B=own"};
  const Ran ran = run(command, setup);
  EXPECT_EQ(ran.out, "two words shared own\n");
  EXPECT_EQ(ran.status.code, 7);
  EXPECT_EQ(ran.status.signal, 0);
}

TEST(ChildProcessTest, AChildThatASignalEndsIsToldFromOneThatExits) {
  const Ran killed = run(shell("kill -9 $$"));
  EXPECT_EQ(killed.status.signal, SIGKILL);
  EXPECT_EQ(killed.status.shell_code(), 137);
  EXPECT_EQ(killed.status.describe(), "SIGKILL");
  EXPECT_EQ(run(shell("exit 137")).status.signal, 0);
}

TEST(ChildProcessTest, TheChildHasNoDescriptorButThoseNamed) {
  const UniqueFd leaks[] = {UniqueFd(::open("/dev/null", O_RDONLY)),
                            UniqueFd(::open("/dev/null", O_RDONLY))};
  const UniqueFd named(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  ChildSetup setup;
  setup.inherited_fds = {named.get()};
  const Ran ran =
      run(shell("for i in 0 1 2 3 4 5 6 7 8 9 10 11 12; do [ -e /proc/$$/fd/$i ] && echo $i; done"),
          setup);
  EXPECT_EQ(ran.out, "0\n1\n2\n" + std::to_string(named.get()) + "\n");
}

TEST(ChildProcessTest, TheParentKeepsItsDescriptorsThatTheChildDoesNotTake) {
  Pipe high = make_pipe();
  high.read_end = moved_up(std::move(high.read_end), 200);
  high.write_end = moved_up(std::move(high.write_end), 201);
  EXPECT_GE(high.read_end.get(), 200);
  EXPECT_EQ(run(shell("echo $(ls /proc/self/fd)")).out, "0 1 2 3\n");
  ASSERT_EQ(::write(high.write_end.get(), "x", 1), 1);
  char byte = 0;
  EXPECT_EQ(::read(high.read_end.get(), &byte, 1), 1);
  EXPECT_EQ(::fcntl(high.read_end.get(), F_GETFD), FD_CLOEXEC);
  EXPECT_THROW(moved_up(std::move(high.read_end), 1 << 30), Error);
}

TEST(ChildProcessTest, StandardInputIsEmptyUnlessOneIsGiven) {
  EXPECT_EQ(run(shell("cat; echo end")).out, "end\n");
  Pipe in = make_pipe();
  ASSERT_EQ(::write(in.write_end.get(), "text\n", 5), 5);
  in.write_end.reset();
  ChildSetup setup;
  setup.stdin_fd = in.read_end.get();
  EXPECT_EQ(run(shell("cat"), setup).out, "text\n");
}

TEST(ChildProcessTest, StandardStreamsMayBeExchanged) {
  // The test's own 1 and 2 become pipes for a while; the child gets them crosswise.
  Pipe first = make_pipe(), second = make_pipe();
  const UniqueFd out(::dup(1)), err(::dup(2));
  ::dup2(first.write_end.get(), 1);
  ::dup2(second.write_end.get(), 2);
  ChildSetup setup;
  setup.stdout_fd = 2;
  setup.stderr_fd = 1;
  ChildProcess child = ChildProcess::spawn(shell("echo out; echo err >&2"), setup);
  child.wait(Deadline::after(seconds(10)));
  ::dup2(out.get(), 1);
  ::dup2(err.get(), 2);
  char text[8] = {};
  EXPECT_EQ(::read(first.read_end.get(), text, sizeof text), 4);
  EXPECT_STREQ(text, "err\n");
  EXPECT_EQ(::read(second.read_end.get(), text, sizeof text), 4);
  EXPECT_STREQ(text, "out\n");
}

TEST(ChildProcessTest, SignalsAreAsAFreshProcessHasThem) {
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGHUP, SIG_IGN);
  sigset_t some, before;
  ::sigemptyset(&some);
  ::sigaddset(&some, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &some, &before);
  const Ran ran = run(shell("grep -E 'SigBlk|SigIgn' /proc/self/status"));
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  ::signal(SIGHUP, SIG_DFL);
  EXPECT_EQ(ran.out, "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
}

TEST(ChildProcessTest, AChildLeadsItsOwnSessionOrItsOwnGroup) {
  ChildSetup setup;
  const ChildProcess session = ChildProcess::spawn(shell("sleep 100"), setup);
  EXPECT_EQ(::getsid(session.pid()), session.pid());
  setup.group = ChildSetup::Group::kProcessGroup;
  const ChildProcess group = ChildProcess::spawn(shell("sleep 100"), setup);
  EXPECT_EQ(::getpgid(group.pid()), group.pid());
  EXPECT_EQ(::getsid(group.pid()), ::getsid(0));
}

TEST(ChildProcessTest, TheSoftLimitOfOpenFilesIsTheOneAskedFor) {
  ChildCommand command = shell("ulimit -n");
  command.open_files_soft_limit = 77;
  EXPECT_EQ(run(command).out, "77\n");
}

TEST(ChildProcessTest, AChildRunsOnTheCpusAndNearTheMemoryAskedFor) {
  const int cpu = allowed_cpus().back();
  ChildSetup setup;
  setup.cpus = {cpu};
  setup.memory_node = 0;
  // The kernel shows the policy of a mapping as "prefer:0".
  const Ran ran =
      run(shell("grep Cpus_allowed_list /proc/self/status; grep -c prefer:0 /proc/self/numa_maps"),
          setup);
  EXPECT_TRUE(ran.status.success());
  EXPECT_EQ(ran.out.substr(0, ran.out.find('\n')), "Cpus_allowed_list:\t" + std::to_string(cpu));
  EXPECT_EQ(run(shell("grep -c prefer:0 /proc/self/numa_maps")).out, "0\n");
}

TEST(ChildProcessTest, CpusThatDoNotExistAreAnError) {
  ChildSetup setup;
  setup.cpus = {4000};
  try {
    ChildProcess::spawn(shell("true"), setup);
    FAIL() << "it was started";
  } catch (const SpawnError& error) {
    EXPECT_EQ(error.error_number(), EINVAL);
    EXPECT_NE(std::string(error.what()).find("bind to CPUs"), std::string::npos);
  }
}

TEST(ChildProcessTest, AChildWorksInTheFolderAskedFor) {
  ChildCommand command = shell("pwd");
  command.folder = "/usr";
  EXPECT_EQ(run(command).out, "/usr\n");
  EXPECT_NE(run(shell("pwd")).out, "/usr\n");
  command.folder = "/no/such/folder";
  try {
    ChildProcess::spawn(command, {});
    FAIL() << "it was started";
  } catch (const SpawnError& error) {
    EXPECT_EQ(error.error_number(), ENOENT);
    EXPECT_NE(std::string(error.what()).find("enter its folder"), std::string::npos);
  }
}

TEST(ChildProcessTest, AProgramThatCannotBeExecutedIsTheErrnoOfExec) {
  EXPECT_EQ(spawn_errno("/no/such/program"), ENOENT);
  const std::string plain = temporary_file("text", 0644);
  EXPECT_EQ(spawn_errno(plain), EACCES);
  const std::string nonsense = temporary_file("no header", 0755);
  EXPECT_EQ(spawn_errno(nonsense), ENOEXEC);
  const std::string no_interpreter = temporary_file("#!/no/such/interpreter\n", 0755);
  EXPECT_EQ(spawn_errno(no_interpreter), ENOENT);
  for (const std::string& path : {plain, nonsense, no_interpreter}) ::unlink(path.c_str());
}

int exit_handlers_run = 0;

TEST(ChildProcessTest, AFailedStartLeavesNoZombieNoDescriptorAndRunsNoExitHandler) {
  std::atexit([] { ++exit_handlers_run; });
  const int before = open_descriptors();
  for (int i = 0; i < 20; ++i) EXPECT_EQ(spawn_errno("/no/such/program"), ENOENT);
  EXPECT_EQ(open_descriptors(), before);
  EXPECT_TRUE(child_pids().empty());
  // The child shares this memory until it execs: a handler that it ran would have counted here.
  EXPECT_EQ(exit_handlers_run, 0);
}

TEST(ChildProcessTest, AHundredChildrenLeaveNoDescriptorBehind) {
  const int before = open_descriptors();
  for (int i = 0; i < 100; ++i) {
    ChildProcess child = ChildProcess::spawn({"/bin/true", {"true"}, {}, {}}, {});
    EXPECT_TRUE(child.wait(Deadline::after(seconds(10))));
  }
  EXPECT_EQ(open_descriptors(), before);
  EXPECT_TRUE(child_pids().empty());
}

TEST(ChildProcessTest, WaitGivesUpAtItsDeadlineAndTheDestructorKills) {
  pid_t pid = 0;
  {
    ChildProcess child = ChildProcess::spawn(shell("sleep 100"), {});
    pid = child.pid();
    EXPECT_FALSE(child.wait(Deadline::after(std::chrono::milliseconds(20))));
    EXPECT_TRUE(child.running());
  }
  EXPECT_EQ(::kill(pid, 0), -1);
  EXPECT_EQ(errno, ESRCH);
}

TEST(ChildProcessTest, AMovedChildIsKilledOnce) {
  ChildProcess first = ChildProcess::spawn(shell("sleep 100"), {});
  const pid_t pid = first.pid();
  ChildProcess second = std::move(first);
  EXPECT_FALSE(first.running());  // NOLINT: that is the claim
  EXPECT_EQ(second.pid(), pid);
  second = ChildProcess::spawn(shell("sleep 100"), {});
  EXPECT_EQ(::kill(pid, 0), -1);
}

TEST(ChildProcessTest, AChildDiesWithTheProcessThatStartedIt) {
  Pipe pipe = make_pipe();
  const pid_t parent = ::fork();
  if (parent == 0) {
    // exec: a shell between would leave the sleeper, which is not this test's subject.
    ChildProcess child = ChildProcess::spawn(shell("exec sleep 1000"), {});
    const pid_t pid = child.pid();
    if (::write(pipe.write_end.get(), &pid, sizeof pid) != sizeof pid) ::_exit(1);
    ::kill(::getpid(), SIGKILL);
  }
  pid_t grandchild = 0;
  ASSERT_EQ(::read(pipe.read_end.get(), &grandchild, sizeof grandchild),
            static_cast<ssize_t>(sizeof grandchild));
  const UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, grandchild, 0)));
  if (pidfd) {  // else it is gone already
    pollfd ended{pidfd.get(), POLLIN, 0};
    EXPECT_EQ(::poll(&ended, 1, 5000), 1);
  }
  ::waitpid(parent, nullptr, 0);
}

TEST(ChildProcessTest, AChildThatCannotSeeItsParentIsAnErrorAndNoExitCode) {
  const pid_t parent = ::fork();
  if (parent == 0) {
    if (::unshare(CLONE_NEWPID) != 0) ::_exit(77);
    ::_exit(spawn_errno("/bin/true") == ESRCH ? 0 : 1);
  }
  int status = 0;
  ::waitpid(parent, &status, 0);
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "only root can make a pid namespace";
  EXPECT_EQ(status, 0);
}

TEST(FindProgramTest, SearchesThePathAndTellsMissingFromNotExecutable) {
  EXPECT_EQ(find_program("sh", "/no/such/folder:/bin"), "/bin/sh");
  EXPECT_EQ(find_program("/bin/sh", ""), "/bin/sh");
  const std::string plain = temporary_file("text", 0644);
  const std::string folder = plain.substr(0, plain.rfind('/'));
  const auto error_of = [&](const std::string& name) {
    try {
      find_program(name, "/usr/bin:/bin:" + folder + ":/no/such/folder");
    } catch (const SpawnError& error) {
      return error.error_number();
    }
    return 0;
  };
  EXPECT_EQ(error_of("no-such-program"), ENOENT);
  EXPECT_EQ(error_of(plain + "/x"), ENOENT);
  EXPECT_EQ(error_of(""), ENOENT);
  EXPECT_EQ(error_of(plain.substr(folder.size() + 1)), EACCES);  // found, but no program
  EXPECT_EQ(error_of(plain), EACCES);
  EXPECT_EQ(error_of("/etc"), EISDIR);
  ::unlink(plain.c_str());
}

}  // namespace
}  // namespace dtrun::base
