// How the ranks' lines look on the console, and what else is there: the real dtrun, on a terminal
// too.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>

#include "dtrun/base/json.h"
#include "launcher/launcher_job.h"
#include "launcher/terminal.h"
#include "support/own_port.h"
#include "support/promptness.h"

namespace dtrun::launcher {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing_support::CommandResult;

TEST(ConsoleTest, LinesOfSeveralRanksAreFolded) {
  const CommandResult result = run_dtrun(
      {"--nproc_per_node=4", "--fold", "sh", "-c", "echo same; echo mine $RANK; echo again"});
  EXPECT_EQ(result.exit_code, 0);
  // How much is folded is a matter of time; that nothing is lost is not.
  std::size_t same = 0, again = 0;
  std::stringstream lines(result.out);
  for (std::string line; std::getline(lines, line);) {
    const auto close = line.find(']');
    ASSERT_NE(close, std::string::npos) << result.out;
    std::size_t ranks = 0;
    for (std::string list = line.substr(1, close - 1); !list.empty();) {
      const std::string run = list.substr(0, list.find(','));
      list.erase(0, std::min(list.size(), run.size() + 1));
      const auto dash = run.find('-');
      ranks += dash == std::string::npos
                   ? 1
                   : std::stoul(run.substr(dash + 1)) - std::stoul(run.substr(0, dash)) + 1;
    }
    if (line.ends_with("] same")) same += ranks;
    if (line.ends_with("] again")) again += ranks;
  }
  EXPECT_EQ(same, 4u) << result.out;
  EXPECT_EQ(again, 4u) << result.out;
  for (const char* rank : {"0", "1", "2", "3"})
    EXPECT_THAT(result.out, HasSubstr(std::string("[") + rank + "] mine " + rank + "\n"));
}

TEST(ConsoleTest, LinesAreObjectsOfJson) {
  const CommandResult result =
      run_dtrun({"--nproc_per_node=2", "--log-format=json", "sh", "-c",
                 "printf 'a \"line\"\\n'; printf '\\377' >&2; [ $RANK = 1 ] || printf beginning"});
  EXPECT_EQ(result.exit_code, 0);
  std::vector<std::string> seen;
  std::stringstream lines(result.out + result.err);
  for (std::string line; std::getline(lines, line);) {
    const boost::json::value value = base::parse_json(line, "the output");
    const boost::json::object& object = value.as_object();
    EXPECT_EQ(object.at("node").as_int64(), 0);
    EXPECT_EQ(object.at("rank"), object.at("local_rank"));
    EXPECT_THAT(std::string(object.at("time").as_string()), EndsWith("Z"));
    const bool is_text = object.contains("text");
    seen.push_back(std::to_string(object.at("rank").as_int64()) +
                   std::string(object.at("stream").as_string()) + " " +
                   std::string(object.at(is_text ? "text" : "base64").as_string()) +
                   (object.contains("partial") ? " ..." : ""));
  }
  std::sort(seen.begin(), seen.end());
  EXPECT_THAT(seen, ElementsAre("0stderr /w== ...", "0stdout a \"line\"", "0stdout beginning ...",
                                "1stderr /w== ...", "1stdout a \"line\""));
}

TEST(ConsoleTest, TagsFollowTheTemplateAndTheNameOfTheProgram) {
  EXPECT_EQ(run_dtrun({"--tag=always", "--tag-template=${rank}/${stream}: ", "echo", "a"}).out,
            "0/stdout: a\n");
  EXPECT_THAT(run_dtrun({"--tag=always", "--tag-template=${time} ${elapsed}|", "echo", "a"}).out,
              testing::MatchesRegex(R"(20..-..-..T..:..:..\....Z [0-9]+\.[0-9][0-9][0-9]\|a.)"));
  EXPECT_EQ(run_dtrun({"--tag=always", "--color=always", "echo", "a"}).out,
            "\x1b[36m[0:0]\x1b[0m a\n");
  // Of ranks that end in the middle of a line, too; the last one stays as it was written.
  CommandResult open_ended =
      run_dtrun({"--nproc_per_node=3", "--tag=always", "sh", "-c", "printf end"});
  EXPECT_EQ(open_ended.out.size(), std::string("[0:0] end\n[0:1] end\n[0:2] end").size());
  EXPECT_THAT(open_ended.sorted_lines(), ElementsAre("[0:0] end", "[0:1] end", "[0:2] end"));
  LauncherJob job;
  const std::string torchrun = job.folder() + "/torchrun";
  ASSERT_EQ(::symlink(DTRUN_BINARY, torchrun.c_str()), 0);
  const auto options = job.options();
  EXPECT_EQ(testing_support::run_command(
                {torchrun, "--role=trainer", "--log_dir=" + job.folder() + "/logs", "-t", "3",
                 "--no-python", "echo", "a"},
                options)
                .out,
            "[trainer0]:a\n");
}

TEST(ConsoleTest, OneRankReadsTheStandardInputOrNone) {
  const auto run = [](const std::string& option) {
    return testing_support::run_command({"sh", "-c",
                                         "echo input | OMP_NUM_THREADS=1 " DTRUN_BINARY
                                         " --nproc_per_node=3 " +
                                             option + " sh -c 'echo $RANK:$(cat)'"})
        .sorted_lines();
  };
  EXPECT_THAT(run("--stdin=1"), ElementsAre("0:", "1:input", "2:"));
  EXPECT_THAT(run("--stdin=none"), ElementsAre("0:", "1:", "2:"));
  EXPECT_THAT(run(""), ElementsAre("0:input", "1:", "2:"));
}

// --- on a terminal

// What stands on the screen in the end.
std::vector<std::string> screen_of(const std::string& written) {
  std::vector<std::string> lines(1);
  std::size_t column = 0;
  for (std::size_t i = 0; i < written.size(); ++i) {
    if (written[i] == '\r') {
      column = 0;
    } else if (written[i] == '\n') {
      lines.emplace_back();
      column = 0;
    } else if (written.compare(i, 3, "\x1b[K") == 0) {
      lines.back().resize(column);
      i += 2;
    } else {
      lines.back().resize(std::max(lines.back().size(), column + 1));
      lines.back()[column++] = written[i];
    }
  }
  if (lines.back().empty()) lines.pop_back();
  return lines;
}

TEST(ConsoleTest, AStatusLineStandsBelowTheLinesWhileRanksRun) {
  LauncherJob folder;
  const std::string fifo = folder.folder() + "/fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  TerminalJob job({"--nproc_per_node=2", "--max-restarts=3", "--tag=never", "sh", "-c",
                   "[ $RANK = 0 ] || exit 0; read word < " + fifo + "; echo $word; read word < " +
                       fifo + "; i=0; while [ $i -lt 200 ]; do echo line; i=$((i+1)); done"});
  std::fstream words(fifo, std::ios::in | std::ios::out);  // so that no opening waits
  ASSERT_TRUE(job.wait_for("1/2 up \u00b7 restart 0/3 \u00b7 00:0")) << job.finish();
  words << "first\n" << std::flush;
  ASSERT_TRUE(job.wait_for("\r\x1b[Kfirst\r\n")) << job.finish();
  ASSERT_TRUE(job.wait_for("1/2 up")) << job.finish();
  words << "second\n" << std::flush;
  const std::string written = job.finish();
  EXPECT_EQ(job.status(), 0);
  // A line takes its place, and it takes no line's.
  for (auto at = written.find(" up"); at != std::string::npos; at = written.find(" up", at + 1))
    EXPECT_EQ(written.compare(written.find_first_of("\r\n", at), 4, "\r\x1b[K"), 0) << at;
  std::vector<std::string> expected = {"dtrun: round 0: 1 node, 2 ranks", "first"};
  expected.resize(202, "line");
  EXPECT_EQ(screen_of(written), expected);
}

TEST(ConsoleTest, ThereIsNoStatusLineWhereItIsNotWanted) {
  const auto screen = [](std::vector<std::string> options, const char* terminal) {
    // Long enough for one to come.
    options.insert(options.end(), {"--tag=never", "sh", "-c", "sleep 0.4; echo a"});
    return TerminalJob(options, terminal).finish();
  };
  EXPECT_EQ(screen({"--status=never"}, "xterm"), "a\r\n");
  EXPECT_EQ(screen({}, "dumb"), "a\r\n");
  // Who reads the pipe may write to the same terminal.
  const std::string piped = std::string(DTRUN_BINARY) + " sh -c 'sleep 0.4; echo a' | cat";
  const CommandResult result =
      testing_support::run_command({"env", "TERM=xterm", "script", "-qec", piped, "/dev/null"});
  EXPECT_EQ(result.out, "a\r\n");
}

TEST(ConsoleTest, MessagesOfTheAgentTakeTheStatusLinesPlaceToo) {
  TerminalJob job({"--max-restarts=1", "--tag=never", "sh", "-c",
                   "[ $TORCHELASTIC_RESTART_COUNT = 1 ] || { sleep 0.4; exit 3; }; echo a"});
  const std::string written = job.finish();
  EXPECT_EQ(job.status(), 0);
  for (const std::string& line : screen_of(written))
    EXPECT_THAT(line, Not(HasSubstr(" up "))) << written;
}

// --- under a shell with job control

class ShellTest : public testing::Test {
 protected:
  ShellTest() : shell_({"bash", "--norc", "--noprofile", "--noediting", "-i"}, "dumb") {}
  // Twice: a shell that has not heard yet of the end of a stopped job refuses the first.
  ~ShellTest() override { shell_.type("exit\nexit\n"); }

  // Ranks whose pids can be read from files, and which wait for ever. (A shell that starts programs
  // by vfork would not be seen as stopped while its child is, before its exec.)
  void start_job(int ranks, const std::string& options) {
    shell_.type("TERM=xterm TMPDIR=" + folder_.folder() + " " DTRUN_BINARY " --tag=never " +
                options + " --nproc_per_node=" + std::to_string(ranks) + " sh -c 'echo $$ > " +
                folder_.folder() + "/$RANK; echo \"rank r\"\"uns\"; exec sleep 1000'\n");
    for (int i = 0; i < ranks; ++i) ASSERT_TRUE(shell_.wait_for("rank runs")) << shell_.finish();
  }
  int rank_pid(int rank) const {
    int pid = 0;
    std::ifstream(folder_.folder() + "/" + std::to_string(rank)) >> pid;
    return pid;
  }
  // 'T': stopped.
  bool becomes_stopped(int rank, bool stopped) const {
    const auto limit = std::chrono::steady_clock::now() + testing_support::kPatience;
    while (std::chrono::steady_clock::now() < limit) {
      std::ifstream file("/proc/" + std::to_string(rank_pid(rank)) + "/stat");
      const std::string stat(std::istreambuf_iterator<char>(file), {});
      const auto name_end = stat.rfind(')');
      if (name_end != stat.npos && (stat.at(name_end + 2) == 'T') == stopped) return true;
    }
    return false;
  }
  // Longer than the status line stands still.
  std::string seen_in_a_while() {
    shell_.type("sleep 1.3; echo while is o''ver\n");
    return shell_.seen_before("while is over");
  }

  LauncherJob folder_;
  Terminal shell_;
};

TEST_F(ShellTest, CtrlZStopsTheRanksAndTheTerminalIsTheShellsUntilFg) {
  start_job(2, "");
  ASSERT_TRUE(shell_.wait_for("2/2 up")) << shell_.finish();
  shell_.type("\x1a");
  ASSERT_TRUE(shell_.wait_for("Stopped"));
  for (const int rank : {0, 1}) EXPECT_TRUE(becomes_stopped(rank, true));
  const auto is_the_shells = AllOf(Not(HasSubstr(" up ")), Not(HasSubstr("\x1b[K")));
  EXPECT_THAT(seen_in_a_while(), is_the_shells);
  shell_.type("bg\n");
  for (const int rank : {0, 1}) EXPECT_TRUE(becomes_stopped(rank, false));
  EXPECT_THAT(seen_in_a_while(), is_the_shells);
  shell_.type("fg\n");
  ASSERT_TRUE(shell_.wait_for("2/2 up"));
  shell_.type("\x03");
  ASSERT_TRUE(shell_.wait_for("dtrun: stopping, again to kill now: the ranks have 30 s to end"));
  ASSERT_TRUE(shell_.wait_for("dtrun: error: stopped by SIGINT"));
  shell_.type("echo code $?\n");
  EXPECT_TRUE(shell_.wait_for("code 130"));
}

TEST_F(ShellTest, OneOfSeveralNodesSaysWhatTheOthersDoAndAStoppedJobCanBeEnded) {
  testing_support::OwnPort port;
  const std::string nodes = "--nnodes=2 --master_addr=127.0.0.1 --master_port=" + port.text();
  testing_support::Command head(
      {"sh", "-c", "exec " DTRUN_BINARY " " + nodes + " --node_rank=0 sleep 100"},
      folder_.options());
  start_job(1, nodes + " --node_rank=1");
  ASSERT_TRUE(shell_.wait_for("1/1 up")) << shell_.finish();
  shell_.type("\x1a");
  ASSERT_TRUE(
      shell_.wait_for("the other nodes give it up when they have heard nothing of it for "
                      "15 s"));
  ASSERT_TRUE(shell_.wait_for("Stopped"));
  EXPECT_TRUE(becomes_stopped(1, true));
  shell_.type("kill %1\n");
  ASSERT_TRUE(shell_.wait_for("dtrun: error: stopped by SIGTERM"));
  EXPECT_EQ(head.finish().exit_code, 143);
}

}  // namespace
}  // namespace dtrun::launcher
