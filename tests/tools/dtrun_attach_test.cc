// dtrun attach: many readers beside jobs that write, flood, end and are killed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "launcher/launcher_job.h"

namespace dtrun {
namespace {

using launcher::LauncherJob;
using testing::HasSubstr;
using testing_support::Command;
using testing_support::CommandOptions;
using testing_support::CommandResult;
using Words = std::vector<std::string>;

class AttachTest : public testing::Test {
 protected:
  void start(const std::string& script, Words options = {}) {
    lab_.options().input = CommandOptions::Input::kNothing;
    options.insert(options.end(), {"--stdin=none", "sh", "-c", "echo ready; " + script});
    job_ = std::make_unique<Command>(with_dtrun(options), lab_.options());
    ASSERT_TRUE(job_->wait_for_output("ready"));
  }
  static Words with_dtrun(Words words) {
    words.insert(words.begin(), DTRUN_BINARY);
    return words;
  }
  std::unique_ptr<Command> attach() {
    auto reader = std::make_unique<Command>(with_dtrun({"attach", std::to_string(job_->pid())}),
                                            lab_.options());
    return reader;
  }
  /// Ends the ticking.
  void release(const std::string& name) { std::ofstream(lab_.folder() + "/" + name) << "\n"; }

  LauncherJob lab_;
  std::unique_ptr<Command> job_;
};

// A job whose ranks tick until they are told, so that a reader's first line shows that it is there.
const std::string kTick = "while [ ! -e $TMPDIR/stop ]; do echo tick; sleep 0.05; done; ";

TEST_F(AttachTest, ManyReadersSeeWhatTheJobWritesAndEndWithItsCode) {
  start(kTick + "echo to-out; echo to-err >&2; exit 7", {"--nproc_per_node=2", "--tag=always"});
  std::vector<std::unique_ptr<Command>> readers;
  for (int i = 0; i < 5; ++i) readers.push_back(attach());
  for (const auto& reader : readers) ASSERT_TRUE(reader->wait_for_output("tick"));
  release("stop");
  for (const auto& reader : readers) {
    const CommandResult seen = reader->finish();
    EXPECT_EQ(seen.exit_code, 7) << seen.describe();
    EXPECT_THAT(seen.out, HasSubstr("] to-out\n"));
    EXPECT_THAT(seen.err, HasSubstr("] to-err\n"));
    // Whole lines only.
    std::istringstream lines(seen.out);
    for (std::string line; std::getline(lines, line);)
      EXPECT_THAT(line, testing::StartsWith("[0:")) << seen.out;
  }
  EXPECT_EQ(job_->finish().exit_code, 7);
}

TEST_F(AttachTest, CtrlCEndsTheReaderAlone) {
  start(kTick);
  const auto reader = attach();
  ASSERT_TRUE(reader->wait_for_output("tick"));
  reader->signal(SIGINT);
  EXPECT_EQ(reader->finish().signal, SIGINT);
  const auto second = attach();
  ASSERT_TRUE(second->wait_for_output("tick"));
  release("stop");
  EXPECT_EQ(job_->finish().exit_code, 0);
  EXPECT_EQ(second->finish().exit_code, 0);
}

TEST_F(AttachTest, ASlowReaderHoldsUpNothingAndIsToldWhatIsMissing) {
  start(kTick + "head -c 30000000 /dev/zero | tr '\\0' 'x' | fold -w 99; echo last");
  const auto reader = attach();
  ASSERT_TRUE(reader->wait_for_output("tick"));
  reader->signal(SIGSTOP);
  release("stop");
  const CommandResult done = job_->finish();
  EXPECT_EQ(done.exit_code, 0);
  EXPECT_THAT(done.out, HasSubstr("last\n"));
  reader->signal(SIGCONT);
  const CommandResult seen = reader->finish();
  EXPECT_EQ(seen.exit_code, 0) << seen.err;
  EXPECT_LT(seen.out.size(), 5000000U);
  EXPECT_THAT(seen.err, testing::ContainsRegex("[0-9]{7,} bytes are missing here"));
}

TEST_F(AttachTest, AJobThatIsKilledIsNoEnd) {
  start(kTick);
  const auto reader = attach();
  ASSERT_TRUE(reader->wait_for_output("tick"));
  job_->signal(SIGKILL);
  const CommandResult seen = reader->finish();
  EXPECT_EQ(seen.exit_code, 71) << seen.describe();
  EXPECT_THAT(seen.err, HasSubstr("has gone"));
}

TEST_F(AttachTest, MoreThanSixteenReadersAreRefused) {
  start(kTick);
  std::vector<std::unique_ptr<Command>> readers;
  for (int i = 0; i < 16; ++i) {
    readers.push_back(attach());
    ASSERT_TRUE(readers.back()->wait_for_output("tick"));
  }
  const CommandResult refused = attach()->finish();
  EXPECT_NE(refused.exit_code, 0);
  EXPECT_THAT(refused.err, HasSubstr("16 are attached already"));
  release("stop");
  for (const auto& reader : readers) EXPECT_EQ(reader->finish().exit_code, 0);
}

TEST_F(AttachTest, ARestartGoesOnInTheSameReader) {
  start("if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then " + kTick + "exit 1; fi; echo second",
        {"--max_restarts=1"});
  const auto reader = attach();
  ASSERT_TRUE(reader->wait_for_output("tick"));
  release("stop");
  const CommandResult seen = reader->finish();
  EXPECT_EQ(seen.exit_code, 0) << seen.describe();
  EXPECT_THAT(seen.out, HasSubstr("second\n"));
}

}  // namespace
}  // namespace dtrun
