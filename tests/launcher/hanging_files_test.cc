// A file system that hangs holds up output, and nothing else.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "launcher/launcher_job.h"
#include "support/own_port.h"

namespace dtrun::launcher {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing_support::Command;
using testing_support::CommandResult;
using Clock = std::chrono::steady_clock;
using std::chrono::seconds;
namespace files = std::filesystem;

class HangingFilesTest : public testing::Test {
 protected:
  void SetUp() override {
#ifdef DTRUN_HANGING_FILES
    files::create_directory(folder_);
    words_fd_ = open_fifo(words_);
    for (int rank = 0; rank < 2; ++rank)
      go_fds_[rank] = open_fifo(job_.folder() + "/" + std::to_string(rank) + ".go");
    job_.options().environment["DTRUN_TEST_HANG"] = folder_;
    job_.options().environment["LD_PRELOAD"] = DTRUN_HANGING_FILES;
#else
    GTEST_SKIP() << "nothing can be preloaded before a sanitizer";
#endif
  }
  // What dtrun waits for comes so much sooner; so do its limits.
  void let_time_fly() {
#ifdef DTRUN_HANGING_FILES
    job_.options().environment["DTRUN_TEST_SPEED"] = std::to_string(kSpeed);
    job_.options().environment["LD_PRELOAD"] = DTRUN_HANGING_FILES ":" DTRUN_FAST_CLOCK;
#endif
  }
  static constexpr int kSpeed = 10;
  static constexpr auto kLimit = seconds(40) / kSpeed;
  void TearDown() override {
    for (const int fd : {words_fd_, go_fds_[0], go_fds_[1]})
      if (fd >= 0) ::close(fd);
  }

  static int open_fifo(const std::string& path) {
    EXPECT_EQ(::mkfifo(path.c_str(), 0600), 0);
    return ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  }
  // What a rank does: say that it is ready, wait for the word to go on, `then`, and be ended.
  std::string rank_script(const std::string& then) const {
    return "trap \"echo ended > " + words_ + "; exit 0\" TERM; echo ready > " + words_ +
           "; read go < " + job_.folder() + "/$RANK.go; " + then + "\nsleep 60 & wait";
  }
  void let_ranks_go() {
    for (const int fd : go_fds_) ASSERT_EQ(::write(fd, "go\n", 3), 3);
  }

  void hang() {
    ASSERT_EQ(::mkfifo(fifo_.c_str(), 0600), 0);
  }
  // Whoever hangs goes on, and nobody hangs any more.
  void go_on() {
    const std::string aside = fifo_ + ".aside";
    files::rename(fifo_, aside);
    const int fd = ::open(aside.c_str(), O_RDWR | O_CLOEXEC);
    ::close(fd);
  }
  // The next word that a rank writes into the fifo.
  std::string next_word() {
    std::string word;
    for (char letter; ::read(words_fd_, &letter, 1) == 1 && letter != '\n';) word += letter;
    return word;
  }
  Command start(std::vector<std::string> options, const std::string& script) {
    options.insert(options.end(), {"--log_dir=" + folder_, "sh", "-c", script});
    return job_.start(options);
  }

  LauncherJob job_;
  const std::string folder_ = job_.folder() + "/logs";
  const std::string fifo_ = folder_ + ".fifo";
  const std::string words_ = folder_ + ".words";
  int words_fd_ = -1;
  int go_fds_[2] = {-1, -1};
};

TEST_F(HangingFilesTest, ADeathIsNoticedAndTheOthersAreEnded) {
  Command job = start({"--nproc_per_node=2", "-t", "1", "--tag=never"},
                      rank_script("echo into the file; read go < " + job_.folder() +
                                  "/$RANK.go; [ $RANK = 0 ] || exit 3"));
  EXPECT_EQ(next_word(), "ready");
  EXPECT_EQ(next_word(), "ready");
  hang();
  let_ranks_go();
  EXPECT_EQ(next_word(), "hangs");
  let_ranks_go();
  EXPECT_EQ(next_word(), "ended");
  go_on();
  const CommandResult result = job.finish();
  EXPECT_EQ(result.exit_code, 3) << result.describe();
  EXPECT_THAT(result.err, HasSubstr("exitcode  : 3"));
  // Nothing is lost where it goes on.
  EXPECT_EQ(result.sorted_lines(), (std::vector<std::string>{"into the file", "into the file"}));
}

TEST_F(HangingFilesTest, ASignalEndsTheJobThoughTheFileNeverGoesOn) {
  let_time_fly();
  Command job =
      start({"-t", "1", "--tag=never", "--shutdown-timeout=1"}, rank_script("echo into the file"));
  EXPECT_EQ(next_word(), "ready");
  hang();
  let_ranks_go();
  EXPECT_EQ(next_word(), "hangs");
  job.signal(SIGTERM);
  EXPECT_EQ(next_word(), "ended");
  const auto told = Clock::now();
  const CommandResult result = job.finish();
  EXPECT_EQ(result.exit_code, 128 + SIGTERM) << result.describe();
  EXPECT_LT(Clock::now() - told, kLimit);
  EXPECT_THAT(result.err, HasSubstr("an unknown part of their output may be missing there"));
}

TEST_F(HangingFilesTest, AStandardOutputThatHangsIsNoMoreThanThat) {
  let_time_fly();
  const std::string script = rank_script("yes &");
  Command job(
      {"sh", "-c",
       "exec " DTRUN_BINARY " --shutdown-timeout=1 sh -c '" + script + "' > " + folder_ + "/out"},
      job_.options());
  EXPECT_EQ(next_word(), "ready");
  hang();
  let_ranks_go();
  EXPECT_EQ(next_word(), "hangs");
  job.signal(SIGTERM);
  EXPECT_EQ(next_word(), "ended");
  job.signal(SIGTERM);
  const auto told = Clock::now();
  const CommandResult result = job.finish();
  EXPECT_EQ(result.exit_code, 128 + SIGTERM) << result.describe();
  EXPECT_LT(Clock::now() - told, kLimit);
  EXPECT_THAT(result.err, HasSubstr("an unknown part of the ranks' output may be lost"));
}

TEST_F(HangingFilesTest, AFolderThatCannotBeMadeInTimeIsAnErrorInTheFirstRound) {
  let_time_fly();
  hang();
  const CommandResult result = start({"-r", "3"}, "true").finish();
  EXPECT_EQ(result.exit_code, 71) << result.describe();
  EXPECT_THAT(result.err, HasSubstr("cannot make the ranks' log files"));
  EXPECT_THAT(result.err, HasSubstr("has not answered within 10 s"));
}

// Its silence window is a second, and error.json gets five.
TEST_F(HangingFilesTest, AnErrorFileThatCannotBeReadHoldsUpNoHeartbeats) {
  const testing_support::OwnPort port;
  const auto start_node = [&](const std::string& option, const std::string& script) {
    return Command({"sh", "-c", "exec \"$@\" 2>&1", "sh", DTRUN_BINARY, "--nnodes=2",
                    "--rdzv_backend=c10d", "--rdzv_endpoint=127.0.0.1:" + port.text(),
                    "--rdzv_conf=keep_alive_interval=0.2,keep_alive_max_attempt=5", option, "sh",
                    "-c", script},
                   job_.options());
  };
  Command head = start_node("--local_addr=127.0.0.1", "exec sleep 60");
  ASSERT_TRUE(head.wait_for_output("hosts the rendezvous"));
  Command member = start_node("--log_dir=" + folder_, "echo ready > " + words_ + "; read go < " +
                                                          job_.folder() + "/$RANK.go; exit 3");
  EXPECT_EQ(next_word(), "ready");
  hang();
  ASSERT_EQ(::write(go_fds_[1], "go\n", 3), 3);
  EXPECT_EQ(next_word(), "hangs");
  const CommandResult failed = member.finish();
  EXPECT_EQ(failed.exit_code, 3) << failed.describe();
  EXPECT_THAT(failed.out, HasSubstr("has not answered within 5 s"));
  const CommandResult result = head.finish();
  EXPECT_EQ(result.exit_code, 3) << result.describe();
  EXPECT_THAT(result.out, Not(HasSubstr("nothing was heard")));
}

}  // namespace
}  // namespace dtrun::launcher
