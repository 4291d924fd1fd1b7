// The guard, whose agent is the test: what it makes of a lease that runs out.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "dtrun/base/env.h"
#include "dtrun/base/unique_fd.h"
#include "launcher/launcher_job.h"
#include "launcher/living_processes.h"
#include "launcher/plan_here.h"
#include "ranks/keeper.h"

namespace dtrun::launcher {
namespace {

constexpr std::chrono::nanoseconds kLongAgo{1};

class GuardTest : public testing::Test {
 protected:
  GuardTest() {
    EXPECT_EQ(::mkfifo(said_.c_str(), 0600), 0);
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    reader_ = base::UniqueFd(ends[0]);
    console_ = base::UniqueFd(ends[1]);
  }
  ~GuardTest() override {
    if (guard_) guard_->end({});
  }

  // A rank that runs the script, which writes one line to $said, for pids_said().
  void start(const std::string& script) {
    base::Environment environment = base::Environment::current();
    environment.set("said", said_);
    environment.set("TMPDIR", job_.folder());
    // Its standard output is ours when it is planned and forked.
    const base::UniqueFd ours(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3));
    ::dup2(console_.get(), STDOUT_FILENO);
    plan_ = plan_here({"sh", "-c", script}, environment);
    guard_.emplace(GuardHandle::start(*plan_, errors_.emplace(LogFolder::choose(*plan_))));
    ::dup2(ours.get(), STDOUT_FILENO);
    guard_->link().send(MessageKind::kStart, StartOrder{});
  }

  std::vector<pid_t> pids_said() const {
    std::ifstream said(said_);
    return {std::istream_iterator<pid_t>(said), {}};
  }

  void fill_the_console() {
    ::fcntl(console_.get(), F_SETFL, O_NONBLOCK);
    const std::string block(4096, '.');
    while (::write(console_.get(), block.data(), block.size()) > 0) {
    }
    ::fcntl(console_.get(), F_SETFL, 0);
  }

  void empty_the_console() {
    ::fcntl(reader_.get(), F_SETFL, O_NONBLOCK);
    char block[4096];
    while (::read(reader_.get(), block, sizeof block) > 0) {
    }
  }

  static void await_end(pid_t pid) {
    const base::UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    pollfd end{process.get(), POLLIN, 0};
    if (process) {
      EXPECT_EQ(::poll(&end, 1, 60'000), 1) << "process " << pid << " lives";
    }
  }

  // What the guard has seen by now it has acted on: it answers after what was ready before.
  void let_the_guard_act() {
    for (int i = 0; i < 3; ++i) {
      guard_->link().send(MessageKind::kPause, PauseOrder{});
      guard_->link().send(MessageKind::kResume, PauseOrder{});
      while (next_message().kind != MessageKind::kPaused) {
      }
    }
  }

  void end_the_lease() { guard_->link().send(MessageKind::kLease, Lease{kLongAgo}); }

  GuardMessage next_message() {
    pollfd message{guard_->link().fd(), POLLIN, 0};
    std::optional<GuardMessage> received;
    if (::poll(&message, 1, 60'000) == 1) received = guard_->link().receive();
    if (!received) throw std::runtime_error("the guard is silent");
    fenced_ |= received->kind == MessageKind::kFenced;
    if (received->kind == MessageKind::kNote) notes_ += received->text_after<GuardNote>() + '\n';
    return std::move(*received);
  }

  GroupEnd end_of_group() {
    while (true)
      if (const GuardMessage message = next_message(); message.kind == MessageKind::kGroupEnd)
        return message.as<GroupEnd>();
  }

  LauncherJob job_;
  const std::string said_ = job_.folder() + "/said";
  base::UniqueFd reader_, console_;
  std::optional<LaunchPlan> plan_;
  std::optional<LogFolder> errors_;
  std::optional<GuardHandle> guard_;
  bool fenced_ = false;
  std::string notes_;
};

TEST_F(GuardTest, KillsRanksThatLiveWhenTheLeaseRunsOutAndSaysSo) {
  start("echo $$ > $said; exec sleep 1000");
  const pid_t rank = pids_said().at(0);
  end_the_lease();
  EXPECT_EQ(end_of_group().success, 0);
  EXPECT_TRUE(fenced_);
  EXPECT_EQ(::kill(rank, 0), -1);
}

TEST_F(GuardTest, SaysOfRanksThatWereBeingStoppedThatTheirGraceIsCutShort) {
  start("trap '' TERM; echo $$ > $said; exec sleep 1000");
  pids_said();
  guard_->link().send(MessageKind::kStop, StopOrder{.grace = std::chrono::hours(1)});
  let_the_guard_act();
  end_the_lease();
  EXPECT_EQ(end_of_group().success, 0);
  EXPECT_FALSE(fenced_);
  EXPECT_NE(notes_.find("killed before their grace is over"), std::string::npos) << notes_;
}

TEST_F(GuardTest, LeavesRanksThatHaveEndedWellTheirEndWhileTheirOutputWaits) {
  fill_the_console();
  start("echo $$ > $said; echo a line that nobody reads yet");
  await_end(pids_said().at(0));
  let_the_guard_act();
  end_the_lease();
  let_the_guard_act();
  empty_the_console();
  EXPECT_EQ(end_of_group().success, 1);
  EXPECT_FALSE(fenced_);
}

TEST_F(GuardTest, KillsWhatRanksThatHaveEndedWellHaveLeftBehindAndLeavesThemTheirEnd) {
  start("trap '' TERM; setsid sleep 1000 & echo $$ $! > $said");
  const std::vector<pid_t> said = pids_said();
  await_end(said.at(0));
  let_the_guard_act();
  end_the_lease();
  EXPECT_EQ(end_of_group().success, 1);
  EXPECT_FALSE(fenced_);
  EXPECT_EQ(::kill(said.at(1), 0), -1);
}

}  // namespace
}  // namespace dtrun::launcher
