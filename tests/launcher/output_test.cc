// Every byte that ranks write arrives, lines whole, in order per stream.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "launcher/flood_records.h"
#include "launcher/launcher_job.h"
#include "launcher/living_processes.h"

namespace dtrun::launcher {
namespace {

using testing::HasSubstr;
using testing_support::CommandOptions;
using testing_support::CommandResult;

const std::string kFlood = DTRUN_WORKERS "/flood_worker";

// What one stream of the job brought: the next sequence number of each rank, and what is wrong.
struct FloodReading {
  std::map<int, std::vector<std::uint32_t>> sequences;
  std::size_t bytes = 0;
  int truncated = 0;
  std::string complaint;
};

// Takes the stream apart record by record; each is compared with the one that was to be written.
FloodReading read_records(std::string_view stream) {
  FloodReading reading;
  reading.bytes = stream.size();
  while (!stream.empty()) {
    if (stream[0] != '\x01') {
      reading.complaint = "no record begins " + std::to_string(stream.size()) + " from the end";
      return reading;
    }
    const std::string header(stream.substr(1, kRecordHeaderBytes - 1));
    const int rank = std::stoi(header.substr(0, 2), nullptr, 16);
    const auto sequence = static_cast<std::uint32_t>(std::stoul(header.substr(2, 8), nullptr, 16));
    const std::string expected = record(rank, sequence, record_length(rank, sequence));
    std::size_t size = 0;
    if (stream.substr(0, expected.size()) == expected) {
      size = expected.size();
    } else if (stream.substr(0, expected.size() - 1) ==
               std::string_view(expected).substr(0, expected.size() - 1)) {
      size = expected.size() - 1;  // the last one, without its newline
      ++reading.truncated;
    } else if (stream.substr(0, kRecordHeaderBytes + 1) ==
               std::string_view(expected).substr(0, kRecordHeaderBytes + 1)) {
      size = kRecordHeaderBytes + 1;  // cut off by SIGKILL
      ++reading.truncated;
    } else {
      reading.complaint = "record " + std::to_string(sequence) + " of rank " +
                          std::to_string(rank) + " is not as it was written";
      return reading;
    }
    reading.sequences[rank].push_back(sequence);
    stream.remove_prefix(size);
  }
  return reading;
}

// All records up to the last one, each once and in order, over both streams of a rank.
void expect_complete(const CommandResult& result, int truncated) {
  const FloodReading out = read_records(result.out);
  const std::string error_stream = result.err.substr(0, result.err.find("====="));
  const FloodReading err = read_records(error_stream);
  EXPECT_EQ(out.complaint, "");
  EXPECT_EQ(err.complaint, "");
  EXPECT_EQ(out.truncated + err.truncated, truncated);
  for (int rank = 0; rank < 4; ++rank) {
    std::vector<std::uint32_t> from_out =
        out.sequences.count(rank) ? out.sequences.at(rank) : std::vector<std::uint32_t>();
    std::vector<std::uint32_t> from_err =
        err.sequences.count(rank) ? err.sequences.at(rank) : std::vector<std::uint32_t>();
    if (result.exit_code == 137 && rank == 3 && !from_out.empty()) from_out.pop_back();
    EXPECT_TRUE(std::is_sorted(from_out.begin(), from_out.end())) << rank;
    EXPECT_TRUE(std::is_sorted(from_err.begin(), from_err.end())) << rank;
    from_out.insert(from_out.end(), from_err.begin(), from_err.end());
    std::sort(from_out.begin(), from_out.end());
    for (std::size_t i = 0; i < from_out.size(); ++i) ASSERT_EQ(from_out[i], i) << "rank " << rank;
    // Where rank 3 has died the others may have been stopped before they began.
    if (result.exit_code != 137 || rank == 3) {
      EXPECT_GT(from_out.size(), 50u);
    }
  }
}

CommandResult flood(const std::string& end) {
  LauncherJob job;
  return job.run({"--nproc_per_node=4", kFlood, std::to_string(DTRUN_FLOOD_BYTES / 4), end});
}

TEST(OutputTest, MuchOutputOfFourRanksArrivesWholeWithAFinalNewline) {
  const CommandResult result = flood("newline");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_GE(result.out.size() + result.err.size(), static_cast<std::size_t>(DTRUN_FLOOD_BYTES));
  expect_complete(result, 0);
}

TEST(OutputTest, MuchOutputOfFourRanksArrivesWholeWithoutAFinalNewline) {
  const CommandResult result = flood("none");
  EXPECT_EQ(result.exit_code, 0);
  expect_complete(result, 6);  // four last lines of standard output, two of standard error
}

TEST(OutputTest, MuchOutputArrivesWholeThoughOneRankIsKilledInTheMiddle) {
  const CommandResult result = flood("kill");
  EXPECT_EQ(result.exit_code, 137);
  expect_complete(result, 1);
}

TEST(OutputTest, ALineOfAnyLengthIsNotInterrupted) {
  const CommandResult result = run_dtrun(
      {"--nproc_per_node=3", "sh", "-c",
       "if [ $RANK = 0 ]; then head -c " + std::to_string(DTRUN_FLOOD_BYTES) +
           " /dev/zero | tr '\\0' 'x'; else i=0; while [ $i -lt 2000 ]; do echo rank $RANK; "
           "i=$((i+1)); done; fi"});
  EXPECT_EQ(result.exit_code, 0);
  const std::size_t first = result.out.find('x'), last = result.out.rfind('x');
  EXPECT_EQ(last - first + 1, static_cast<std::size_t>(DTRUN_FLOOD_BYTES));
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 4000);
}

TEST(OutputTest, BothStreamsIntoOnePipeKeepTheirLinesWhole) {
  const CommandResult result = testing_support::run_command(
      {"sh", "-c",
       "OMP_NUM_THREADS=1 " DTRUN_BINARY " --nproc_per_node=4 " + kFlood + " " +
           std::to_string(DTRUN_FLOOD_BYTES / 40) + " newline 2>&1"});
  const FloodReading reading = read_records(result.out);
  EXPECT_EQ(reading.complaint, "");
  EXPECT_EQ(reading.sequences.size(), 4u);
}

TEST(OutputTest, AFileGetsAllInAppendModeAndOtherwise) {
  LauncherJob job;
  for (const char* redirection : {">", ">>"}) {
    const std::string file = job.folder() + "/out";
    std::filesystem::remove(file);
    const CommandResult result = testing_support::run_command(
        {"sh", "-c",
         "OMP_NUM_THREADS=1 " DTRUN_BINARY " --nproc_per_node=4 " + kFlood + " " +
             std::to_string(DTRUN_FLOOD_BYTES / 40) + " newline " + redirection + file + " 2>&1"});
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    std::ifstream stream(file);
    std::stringstream text;
    text << stream.rdbuf();
    const FloodReading reading = read_records(text.str());
    EXPECT_EQ(reading.complaint, "");
    EXPECT_EQ(reading.sequences.size(), 4u);
    EXPECT_GE(reading.bytes, static_cast<std::size_t>(DTRUN_FLOOD_BYTES / 10));
  }
}

// The most memory that a process has had, in bytes; 0: it is gone.
// The guard's most memory while two ranks write as fast as they are read.
std::size_t memory_of_flood(const char* option) {
  int ends[2];
  EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(ends[1], STDOUT_FILENO);
    ::setenv("OMP_NUM_THREADS", "1", 1);
    ::execl(DTRUN_BINARY, "dtrun", "--nproc_per_node=2", option, "sh", "-c",
            "yes $(printf '%080d' $RANK) | head -c 30000000", nullptr);
    ::_exit(127);
  }
  ::close(ends[1]);
  const pid_t guard = wait_for_guard(pid).guard;
  static char block[1 << 20];
  std::size_t memory = 0, bytes = 0;
  for (ssize_t n; (n = ::read(ends[0], block, sizeof block)) > 0;) {
    memory = std::max(memory, most_memory_of(guard));
    bytes += static_cast<std::size_t>(n);
  }
  ::close(ends[0]);
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
  EXPECT_GE(bytes, 60'000'000u) << option;
  return memory;
}

TEST(OutputTest, AFloodTakesLittleMemoryHoweverItIsShown) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers have memory of their own";
#else
  for (const char* option : {"--tag=never", "--tag=always", "--fold", "--log-format=json"}) {
    const std::size_t memory = memory_of_flood(option);
    EXPECT_GT(memory, 0u) << option;
    EXPECT_LT(memory, 64u << 20) << option;
  }
#endif
}

// Of `dtrun ARGUMENTS | READER`, where standard error ends with dtrun's exit code.
CommandResult run_into(const std::string& reader, const std::string& arguments) {
  return testing_support::run_command(
      {"sh", "-c",
       "{ OMP_NUM_THREADS=1 " DTRUN_BINARY " " + arguments + "; echo code $? >&2; } | " + reader});
}

CommandResult run_for_one_line(const std::string& arguments) {
  return run_into("head -n 1", arguments);
}

TEST(OutputTest, AReaderThatGoesAwayEndsTheJobWith141AndIsToldOnce) {
  const CommandResult result = run_for_one_line("--nproc_per_node=2 yes");
  EXPECT_EQ(result.out, "y\n");
  EXPECT_EQ(result.err,
            "dtrun: error: nobody reads the standard output any more: the job is stopped "
            "(--on-closed-output=ignore lets it run on)\ncode 141\n");
}

TEST(OutputTest, RanksThatDoNotKnowOfClosedOutputGetTermAndTheGrace) {
  // Ignored, as by Python, so that nothing but SIGTERM ends it.
  const CommandResult result = run_for_one_line(
      "sh -c 'trap \"\" PIPE; trap \"echo told >&2; exit 0\" TERM; echo a; while :; do echo b; "
      "sleep 0.01; done'");
  EXPECT_THAT(result.err, HasSubstr("told\n"));
  EXPECT_THAT(result.err, HasSubstr("code 141\n"));
}

TEST(OutputTest, AReaderOfBothStreamsThatGoesAwayEndsTheJobWithoutAWord) {
  const CommandResult result = run_for_one_line("--nproc_per_node=2 sh -c 'yes >&2' 2>&1");
  EXPECT_EQ(result.out, "y\n");
  EXPECT_EQ(result.err, "code 141\n");
}

TEST(OutputTest, AReaderThatGoesAwayIsIgnoredWhereAskedForAndWhereNothingIsWrittenToIt) {
  EXPECT_EQ(run_for_one_line("--on-closed-output=ignore --nproc_per_node=2 "
                             "sh -c 'yes | head -c 1000000; exit 0'")
                .err,
            "code 0\n");
  // Into files only: nothing goes to the closed pipe.
  LauncherJob job;
  EXPECT_EQ(
      run_into("true", "--log_dir=" + job.folder() + " -r 1 sh -c 'sleep 0.3; seq 100000'").err,
      "code 0\n");
}

TEST(OutputTest, AFullDiskUnderTheOutputIsAnErrorAndNotSilence) {
  const CommandResult result =
      testing_support::run_command({"sh", "-c", DTRUN_BINARY " echo text > /dev/full"});
  EXPECT_EQ(result.exit_code, 71) << result.describe();
  EXPECT_THAT(result.err, HasSubstr("No space left on device; 5 bytes"));
}

TEST(OutputTest, TagsStandBeforeEveryLineWhenAskedFor) {
  const CommandResult result =
      run_dtrun({"--nproc_per_node=2", "--tag=always", "sh", "-c", "echo a; echo b >&2"});
  EXPECT_EQ(result.sorted_lines(), (std::vector<std::string>{"[0:0] a", "[0:1] a"}));
  EXPECT_THAT(result.err, HasSubstr("[0:1] b\n"));
  EXPECT_EQ(run_dtrun({"echo", "a"}).out, "a\n");  // no terminal, no tag
}

TEST(OutputTest, OnATerminalLinesAreTaggedInColourUnlessItIsUnwanted) {
  const std::string inner = std::string(DTRUN_BINARY) + " echo a";
  CommandOptions options;
  options.environment = {{"TERM", "xterm"}, {"NO_COLOR", std::nullopt}};
  // script(1) gives the program a terminal.
  CommandResult result =
      testing_support::run_command({"script", "-qec", inner, "/dev/null"}, options);
  EXPECT_EQ(result.out, "\x1b[36m[0:0]\x1b[0m a\r\n") << result.describe();
  options.environment["NO_COLOR"] = "1";
  result = testing_support::run_command({"script", "-qec", inner, "/dev/null"}, options);
  EXPECT_EQ(result.out, "[0:0] a\r\n");
  result = testing_support::run_command(
      {"script", "-qec", std::string(DTRUN_BINARY) + " --tag=never echo a", "/dev/null"}, options);
  EXPECT_EQ(result.out, "a\r\n");
}

TEST(OutputTest, AStalledReaderDoesNotKeepTheSecondSignalFromEndingTheJob) {
  LauncherJob job;
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(ends[1], 1);
    ::setenv("TMPDIR", job.folder().c_str(), 1);
    ::execl(DTRUN_BINARY, "dtrun", "sh", "-c", "echo up >&2; yes", nullptr);
    ::_exit(127);
  }
  ::close(ends[1]);
  // Nobody reads further than the first bytes.
  char byte;
  ASSERT_EQ(::read(ends[0], &byte, 1), 1);
  ::kill(pid, SIGINT);
  ::kill(pid, SIGTERM);
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_EQ(WEXITSTATUS(status) & 128, 128);
  ::close(ends[0]);
}

}  // namespace
}  // namespace dtrun::launcher
