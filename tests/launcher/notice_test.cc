// What dtrun itself says: as text or JSON, and never at the cost of its work.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "dtrun/base/json.h"
#include "dtrun/base/socket.h"
#include "launcher/launcher_job.h"
#include "launcher/living_processes.h"
#include "output/notice.h"
#include "output/notice_writer.h"

namespace dtrun::launcher {
namespace {

using testing::HasSubstr;
using testing_support::CommandResult;

std::string read_some(const base::UniqueFd& fd) {
  char block[1 << 16];
  const ssize_t n = ::read(fd.get(), block, sizeof block);
  return n > 0 ? std::string(block, static_cast<std::size_t>(n)) : "";
}

// So that nothing more goes in.
std::size_t fill(const base::UniqueFd& fd) {
  std::size_t bytes = 0;
  base::set_nonblocking(fd.get());
  for (ssize_t n; (n = ::write(fd.get(), "................", 16)) > 0;)
    bytes += static_cast<std::size_t>(n);
  ::fcntl(fd.get(), F_SETFL, ::fcntl(fd.get(), F_GETFL) & ~O_NONBLOCK);
  return bytes;
}

TEST(NoticeWriterTest, AReaderThatHasStoppedHoldsNobodyUpAndGetsAllInTheEnd) {
  const base::Pipe pipe = base::make_pipe();
  const std::size_t before = fill(pipe.write_end);
  NoticeWriter writer(pipe.write_end.get());
  std::string said;
  for (int i = 0; i < 1000; ++i) {
    const std::string line = "line " + std::to_string(i) + "\n";
    writer.put(line);
    said += line;
  }
  EXPECT_FALSE(writer.flush(base::Deadline::after({})));
  std::string seen;
  while (seen.size() < before + said.size()) seen += read_some(pipe.read_end);
  EXPECT_TRUE(writer.flush(base::Deadline::never()));
  EXPECT_EQ(seen.substr(before), said);
}

TEST(NoticeWriterTest, WhatWaitsIsBoundedAndWhatIsDroppedIsCounted) {
  const base::Pipe pipe = base::make_pipe();
  fill(pipe.write_end);
  NoticeWriter writer(pipe.write_end.get());
  for (int i = 0; i < 40; ++i) writer.put(std::string(100'000, 'x'));
  std::string seen;
  while (seen.find("bytes of messages were dropped here\n") == std::string::npos)
    seen += read_some(pipe.read_end);
  EXPECT_LT(seen.size(), 3u << 20);
}

TEST(NoticeTest, ControlCharactersOfOthersAreMadeVisible) {
  const LaunchPlan plan;
  testing::internal::CaptureStderr();
  print_note(plan, "a host named \x1b[2J");
  print_line(NoticeLevel::kInfo, "\x07");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "dtrun: a host named \\x1b[2J\ndtrun: \\x07\n");
}

std::vector<boost::json::object> objects_of(const std::string& text) {
  std::vector<boost::json::object> objects;
  std::stringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    objects.push_back(base::parse_json(line, "standard error").as_object());
  return objects;
}

TEST(NoticeTest, UnderJsonEverythingOnStandardErrorIsAnObject) {
  const CommandResult result = run_dtrun({"--nproc_per_node=2", "--log-format=json", "-v",
                                          "--max-restarts=1", "--timing", "--report-bindings", "sh",
                                          "-c", "echo why >&2; [ $RANK = 0 ] || exit 3; sleep 60"});
  EXPECT_EQ(result.exit_code, 3);
  int of_dtrun = 0, tables = 0;
  for (const boost::json::object& object : objects_of(result.err)) {
    if (!object.contains("level")) continue;  // a rank's, or --timing
    ++of_dtrun;
    EXPECT_THAT(std::string(object.at("time").as_string()), testing::EndsWith("Z"));
    EXPECT_TRUE(object.at("node").is_null() || object.at("node").as_int64() == 0);
    EXPECT_FALSE(object.at("host").as_string().empty());
    EXPECT_FALSE(object.at("message").as_string().empty());
    if (!object.contains("root_cause")) continue;
    ++tables;
    EXPECT_EQ(object.at("level").as_string(), "error");
    const boost::json::object& root = object.at("root_cause").as_object();
    EXPECT_EQ(root.at("rank").as_int64(), 1);
    EXPECT_EQ(root.at("exitcode").as_int64(), 3);
    EXPECT_TRUE(root.at("signal").is_null());
    EXPECT_EQ(root.at("stderr_tail").as_string(), "why\n");
    const boost::json::array& failures = object.at("failures").as_array();
    ASSERT_EQ(failures.size(), 2u);
    EXPECT_TRUE(failures[1].as_object().at("stopped").as_bool());
    EXPECT_EQ(failures[1].as_object().at("signal").as_string(), "SIGTERM");
  }
  EXPECT_GT(of_dtrun, 3) << result.err;
  EXPECT_EQ(tables, 1) << result.err;
}

// Where --log-format is said, and what is wrong beside it.
struct WrongOption {
  std::vector<std::string> arguments;
  const char* variable = nullptr;  // is "json"
  const char* file = nullptr;
  int exit_code = 64;
  const char* word;
};

TEST(NoticeTest, UnderJsonAnErrorAboutOptionsIsAnObject) {
  const WrongOption wrong[] = {
      {.arguments = {"--log-format=json", "--nporc=4", "true"}, .word = "--nporc"},
      {.arguments = {"--nporc", "4", "--log-format", "json", "true"}, .word = "--nporc"},
      {.arguments = {"-q", "--nproc-per-node=0", "--log-f=json", "true"}, .word = "-q"},
      {.arguments = {"--nproc-per-node", "--log-format=json", "true"}, .word = "needs a value"},
      {.arguments = {"--log-format=json", "--nnodes=0", "true"}, .word = "--nnodes=0"},
      {.arguments = {"--log-format=json", "--completion=zsh"}, .word = "must be bash"},
      {.arguments = {"--log-format=json", "--adopt", "true"}, .word = "no engine"},
      {.arguments = {"--log-format=json"}, .word = "program"},
      {.arguments = {"--nporc=4", "true"}, .variable = "PET_LOG_FORMAT", .word = "--nporc"},
      {.arguments = {"--nporc=4", "true"}, .variable = "DTRUN_LOG_FORMAT", .word = "--nporc"},
      {.arguments = {"--config=FILE", "--nporc=4", "true"},
       .file = "log_format = json\n",
       .word = "--nporc"},
      {.arguments = {"--config=FILE", "true"},
       .file = "nporc = 4\nlog_format = json\n",
       .exit_code = 78,
       .word = "FILE:1 names an unknown option"},
      {.arguments = {"--log-format=json", "--config=FILE", "true"},
       .exit_code = 78,
       .word = "cannot open --config=FILE"},
  };
  for (const WrongOption& one : wrong) {
    LauncherJob job;
    job.options().folder = job.folder();
    if (one.variable != nullptr) job.options().environment[one.variable] = "json";
    if (one.file != nullptr) std::ofstream(job.folder() + "/FILE") << one.file;
    const CommandResult result = job.run(one.arguments);
    EXPECT_EQ(result.exit_code, one.exit_code) << result.describe();
    const std::vector<boost::json::object> objects = objects_of(result.err);
    ASSERT_EQ(objects.size(), 1u) << result.err;
    EXPECT_EQ(objects[0].at("level").as_string(), "error");
    EXPECT_THAT(std::string(objects[0].at("message").as_string()), HasSubstr(one.word));
  }
}

TEST(NoticeTest, AnErrorAboutOptionsIsTextWhereNobodyHasWishedForJson) {
  for (const char* program_word : {"--log-format=json", "--"}) {
    const CommandResult result = run_dtrun({"--nporc=4", "sh", program_word});
    EXPECT_EQ(result.exit_code, 64);
    EXPECT_THAT(result.err, testing::StartsWith("dtrun: error: "));
  }
  const CommandResult wrong = run_dtrun({"--log-format=xml", "true"});
  EXPECT_THAT(wrong.err, testing::StartsWith("dtrun: error: --log-format=xml must be"));
}

TEST(NoticeTest, ATerminalHasTheTableAlsoAmongObjects) {
  const CommandResult result = testing_support::run_command(
      {"script", "-qec",
       std::string(DTRUN_BINARY) + " --status=never --log-format=json sh -c 'exit 3'",
       "/dev/null"});
  EXPECT_THAT(result.out, HasSubstr("Root Cause (first observed failure):\r\n"));
}

TEST(NoticeTest, AStandardErrorThatNobodyReadsHoldsNoJobUp) {
  const base::Pipe pipe = base::make_pipe();
  LauncherJob job;
  const std::string fifo = job.folder() + "/fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const std::string script =
      "trap 'echo ended > " + fifo + "; exit 0' TERM; echo up > " + fifo + "\nsleep 60 & wait";
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(pipe.write_end.get(), STDERR_FILENO);
    ::setenv("TMPDIR", job.folder().c_str(), 1);
    ::execl(DTRUN_BINARY, "dtrun", "-v", "-r", "2", "--log-dir=/dev/null", "--shutdown-timeout=1",
            "--max-restarts=1", "sh", "-c", script.c_str(), nullptr);
    ::_exit(127);
  }
  const base::UniqueFd words(::open(fifo.c_str(), O_RDWR | O_CLOEXEC));
  EXPECT_EQ(read_some(words), "up\n");
  fill(pipe.write_end);
  ::kill(pid, SIGTERM);
  EXPECT_EQ(read_some(words), "ended\n");
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);  // the test's own limit is the check
  EXPECT_EQ(WEXITSTATUS(status), 128 + SIGTERM);
}

TEST(NoticeTest, ASignalEndsTheWaitForWhoDoesNotReadTheLastWords) {
  const base::Pipe pipe = base::make_pipe();
  const LauncherJob job;
  fill(pipe.write_end);
  const std::string go = job.folder() + "/go", script = ": < " + go + "; exit 3";
  ASSERT_EQ(::mkfifo(go.c_str(), 0600), 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(pipe.write_end.get(), STDERR_FILENO);
    ::setenv("TMPDIR", job.folder().c_str(), 1);
    ::execl(DTRUN_BINARY, "dtrun", "-v", "sh", "-c", script.c_str(), nullptr);
    ::_exit(127);
  }
  ::close(::open(go.c_str(), O_WRONLY | O_CLOEXEC));  // when the rank has opened it, too
  // One that comes as the job ends is ignored: its exit code stands.
  int status = 0;
  while (::waitpid(pid, &status, WNOHANG) == 0) {  // the test's own limit is the check
    if (children_of(pid).empty()) ::kill(pid, SIGTERM);
    ::poll(nullptr, 0, 20);
  }
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGTERM);
}

}  // namespace
}  // namespace dtrun::launcher
