// Elastic jobs when time misbehaves: a wall clock that steps, a host that stands still.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <ctime>
#include <memory>

#include "dtrun/base/socket.h"
#include "launcher/elastic_node.h"
#include "launcher/launcher_job.h"
#include "launcher/living_processes.h"
#include "support/own_port.h"

namespace dtrun::launcher {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing_support::Command;
using testing_support::CommandResult;

class TimeTest : public testing::Test {
 protected:
  TimeTest() { job_.options().environment["DTRUN_TEST_TOKEN"] = token_; }
  ~TimeTest() override {
    EXPECT_TRUE(all_gone_within(token_, seconds(10))) << describe_processes_with(token_);
    EXPECT_THAT(job_.left_behind(), IsEmpty());
  }

  // A node of a job of one or two; who is silent for 1.2 s is lost.
  std::unique_ptr<Command> start() {
    const std::vector<std::string> command = {
        "sh",
        "-c",
        "exec \"$@\" 2>&1",
        "sh",
        DTRUN_BINARY,
        "-v",
        "--nnodes=1:2",
        "--rdzv_backend=c10d",
        "--rdzv_endpoint=127.0.0.1:" + port_.text(),
        "--rdzv_conf=last_call_timeout=20,keep_alive_interval=0.3,keep_alive_max_attempt=4",
        kWorker};
    return std::make_unique<Command>(command, job_.options());
  }

  // Both in the first round; returns where the host's rank is.
  Place start_both() {
    host_ = start();
    EXPECT_TRUE(host_->wait_for_output("hosts the rendezvous"));
    member_ = start();
    EXPECT_EQ(next_place(*member_).world, 2);
    return next_place(*host_);
  }

  // The host's next word that a spare is lost.
  bool misses_somebody() {
    while (const auto line = host_->next_line("[dtrun +"))
      if (line->find("has left while it waited") != std::string::npos) return true;
    return false;
  }

  // What date(1) takes for the time, which is as far off as it is made to be.
  std::int64_t seconds_off() {
    const std::string date = testing_support::run_command({"date", "+%s"}, job_.options()).out;
    return std::stoll(date) - static_cast<std::int64_t>(std::time(nullptr));
  }

  // The round that began goes on to its end.
  void expect_undisturbed(const Place& place) {
    finish_round(place);
    for (Command* node : {host_.get(), member_.get()}) {
      const CommandResult result = node->finish();
      EXPECT_EQ(result.exit_code, 0) << result.describe();
      EXPECT_THAT(result.out, Not(HasSubstr("is being stopped"))) << result.describe();
    }
  }

  testing_support::OwnPort port_;
  std::string token_ = unique_token();
  LauncherJob job_;
  std::unique_ptr<Command> host_;
  std::unique_ptr<Command> member_;
};

TEST_F(TimeTest, AHostThatWasStoppedForLongEvictsNobody) {
  const Place place = start_both();
  host_->signal(SIGSTOP);
  // Told after two windows of silence.
  EXPECT_TRUE(member_->wait_for_output("nothing was heard of node 0"));
  host_->signal(SIGCONT);
  EXPECT_TRUE(member_->wait_for_output("is heard again"));
  expect_undisturbed(place);
}

TEST_F(TimeTest, AWallClockThatStepsByAnHourMattersToNobody) {
#ifndef DTRUN_STEPPED_CLOCK
  GTEST_SKIP() << "nothing can be preloaded before a sanitizer";
#else
  // Beside the folder that must be empty in the end.
  std::string name = testing::TempDir() + "clockXXXXXX";
  const base::UniqueFd file(::mkstemp(name.data()));
  ASSERT_EQ(::ftruncate(file.get(), sizeof(std::int64_t)), 0);
  void* const page =
      ::mmap(nullptr, sizeof(std::int64_t), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  ASSERT_NE(page, MAP_FAILED);
  auto* const step = static_cast<std::atomic<std::int64_t>*>(page);
  job_.options().environment["DTRUN_TEST_CLOCK"] = name;
  job_.options().environment["LD_PRELOAD"] = DTRUN_STEPPED_CLOCK;
  const Place place = start_both();
  for (const std::int64_t seconds_ahead : {3600, -3600}) {
    step->store(seconds_ahead);
    EXPECT_NEAR(static_cast<double>(seconds_off()), static_cast<double>(seconds_ahead), 30);
    // Whole windows pass: a spare falls silent and is missed after one, and only that one.
    const auto spare = start();
    EXPECT_TRUE(spare->wait_for_output("this node is a spare"));
    spare->signal(SIGSTOP);
    EXPECT_TRUE(misses_somebody());
    spare->signal(SIGKILL);
    spare->finish();
  }
  expect_undisturbed(place);
  ::munmap(page, sizeof(std::int64_t));
  ::unlink(name.c_str());
#endif
}

}  // namespace
}  // namespace dtrun::launcher
