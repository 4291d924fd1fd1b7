// A training of many minutes of which a rank is killed every few seconds: it ends with the weights
// of one that nobody has disturbed. DTRUN_KILL_STEPS says how long it is.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "examples/checkpoint_folder.h"
#include "launcher/living_processes.h"
#include "support/command.h"

namespace dtrun {
namespace {

using testing_support::CommandResult;
using Clock = std::chrono::steady_clock;

constexpr auto kBetweenKills = std::chrono::seconds(3);

std::vector<pid_t> ranks_of(const CheckpointFolder& folder) {
  std::vector<pid_t> ranks;
  for (const pid_t pid : launcher::processes_with(folder.path())) {
    std::error_code gone;
    const auto program =
        std::filesystem::read_symlink("/proc/" + std::to_string(pid) + "/exe", gone);
    if (program.filename() == "train_gpt") ranks.push_back(pid);
  }
  return ranks;
}

TEST(TrainingKillsTest, ARankKilledEveryFewSecondsCostsNoBitOfTheWeights) {
  const char* const asked = std::getenv("DTRUN_KILL_STEPS");
  const std::string steps = asked != nullptr ? asked : "30000";
  const CheckpointFolder calm("calm"), killed("killed");
  const auto line = [&](const CheckpointFolder& folder) {
    return std::vector<std::string>{DTRUN_BIN "/dtrun",
                                    "--nproc_per_node=2",
                                    "--max-restarts=100000",
                                    DTRUN_BIN "/train_gpt",
                                    "--mesh",
                                    "fsdp=2",
                                    "--steps",
                                    steps,
                                    "--every",
                                    "10",
                                    "--batch",
                                    "12",
                                    "--context",
                                    "32",
                                    "--width",
                                    "32",
                                    "--sample",
                                    "0",
                                    "--dropout",
                                    "0.1",
                                    "--checkpoint",
                                    folder.path(),
                                    "--checkpoint-every",
                                    "20"};
  };
  testing_support::CommandOptions options;
  options.limit = std::chrono::seconds(2300);
  const CommandResult whole = testing_support::run_command(line(calm), options);
  ASSERT_EQ(whole.exit_code, 0) << whole.err;

  std::mt19937 random(18);
  const auto start = Clock::now();
  auto last_kill = start;
  int kills = 0, lines = 0;
  testing_support::Command job(line(killed), options);
  while (const auto told = job.next_line("")) {
    lines = told->starts_with("goes on") ? 0 : lines + 1;
    // Five lines are 50 steps: two checkpoints at least, so it comes on.
    if (lines < 5 || Clock::now() - last_kill < kBetweenKills) continue;
    const std::vector<pid_t> ranks = ranks_of(killed);
    if (ranks.empty()) continue;
    if (::kill(ranks[random() % ranks.size()], SIGKILL) == 0) ++kills;
    last_kill = Clock::now();
  }
  const CommandResult result = job.finish();
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  std::printf("%s steps, %d kills in %.0f s\n", steps.c_str(), kills, seconds);
  EXPECT_GT(kills, 0);
  EXPECT_NE(killed.elements_of(std::stoi(steps)), "");
  EXPECT_EQ(killed.elements_of(std::stoi(steps)), calm.elements_of(std::stoi(steps)));
}

}  // namespace
}  // namespace dtrun
