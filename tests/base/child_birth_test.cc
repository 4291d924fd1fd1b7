// ChildBirth: several children on their way at once. What each of them is given: see
// child_process_test.
#include "dtrun/base/child_birth.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <vector>

#include "dtrun/base/process_tree.h"

namespace dtrun::base {
namespace {

using std::chrono::seconds;

ChildCommand program(const std::string& path, const std::string& argument = "") {
  return {path, {path, argument}, {}, {}};
}

int code_of(ChildProcess child) {
  const auto status = child.wait(Deadline::after(seconds(60)));
  return status && status->signal == 0 ? status->code : -1;
}

int error_of(ChildBirth& birth) {
  try {
    birth.finish();
  } catch (const SpawnError& error) {
    return error.error_number();
  }
  return 0;
}

TEST(ChildBirthTest, ManyAreOnTheirWayAtOnceAndEachHasItsOwnOutput) {
  constexpr int kChildren = 40;
  std::vector<Pipe> pipes;
  std::vector<ChildBirth> births;
  for (int i = 0; i < kChildren; ++i) {
    pipes.push_back(make_pipe());
    ChildSetup setup;
    setup.stdout_fd = pipes.back().write_end.get();
    setup.environment = {"NUMBER=" + std::to_string(i)};
    births.emplace_back(ChildCommand{"/bin/sh", {"sh", "-c", "echo $NUMBER; exit $NUMBER"}, {}, {}},
                        setup);
  }
  for (int i = 0; i < kChildren; ++i) {
    ChildProcess child = births[static_cast<std::size_t>(i)].finish();
    Pipe& pipe = pipes[static_cast<std::size_t>(i)];
    pipe.write_end.reset();
    char text[16] = {};
    ASSERT_GT(::read(pipe.read_end.get(), text, sizeof text - 1), 0);
    EXPECT_EQ(std::string(text), std::to_string(i) + "\n");
    EXPECT_EQ(code_of(std::move(child)), i);
  }
}

TEST(ChildBirthTest, AFailureIsThatOfOneAndLeavesTheOthersAlone) {
  ChildBirth first(program("/bin/true"), {});
  ChildBirth missing(program("/no/such/program"), {});
  ChildBirth folder(program("/tmp"), {});
  ChildBirth last(program("/bin/false"), {});
  EXPECT_EQ(error_of(missing), ENOENT);
  EXPECT_EQ(error_of(folder), EACCES);
  EXPECT_EQ(code_of(last.finish()), 1);
  EXPECT_EQ(code_of(first.finish()), 0);
  EXPECT_FALSE(has_children());
}

// The child lives in this process's memory at the same time, errno's included.
TEST(ChildBirthTest, AFailingChildLeavesTheParentsErrnoAlone) {
  for (int i = 0; i < 300; ++i) {
    errno = ERANGE;
    ChildBirth birth(program("/no/such/program"), {});
    errno = ERANGE;
    int changed = 0;
    for (int look = 0; look < 2000; ++look) changed += errno != ERANGE ? 1 : 0;
    EXPECT_EQ(changed, 0);
    EXPECT_EQ(error_of(birth), ENOENT);
  }
}

// As a guard does with the pipes of its ranks, while children take what is theirs.
TEST(ChildBirthTest, DescriptorsThatComeAndGoMeanwhileReachNoChild) {
  for (int i = 0; i < 100; ++i) {
    Pipe pipe = make_pipe();
    ChildSetup setup;
    setup.stdout_fd = pipe.write_end.get();
    ChildBirth birth({"/bin/sh", {"sh", "-c", "echo /proc/$$/fd/*"}, {"PATH=/usr/bin:/bin"}, {}},
                     setup);
    for (int k = 0; k < 20; ++k) {
      const Pipe other = make_pipe();
      const UniqueFd inheritable(::open("/dev/null", O_RDONLY));  // as a library might open it
    }
    ChildProcess child = birth.finish();
    pipe.write_end.reset();
    char text[4096] = {};
    ASSERT_GT(::read(pipe.read_end.get(), text, sizeof text - 1), 0);
    const std::string folder = "/proc/" + std::to_string(child.pid()) + "/fd/";
    std::string expected;
    // The last one is the folder that the shell itself reads.
    for (const char* fd : {"0 ", "1 ", "2 ", "3\n"}) expected += folder + fd;
    EXPECT_EQ(std::string(text), expected);
    EXPECT_EQ(code_of(std::move(child)), 0);
  }
}

TEST(ChildBirthTest, OneThatIsNotFinishedIsKilledAndReaped) {
  {
    const ChildBirth sleeper(program("/bin/sleep", "1000"), {});
    const ChildBirth missing(program("/no/such/program"), {});
    ChildBirth moved(program("/bin/sleep", "1000"), {});
    const ChildBirth there = std::move(moved);
  }
  EXPECT_FALSE(has_children());
}

// As by cgroup.kill, which finds it wherever it is: that is not a failed exec.
TEST(ChildBirthTest, OneThatIsKilledOnItsWayIsAChildThatASignalHasEnded) {
  for (int i = 0; i < 200; ++i) {
    ChildBirth birth(program("/bin/sleep", "1000"), {});
    for (const pid_t pid : child_pids()) ::kill(pid, SIGKILL);
    ChildProcess child = birth.finish();
    const auto status = child.wait(Deadline::after(seconds(60)));
    ASSERT_TRUE(status);
    EXPECT_EQ(status->signal, SIGKILL);
  }
}

bool runs_our_image(pid_t pid) {
  return std::filesystem::read_symlink("/proc/" + std::to_string(pid) + "/exe") ==
         std::filesystem::read_symlink("/proc/self/exe");
}

// Its parent waits for it, and could not continue it any more.
TEST(ChildBirthTest, OneThatIsStoppedOnItsWayGoesOn) {
  for (int i = 0; i < 1000; ++i) {
    ChildBirth birth(program("/bin/sleep", "1000"), {});
    const pid_t pid = child_pids().at(0);
    ::kill(pid, SIGSTOP);
    siginfo_t stopped{};
    ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(pid), &stopped, WSTOPPED | WEXITED | WNOWAIT), 0);
    const bool on_its_way = runs_our_image(pid);
    ChildProcess child = birth.finish();
    if (!on_its_way) continue;  // it was quicker than the signal
    EXPECT_FALSE(runs_our_image(pid));
    ::kill(pid, SIGTERM);
    const auto status = child.wait(Deadline::after(seconds(60)));
    ASSERT_TRUE(status);
    EXPECT_EQ(status->signal, SIGTERM);
    return;
  }
  FAIL() << "none of a thousand was stopped before its exec";
}

}  // namespace
}  // namespace dtrun::base
