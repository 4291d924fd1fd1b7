// What the ranks write into files: every byte, whatever the console, the disk and others do.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "launcher/launcher_job.h"
#include "output/log_folder.h"
#include "support/thrown_error.h"

namespace dtrun::launcher {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing_support::CommandResult;
using testing_support::error_of;
namespace files = std::filesystem;

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

class LogFilesTest : public testing::Test {
 protected:
  std::string log_dir() const { return job_.folder() + "/logs"; }
  // Of the only run there is.
  std::string run_folder() const {
    const auto first = files::directory_iterator(log_dir());
    return first == files::directory_iterator() ? "none" : first->path().string();
  }
  std::string log_of(int round, int local_rank, const std::string& name) const {
    return content_of(run_folder() + "/attempt_" + std::to_string(round) + "/" +
                      std::to_string(local_rank) + "/" + name + ".log");
  }
  CommandResult run(std::vector<std::string> options, const std::string& script) {
    options.insert(options.begin(), "--log_dir=" + log_dir());
    options.insert(options.end(), {"sh", "-c", script});
    return job_.run(options);
  }

  LauncherJob job_;
};

TEST_F(LogFilesTest, FilesHoldTheBytesThatWereWritten) {
  const std::string script = "head -c 3000000 /dev/urandom | tee " + job_.folder() +
                             "/$LOCAL_RANK.written; printf 'no end' >&2";
  for (const char* option : {"--redirects=3", "--tee=3"}) {
    files::remove_all(log_dir());
    const CommandResult result = run({"--nproc_per_node=2", "--tag=never", option}, script);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    for (int rank = 0; rank < 2; ++rank) {
      const std::string written =
          content_of(job_.folder() + "/" + std::to_string(rank) + ".written");
      EXPECT_EQ(written.size(), 3'000'000u);
      EXPECT_TRUE(log_of(0, rank, "stdout") == written) << option << rank;
      EXPECT_EQ(log_of(0, rank, "stderr"), "no end");
    }
    const bool shown = std::string(option) == "--tee=3";
    EXPECT_EQ(result.out.size(), shown ? 6'000'000u : 0u);
    EXPECT_EQ(result.err.find("no end") != std::string::npos, shown);
  }
}

TEST_F(LogFilesTest, EveryAttemptKeepsItsFiles) {
  const CommandResult result =
      run({"--nproc_per_node=1", "--max-restarts=1", "-r", "0:1"},
          "echo attempt $TORCHELASTIC_RESTART_COUNT; exit $((3 - 3 * TORCHELASTIC_RESTART_COUNT))");
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_EQ(log_of(0, 0, "stdout"), "attempt 0\n");
  EXPECT_EQ(log_of(1, 0, "stdout"), "attempt 1\n");
}

TEST_F(LogFilesTest, TheFailureTableHasTheLastLinesOfRanksThatWriteIntoFiles) {
  for (const char* option : {"--redirects=3", "--tee=3"}) {
    const CommandResult result =
        run({option}, "for i in $(seq 30); do echo why $i >&2; done; exit 3");
    EXPECT_EQ(result.exit_code, 3);
    EXPECT_THAT(result.err, AllOf(HasSubstr("  | why 11\n"), HasSubstr("  | why 30\n"),
                                  Not(HasSubstr("  | why 10\n"))));
  }
  const CommandResult hidden = run({"--local-ranks-filter=1"}, "echo why >&2; exit 3");
  EXPECT_THAT(hidden.err, AllOf(HasSubstr("  | why\n"), Not(testing::StartsWith("why"))));
}

TEST_F(LogFilesTest, FiltersChooseRanksForTheConsoleAndLinesForAFile) {
  const CommandResult result =
      run({"--nproc_per_node=3", "-t", "3", "--local-ranks-filter=0,2",
           "--duplicate-stdout-filters=loss,a,,b", "--duplicate-stderr-filters=bad"},
          "echo loss $RANK; echo other; echo a,b; printf 'loss at the end'; echo good >&2");
  EXPECT_THAT(result.out, AllOf(HasSubstr("loss 0\n"), HasSubstr("loss 2\n")));
  EXPECT_THAT(result.out, Not(HasSubstr("loss 1\n")));
  EXPECT_EQ(log_of(0, 1, "stdout"), "loss 1\nother\na,b\nloss at the end");
  std::string filtered = content_of(run_folder() + "/attempt_0/filtered_stdout.log");
  EXPECT_EQ(std::count(filtered.begin(), filtered.end(), '\n'), 6) << filtered;
  EXPECT_THAT(filtered, AllOf(HasSubstr("[0:0] loss 0\n"), HasSubstr("[0:2] a,b\n"),
                              HasSubstr("[0:2] loss at the end\n"), Not(HasSubstr("other"))));
  EXPECT_EQ(content_of(run_folder() + "/attempt_0/filtered_stderr.log"), "");
  EXPECT_TRUE(files::exists(run_folder() + "/attempt_0/filtered_stderr.log"));
}

TEST_F(LogFilesTest, WithoutAFolderOneIsMadeAndNamedAndWithDevNullThereIsNone) {
  CommandResult result = job_.run({"-t", "1", "--rdzv_id=j", "echo", "a"});
  EXPECT_EQ(result.out, "[0:0] a\n");
  const std::string told = "dtrun: the ranks' output is kept in ";
  ASSERT_THAT(result.err, testing::StartsWith(told));
  const std::string folder = result.err.substr(told.size(), result.err.find('\n') - told.size());
  EXPECT_THAT(folder, testing::MatchesRegex(job_.folder() + "/dtrun_[0-9a-f]+/j_[0-9a-f]+"));
  EXPECT_EQ(content_of(folder + "/attempt_0/0/stdout.log"), "a\n");
  files::remove_all(files::path(folder).parent_path());
  result = job_.run({"-t", "1", "-r", "2", "--tag=never", "--log_dir=/dev/null", "sh", "-c",
                     "echo a; echo b >&2; echo \"<$TORCHELASTIC_ERROR_FILE>\""});
  EXPECT_EQ(result.out, "a\n<>\n");
  EXPECT_EQ(result.err, "");
  EXPECT_THAT(job_.left_behind(), testing::IsEmpty());
}

// Of a dtrun, however deep below it; 0: there is none.
pid_t guard_of(pid_t dtrun) {
  if (content_of("/proc/" + std::to_string(dtrun) + "/comm") == "dtrun-guard\n") return dtrun;
  const std::string number = std::to_string(dtrun);
  std::stringstream children(content_of("/proc/" + number + "/task/" + number + "/children"));
  for (pid_t pid; children >> pid;)
    if (const pid_t guard = guard_of(pid)) return guard;
  return 0;
}

TEST_F(LogFilesTest, AConsoleThatStandsStillHoldsUpNobodyWhoWritesIntoFiles) {
  constexpr std::size_t kBytes = 30'000'000;
  const std::string fifo = job_.folder() + "/fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const std::string script =
      "yes $LOCAL_RANK | head -c " + std::to_string(kBytes) + "; echo done > " + fifo;
  const std::string option = "--log_dir=" + log_dir();
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(ends[1], 1);
    ::setenv("OMP_NUM_THREADS", "1", 1);
    ::execl(DTRUN_BINARY, "dtrun", option.c_str(), "--nproc_per_node=2", "-t", "1", "--tag=never",
            "sh", "-c", script.c_str(), nullptr);
    ::_exit(127);
  }
  ::close(ends[1]);
  // Both ranks get to their end though nobody has read a byte.
  const int words = ::open(fifo.c_str(), O_RDWR | O_CLOEXEC);
  for (ssize_t n = 0, all = 0; all < 2 * 5; all += n) {
    char word[16];
    ASSERT_GT(n = ::read(words, word, sizeof word), 0);
  }
  ::close(words);
  for (int rank = 0; rank < 2; ++rank) EXPECT_LE(log_of(0, rank, "stdout").size(), kBytes);
  std::size_t got = 0, lines[2] = {};
  static char block[1 << 20];
  std::size_t memory = 0;
  for (ssize_t n; (n = ::read(ends[0], block, sizeof block)) > 0;
       got += static_cast<std::size_t>(n)) {
    for (const char byte : std::string_view(block, static_cast<std::size_t>(n)))
      if (byte != '\n') ++lines[byte - '0'];
    if (const pid_t guard = guard_of(pid)) memory = std::max(memory, most_memory_of(guard));
  }
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(got, 2 * kBytes);
  EXPECT_EQ(lines[0], kBytes / 2);
  EXPECT_EQ(lines[1], kBytes / 2);
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(log_of(0, rank, "stdout").size(), kBytes);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(memory, 64u << 20);
#endif
  EXPECT_GT(memory, 0u);
  ::close(ends[0]);
}

// In a mount namespace of its own, with a small file system for the log files.
CommandResult run_with_small_disk(const LauncherJob& job, const std::string& arguments,
                                  const std::string& limits = "size=1m") {
  const std::string disk = job.folder() + "/disk";
  files::create_directory(disk);
  return testing_support::run_command(
      {"unshare", "-rm", "sh", "-c",
       "mount -t tmpfs -o " + limits + " none " + disk + " || exit 99; " +
           DTRUN_BINARY " --log_dir=" + disk + " " + arguments + "; code=$?; cat " + disk +
           "/*/attempt_0/0/stdout.log > " + job.folder() + "/copy; exit $code"});
}

TEST_F(LogFilesTest, AFullDiskCostsWhatDoesNotFitAndNotTheJob) {
  const std::string flood = "sh -c 'yes | head -c 3000000; echo end >&2; exit 0'";
  CommandResult result = run_with_small_disk(job_, "-t 1 --tag=never " + flood);
  if (result.exit_code == 99 || result.err.find("unshare") != std::string::npos)
    GTEST_SKIP() << "no mount namespace here: " << result.err;
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out.size(), 3'000'000u);
  const auto told = result.err.find("cannot write the ranks' log files: No space left on device");
  EXPECT_NE(told, std::string::npos) << result.err;
  EXPECT_EQ(result.err.find("cannot write the ranks' log files: ", told + 1), std::string::npos);
  const std::string kept = content_of(job_.folder() + "/copy");
  EXPECT_TRUE(result.out.starts_with(kept));
  EXPECT_THAT(result.err, HasSubstr("; " + std::to_string(3'000'000 - kept.size()) +
                                    " bytes of their output are missing there\n"));
  result = run_with_small_disk(job_, "-r 1 " + flood);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("end\n"),
                                HasSubstr("an unknown part of their output may be missing there")));
}

TEST_F(LogFilesTest, ARestartThatFindsNoRoomForItsFilesRunsOn) {
  // Room for the first round's files, and for a folder of the second.
  const CommandResult result = run_with_small_disk(
      job_,
      "-r 1 --max-restarts=1 sh -c "
      "'echo round $TORCHELASTIC_RESTART_COUNT; exit $((1-TORCHELASTIC_RESTART_COUNT))'",
      "size=1m,nr_inodes=6");
  if (result.exit_code == 99 || result.err.find("unshare") != std::string::npos)
    GTEST_SKIP() << "no mount namespace here: " << result.err;
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "round 1\n");
  EXPECT_EQ(content_of(job_.folder() + "/copy"), "round 0\n");
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("cannot write the ranks' log files: cannot make the folder "),
                    HasSubstr("an unknown part of their output may be missing there")));
}

// --- nobody plants a file or a folder

class LogFolderTest : public LogFilesTest {
 protected:
  LogFolder choose() {
    LaunchPlan plan;
    plan.local_ranks = 2;
    plan.run_id = "job";
    plan.options.output.log_dir = log_dir();
    plan.options.output.redirects.of_all = 3;
    files::create_directories(log_dir());
    return LogFolder::choose(plan);
  }
  static unsigned mode_of(const std::string& path) {
    struct stat status {};
    ::lstat(path.c_str(), &status);
    return status.st_mode & 07777u;
  }
};

TEST_F(LogFolderTest, FoldersAndFilesAreTheUsersAlone) {
  const mode_t before = ::umask(0);
  const LogFolder folder = choose();
  const AttemptFolder attempt = folder.make(3);
  attempt.make_stream_file(1, Stream::kError);
  attempt.make_filtered_file(Stream::kOut);
  ::umask(before);
  for (const char* name : {"", "/attempt_3", "/attempt_3/1"})
    EXPECT_EQ(mode_of(folder.path() + name), 0700u) << name;
  for (const char* name : {"/attempt_3/1/stderr.log", "/attempt_3/filtered_stdout.log"})
    EXPECT_EQ(mode_of(folder.path() + name), 0600u) << name;
}

TEST_F(LogFolderTest, WhereALinkWasPlantedNothingIsWritten) {
  const std::string elsewhere = job_.folder() + "/elsewhere";
  files::create_directory(elsewhere);
  const LogFolder at_run = choose();
  files::create_directory_symlink(elsewhere, at_run.path());
  EXPECT_TRUE(error_of([&] { at_run.make(0); }));
  const LogFolder at_attempt = choose();
  files::create_directory(at_attempt.path());
  files::create_directory_symlink(elsewhere, at_attempt.path() + "/attempt_0");
  EXPECT_TRUE(error_of([&] { at_attempt.make(0); }));
  const LogFolder at_file = choose();
  const AttemptFolder attempt = at_file.make(0);
  files::create_symlink(elsewhere + "/file", at_file.path() + "/attempt_0/0/stdout.log");
  EXPECT_TRUE(error_of([&] { attempt.make_stream_file(0, Stream::kOut); }));
  files::remove(at_file.path() + "/attempt_0/1");
  files::create_directory_symlink(elsewhere, at_file.path() + "/attempt_0/1");
  EXPECT_TRUE(error_of([&] { attempt.make_stream_file(1, Stream::kOut); }));
  // A folder that takes the place of the one that was made gets nothing.
  files::rename(at_file.path() + "/attempt_0", at_file.path() + "/moved");
  files::create_directory_symlink(elsewhere, at_file.path() + "/attempt_0");
  EXPECT_FALSE(error_of([&] { attempt.make_stream_file(0, Stream::kError); }));
  EXPECT_TRUE(files::is_empty(elsewhere));
}

TEST_F(LogFolderTest, AnotherUsersFolderIsNotTaken) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make another user's folder";
  const LogFolder folder = choose();
  files::create_directory(folder.path());
  ASSERT_EQ(::chown(folder.path().c_str(), 65534, 65534), 0);
  const auto error = error_of([&] { folder.make(0); });
  ASSERT_TRUE(error);
  EXPECT_THAT(error->what(), HasSubstr("Operation not permitted"));
}

TEST_F(LogFolderTest, AFolderThatIsGoneBetweenRoundsIsMadeAgain) {
  const LogFolder folder = choose();
  folder.make(0);
  files::remove_all(log_dir());
  folder.make(1).make_stream_file(0, Stream::kOut);
  EXPECT_TRUE(files::exists(folder.path() + "/attempt_1/0/stdout.log"));
}

}  // namespace
}  // namespace dtrun::launcher
