// Each tutorial program with one rank killed in the middle: dtrun names the dead rank within a
// second, and nothing is left.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "launcher/living_processes.h"
#include "support/command.h"
#include "support/promptness.h"

namespace dtrun {
namespace {

using testing::HasSubstr;
using testing_support::CommandOptions;
using testing_support::CommandResult;
using testing_support::run_command;

constexpr int kVictim = 1;
constexpr auto kNamedWithin = std::chrono::milliseconds(DTRUN_KILL_NAMED_WITHIN_MS);

struct TracedRun {
  CommandResult result;
  long calls = 0;                    ///< system calls of the victim until its end
  std::chrono::nanoseconds ended{};  ///< from the victim's end to dtrun's
};

std::chrono::nanoseconds monotonic_now() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

// The victim runs under killed_at, the other ranks do not.
TracedRun run_traced(const std::string& program, int rank_count, long kill_at,
                     const std::string& token) {
  std::string file =
      (std::filesystem::temp_directory_path() / ("dtrun-killed-at-" + token)).string();
  const std::string start = "if [ $RANK = " + std::to_string(kVictim) +
                            " ]; then exec " DTRUN_BIN "/killed_at " + std::to_string(kill_at) +
                            " " + file + " " DTRUN_BIN "/" + program +
                            "; else exec " DTRUN_BIN "/" + program + "; fi";
  TracedRun run;
  CommandOptions options;
  options.environment["TEST_TOKEN"] = token;  // of all processes of the job
  run.result = run_command(
      {DTRUN_BIN "/dtrun", "--nproc_per_node=" + std::to_string(rank_count), "sh", "-c", start},
      options);
  const std::chrono::nanoseconds now = monotonic_now();
  std::ifstream in(file);
  long long at = 0;
  in >> run.calls >> at;
  run.ended = now - std::chrono::nanoseconds(at);
  std::filesystem::remove(file);
  return run;
}

struct Program {
  std::string name;
  int rank_count;
  /// Where to kill, of all the system calls that the victim makes.
  std::vector<int> percents = {30, 40, 50, 60, 70, 80, 90};
};

void PrintTo(const Program& program, std::ostream* out) {
  *out << program.name;
}

class TutorialKillTest : public testing::TestWithParam<Program> {};

TEST_P(TutorialKillTest, TheDeadRankIsNamedWithinASecond) {
  const Program& program = GetParam();
  const std::string token = launcher::unique_token();
  const TracedRun whole = run_traced(program.name, program.rank_count, 0, token);
  ASSERT_EQ(whole.result.exit_code, 0) << whole.result.describe();
  ASSERT_GT(whole.calls, 50) << "is the victim traced?";
  int killed = 0;
  for (const int percent : program.percents)
    testing_support::expect_promptness(kNamedWithin, [&]() -> std::chrono::nanoseconds {
      const TracedRun run =
          run_traced(program.name, program.rank_count, whole.calls * percent / 100, token);
      if (run.result.exit_code == 0) return {};  // threads made fewer calls than the last time
      ++killed;
      EXPECT_EQ(run.result.exit_code, 128 + SIGKILL) << percent << "%: " << run.result.describe();
      EXPECT_THAT(run.result.err, HasSubstr("rank      : 1 (local_rank: 1)"))
          << percent << "%: " << run.result.describe();
      EXPECT_THAT(run.result.err, HasSubstr("SIGKILL"));
      EXPECT_TRUE(launcher::all_gone_within(token, testing_support::kPatience))
          << launcher::describe_processes_with(token);
      return run.ended;
    });
  EXPECT_GT(2 * killed, static_cast<int>(program.percents.size()))
      << "most kills came too late; the whole program made " << whole.calls << " calls";
}

INSTANTIATE_TEST_SUITE_P(
    Document, TutorialKillTest,
    testing::Values(Program{"p2p_communication", 2}, Program{"p2p_communication_non_blocking", 2},
                    Program{"process_group_4", 4}, Program{"broadcast", 4},
                    Program{"broadcast_p2p", 4}, Program{"reduce_sum", 4}, Program{"reduce_max", 4},
                    Program{"scatter", 4}, Program{"scatter_nccl", 4}, Program{"gather", 4},
                    Program{"allreduce_sum", 4}, Program{"allreduce_max", 4},
                    Program{"allgather", 4}, Program{"reduce_scatter", 4},
                    Program{"barrier", 4, {50}}, Program{"full_tensor_example", 4},
                    Program{"gather_shards_and_concat", 4}),
    [](const auto& program) { return program.param.name; });

}  // namespace
}  // namespace dtrun
