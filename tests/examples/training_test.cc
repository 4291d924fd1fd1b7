// train_mlp and train_gpt learn, and learn the same on every mesh.
#include <gtest/gtest.h>

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <regex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "examples/checkpoint_folder.h"
#include "launcher/living_processes.h"
#include "support/command.h"
#include "support/own_port.h"

namespace dtrun {
namespace {

using testing_support::CommandOptions;
using testing_support::CommandResult;
using testing_support::run_command;

/// Of "epoch  3  loss 0.25  accuracy 0.9".
struct Epoch {
  double loss = 0;
  double accuracy = 0;
};

std::vector<Epoch> epochs_of(const CommandResult& result) {
  std::vector<Epoch> epochs;
  for (std::size_t at = result.out.find("epoch "); at != std::string::npos;
       at = result.out.find("epoch ", at + 1)) {
    const char* const line = result.out.c_str() + at;
    epochs.push_back({std::strtod(std::strstr(line, "loss ") + 5, nullptr),
                      std::strtod(std::strstr(line, "accuracy ") + 9, nullptr)});
  }
  return epochs;
}

std::vector<Epoch> train(int ranks, const std::string& mesh, const std::vector<std::string>& more) {
  std::vector<std::string> line = {DTRUN_BIN "/dtrun",
                                   "--nproc_per_node=" + std::to_string(ranks),
                                   DTRUN_BIN "/train_mlp",
                                   "--mesh",
                                   mesh,
                                   "--data",
                                   "made"};
  line.insert(line.end(), more.begin(), more.end());
  const CommandResult result = run_command(line);
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  std::vector<Epoch> epochs = epochs_of(result);
  const std::size_t last = result.out.rfind("\nloss: ");
  if (epochs.empty() || last == std::string::npos) {
    ADD_FAILURE() << result.describe();
    return {};
  }
  EXPECT_EQ(std::strtod(result.out.c_str() + last + 7, nullptr), epochs.back().loss);
  return epochs;
}

void expect_equal(const std::vector<Epoch>& actual, const std::vector<Epoch>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    EXPECT_NEAR(actual[i].loss, expected[i].loss, 2e-5) << "epoch " << i + 1;
    EXPECT_NEAR(actual[i].accuracy, expected[i].accuracy, 0.003) << "epoch " << i + 1;
  }
}

TEST(TrainingTest, ANetworkLearnsTheSameOnEveryMesh) {
  const std::vector<Epoch> alone = train(1, "dp=1", {"--epochs", "4"});
  ASSERT_EQ(alone.size(), 4U);
  EXPECT_LT(alone.back().loss, 0.5 * alone.front().loss);
  EXPECT_GT(alone.back().accuracy, 0.9);
  for (const char* mesh : {"dp=4", "tp=4", "dp=2,tp=2", "tp=2,dp=2"}) {
    SCOPED_TRACE(mesh);
    expect_equal(train(4, mesh, {"--epochs", "4"}), alone);
  }
  // 1,440 samples in batches of 96, 64 hidden: neither is a multiple of 5 nor of 3.
  SCOPED_TRACE("dp=5");
  expect_equal(train(5, "dp=5", {"--epochs", "4"}), alone);
}

TEST(TrainingTest, ANetworkTakesTheDigitsThatWereFetchedAndMakesItsOwnWhereNoneWere) {
  CommandOptions options;
  const std::string home = testing::TempDir() + "home" + std::to_string(::getpid());
  std::filesystem::create_directories(home + "/.cache/dtrun");
  options.environment["HOME"] = home;
  const auto digits_of = [&] {
    const CommandResult result =
        run_command({DTRUN_BIN "/dtrun", DTRUN_BIN "/train_mlp", "--epochs", "1"}, options);
    return result.out.substr(0, result.out.find('\n')) + result.err;
  };
  EXPECT_EQ(digits_of(), "digits: made ones (tests/lab/digits fetches real ones)");
  // A file that is none: it was looked for.
  std::ofstream(home + "/.cache/dtrun/digits.csv") << "1,2,3\n";
  EXPECT_NE(digits_of().find(home + "/.cache/dtrun/digits.csv has a line of 3 numbers"),
            std::string::npos);
  std::filesystem::remove_all(home);
}

TEST(TrainingTest, AMeshThatIsNoneIsToldOnce) {
  for (const char* mesh : {"pp=2", "dp", "dp=0", "dp=2,tp"}) {
    const CommandResult result = run_command({DTRUN_BIN "/train_mlp", "--mesh", mesh});
    EXPECT_NE(result.exit_code, 0) << mesh;
    EXPECT_NE(result.err.find(std::string("--mesh ") + mesh + " is not understood"),
              std::string::npos)
        << result.describe();
  }
}

CommandResult train_gpt(int ranks, const std::vector<std::string>& more) {
  std::vector<std::string> line = {DTRUN_BIN "/dtrun", "--nproc_per_node=" + std::to_string(ranks),
                                   DTRUN_BIN "/train_gpt"};
  line.insert(line.end(), more.begin(), more.end());
  return run_command(line);
}

/// That of the last line, "loss: 2.345678".
double last_loss(const CommandResult& result) {
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  std::smatch found;
  if (std::regex_search(result.out, found, std::regex("\nloss: ([0-9.]+)\n(\\[dtrun [^\n]*\n)*$")))
    return std::stod(found[1]);
  ADD_FAILURE() << result.describe();
  return 0;
}

/// Of "step    8  loss 4.1234  validation 4.2345  rate 0.00300  12345 bytes/s  0 s left".
struct ProgressLine {
  int step = 0;
  double loss = 0, validation = 0, bytes_per_second = 0;
};
std::vector<ProgressLine> progress_of(const CommandResult& result) {
  const std::regex line(
      "step +([0-9]+)  loss ([0-9.]+)  validation ([0-9.]+)  rate [0-9.]+  ([0-9]+) bytes/s  "
      "[0-9]+ s left\n");
  std::vector<ProgressLine> found;
  for (std::sregex_iterator at(result.out.begin(), result.out.end(), line), end; at != end; ++at) {
    found.push_back(
        {std::stoi((*at)[1]), std::stod((*at)[2]), std::stod((*at)[3]), std::stod((*at)[4])});
  }
  return found;
}

/// Between the lines of progress and the last one.
std::string text_of(const CommandResult& result) {
  const std::size_t begin = result.out.rfind("s left\n"), end = result.out.rfind("\nloss: ");
  return begin < end ? result.out.substr(begin + 7, end - begin - 7) : "";
}

/// What train_gpt --csv writes, which goes with this.
class LossFile {
 public:
  explicit LossFile(const std::string& name = "")
      : path_(testing::TempDir() + "gpt" + std::to_string(::getpid()) + name + ".csv") {}
  ~LossFile() { std::filesystem::remove(path_); }
  LossFile(const LossFile&) = delete;
  LossFile& operator=(const LossFile&) = delete;
  const std::string& path() const { return path_; }
  std::string text() const {
    std::ifstream stream(path_);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  /// One per step.
  std::vector<double> losses() const {
    std::istringstream lines(text());
    std::vector<double> found;
    std::string line;
    for (std::getline(lines, line); std::getline(lines, line);) {
      EXPECT_EQ(std::atoi(line.c_str()), static_cast<int>(found.size()) + 1) << line;
      found.push_back(std::strtod(line.c_str() + line.find(',') + 1, nullptr));
    }
    return found;
  }

 private:
  const std::string path_;
};

void expect_the_same_on_every_mesh(const std::string& dropout) {
  const LossFile file;
  const std::vector<std::string> line = {
      "--steps",  "8",  "--every",   "4",         "--accumulate", "2",
      "--batch",  "8",  "--context", "32",        "--width",      "32",
      "--sample", "20", "--csv",     file.path(), "--dropout",    dropout};
  const CommandResult alone = train_gpt(1, line);
  EXPECT_LT(last_loss(alone), 5);  // it begins at log(256)
  const std::vector<double> losses = file.losses();
  ASSERT_EQ(losses.size(), 8U);
  EXPECT_EQ(text_of(alone).size(), 16U + 20U) << alone.describe();
  const std::vector<ProgressLine> progress = progress_of(alone);
  ASSERT_EQ(progress.size(), 2U) << alone.describe();
  EXPECT_EQ(progress[1].step, 8);
  EXPECT_NEAR(progress[1].loss, losses[7], 1e-4);
  EXPECT_GT(progress[1].bytes_per_second, 0);
  EXPECT_LT(progress[1].validation, progress[0].validation);
  struct Way {
    int ranks;
    std::vector<std::string> options;
  };
  const std::vector<Way> ways = {{4, {"--mesh", "tp=4"}},
                                 {4, {"--mesh", "dp=2,tp=2"}},
                                 {4, {"--mesh", "dp=4"}},
                                 {4, {"--mesh", "fsdp=4"}},
                                 {4, {"--mesh", "dp=2,fsdp=2"}},
                                 {4, {"--mesh", "fsdp=2,tp=2"}},
                                 {4, {"--mesh", "fsdp=2,tp=2", "--sequence", "on"}},
                                 {3, {"--mesh", "tp=3"}},  // 4 heads
                                 {4, {"--mesh", "dp=2,cp=2"}},
                                 {4, {"--mesh", "fsdp=2,cp=2"}},
                                 {4, {"--mesh", "cp=2,tp=2", "--sequence", "on"}},
                                 {4, {"--mesh", "pp=4"}},
                                 {4, {"--mesh", "pp=2,tp=2", "--stages", "2"}},
                                 {4, {"--mesh", "pp=2,fsdp=2"}},
                                 {8, {"--mesh", "dp=2,fsdp=2,tp=2"}},
                                 {8, {"--mesh", "dp=2,pp=2,cp=2"}}};
  for (const Way& way : ways) {
    SCOPED_TRACE(way.options[1]);
    std::vector<std::string> on_mesh = line;
    on_mesh.insert(on_mesh.end(), way.options.begin(), way.options.end());
    const CommandResult result = train_gpt(way.ranks, on_mesh);
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    const std::vector<double> found = file.losses();
    ASSERT_EQ(found.size(), losses.size());
    for (std::size_t step = 0; step < losses.size(); ++step)
      EXPECT_NEAR(found[step], losses[step], 1e-6 * losses[step]) << "step " << step + 1;
    EXPECT_EQ(text_of(result), text_of(alone));
    const std::vector<ProgressLine> lines = progress_of(result);
    ASSERT_EQ(lines.size(), 2U) << result.describe();
    // Four digits are told.
    for (const std::size_t i : {0U, 1U})
      EXPECT_NEAR(lines[i].validation, progress[i].validation, 1.1e-4) << "line " << i;
  }
}

TEST(TrainingTest, AGptLearnsTheSameOnEveryMeshAndWritesTheSameText) {
  expect_the_same_on_every_mesh("0");
}

TEST(TrainingTest, AGptThatDropsLearnsTheSameOnEveryMesh) {
  expect_the_same_on_every_mesh("0.2");
}

TEST(TrainingTest, AGptLearnsTheSameBitForBitWhereNoSumIsSplit) {
  const LossFile file;
  const auto losses = [&](int ranks, const char* mesh) {
    // A bound that no gradient reaches: the norm is a sum over all stages.
    const CommandResult result = train_gpt(
        ranks, {"--steps", "6", "--width", "32", "--sample", "0", "--microbatches", "1", "--clip",
                "1e9", "--dropout", "0.1", "--csv", file.path(), "--mesh", mesh});
    EXPECT_GT(last_loss(result), 1) << mesh;
    return file.text();
  };
  const std::string alone = losses(1, "dp=1");
  EXPECT_EQ(std::ranges::count(alone, '\n'), 7);
  EXPECT_EQ(losses(2, "pp=2"), alone);
  EXPECT_EQ(losses(4, "pp=4"), alone);
}

TEST(TrainingTest, AGptDropsAndDrawsItsLoss) {
  const std::string picture = testing::TempDir() + "gpt" + std::to_string(::getpid()) + ".svg";
  const CommandResult result =
      train_gpt(2, {"--steps", "3", "--sample", "0", "--dropout", "0.3", "--svg", picture});
  EXPECT_GT(last_loss(result), 1);
  std::ifstream file(picture);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::filesystem::remove(picture);
  EXPECT_EQ(text.substr(0, 4), "<svg") << text;
  EXPECT_NE(text.find("3 steps"), std::string::npos) << text;
}

TEST(TrainingTest, AGptRefusesFilesThatCannotBeWrittenBeforeItsFirstStep) {
  for (const char* const option : {"--csv", "--svg"}) {
    const CommandResult result = train_gpt(2, {"--steps", "3", option, "/no/such/folder/file"});
    EXPECT_NE(result.exit_code, 0) << option;
    EXPECT_NE(result.err.find("cannot write /no/such/folder/file"), std::string::npos)
        << result.describe();
    EXPECT_EQ(result.out.find("step "), std::string::npos) << result.describe();
  }
  const CommandResult full = train_gpt(2, {"--steps", "3", "--csv", "/dev/full"});
  EXPECT_NE(full.exit_code, 0);
  EXPECT_NE(full.err.find("cannot write all of /dev/full"), std::string::npos) << full.describe();
}

TEST(TrainingTest, AGptTellsItsPlanAndTheTimeOfAStep) {
  const std::string file = testing::TempDir() + "gpt" + std::to_string(::getpid()) + ".json";
  const CommandResult result = train_gpt(4, {"--mesh", "fsdp=2,tp=2", "--steps", "3", "--sample",
                                             "0", "--explain", "on", "--trace", file});
  EXPECT_GT(last_loss(result), 1);
  for (const char* const words :
       {"1.attention.query.weight", "[S(0), S(0)]", "all modules", "reduce_scatter",
        "states of the optimizer", "all tensors, at their most", "the whole process, at its most"})
    EXPECT_NE(result.out.find(words), std::string::npos) << words << "\n" << result.describe();
  std::ifstream stream(file);
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  std::filesystem::remove(file);
  for (const char* const words :
       {"\"traceEvents\"", "\"rank 0\"", "\"rank 3\"", "\"communication 1\"", "\"AdamW\"",
        "\"linear, backward\"", "\"reduce_scatter\""})
    EXPECT_NE(text.find(words), std::string::npos) << words;
}

/// Predicted and measured, of "all tensors, at their most    1,234    1,234".
std::pair<double, double> bytes_told(const CommandResult& result, const std::string& words) {
  const std::size_t begin = result.out.find("\n" + words);
  EXPECT_NE(begin, std::string::npos) << words << "\n" << result.describe();
  if (begin == std::string::npos) return {};
  const std::size_t numbers = begin + 1 + words.size();
  std::string line = result.out.substr(numbers, result.out.find('\n', numbers) - numbers);
  std::erase(line, ',');
  std::istringstream stream(line);
  std::pair<double, double> told;
  stream >> told.first >> told.second;
  return told;
}

TEST(TrainingTest, TheMemoryThatAGptIsPredictedIsWhatItTakes) {
  for (const auto& [ranks, mesh] :
       {std::pair{1, "dp=1"}, std::pair{2, "dp=2"}, std::pair{2, "fsdp=2"}, std::pair{2, "tp=2"},
        std::pair{2, "cp=2"}, std::pair{2, "pp=2"}}) {
    // Many numbers in few samples, then few numbers in many.
    for (const auto& [width, batch] : {std::pair{"256", "2"}, std::pair{"32", "16"}}) {
      const CommandResult result =
          train_gpt(ranks, {"--mesh", mesh, "--width", width, "--batch", batch, "--steps", "3",
                            "--sample", "0", "--explain", "on", "--microbatches", "2"});
      EXPECT_GT(last_loss(result), 1);
      for (const char* const what :
           {"activations, when backward begins", "all tensors, at their most"}) {
        const auto [predicted, measured] = bytes_told(result, what);
        EXPECT_GT(measured, 0) << mesh << " " << width << " " << what;
        EXPECT_NEAR(measured, predicted, 0.02 * measured) << mesh << " " << width << " " << what;
      }
    }
  }
}

TEST(TrainingTest, TellingThePlanOfAGptChangesNothing) {
  for (const char* const mesh : {"dp=2", "fsdp=2", "tp=2", "pp=2"}) {
    const auto loss_with = [&](const char* explain) {
      return last_loss(train_gpt(2, {"--mesh", mesh, "--steps", "6", "--sample", "0", "--dropout",
                                     "0.1", "--accumulate", "2", "--explain", explain}));
    };
    EXPECT_EQ(loss_with("on"), loss_with("off")) << mesh;
  }
}

TEST(TrainingTest, AGptUnderTensorParallelismSumsAsOftenAsUnderPyTorch) {
  const CommandResult result =
      train_gpt(2, {"--mesh", "tp=2", "--steps", "3", "--sample", "0", "--explain"});
  EXPECT_GT(last_loss(result), 1);
  const std::size_t begin = result.out.find("all modules");
  ASSERT_NE(begin, std::string::npos) << result.describe();
  std::string line = result.out.substr(begin, result.out.find('\n', begin) - begin);
  while (line.find("  ") != std::string::npos) line.erase(line.find("  "), 1);
  // Two layers: two sums each forward; back one for each of queries, keys, values and the hidden
  // layer, and one for the scores.
  EXPECT_EQ(line, "all modules all_reduce 4 (1,048,576) all_reduce 9 (2,359,296)");
}

std::vector<std::string> small_gpt(const CheckpointFolder& folder, int steps) {
  return {"--steps",
          std::to_string(steps),
          "--every",
          "5",
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
          "--keep",
          "0",
          "--checkpoint",
          folder.path(),
          "--checkpoint-every",
          "5"};
}

std::vector<std::string> joined(std::vector<std::string> line,
                                const std::vector<std::string>& more) {
  line.insert(line.end(), more.begin(), more.end());
  return line;
}

/// Of the only line that begins with these words; -1: there is none.
int step_after(const CommandResult& result, const std::string& words) {
  const std::string out = "\n" + result.out;
  const std::size_t line = out.find("\n" + words);
  EXPECT_NE(line, std::string::npos) << words << "\n" << result.describe();
  if (line == std::string::npos) return -1;
  EXPECT_EQ(out.find("\n" + words, line + 1), std::string::npos) << result.describe();
  return std::atoi(out.c_str() + line + 1 + words.size());
}
int step_gone_on_after(const CommandResult& result) {
  return step_after(result, "goes on after step ");
}

struct KilledTraining {
  const char* axes;
  int ranks;
  int steps;  ///< more than are done before the kill, which follows on the tenth
};
class TrainingKillTest : public testing::TestWithParam<KilledTraining> {};

TEST_P(TrainingKillTest, AGptWhoseRankIsKilledEndsWithTheSameBits) {
  const auto [axes, ranks, steps] = GetParam();
  const CheckpointFolder calm("calm"), killed("killed");
  const LossFile calm_losses("calm"), killed_losses("killed");
  const std::vector<std::string> mesh = {"--mesh", axes};
  const double loss = last_loss(train_gpt(
      ranks, joined(joined(small_gpt(calm, steps), mesh), {"--csv", calm_losses.path()})));
  testing_support::Command job(joined(
      joined({DTRUN_BIN "/dtrun", "--nproc_per_node=" + std::to_string(ranks), "--max-restarts=1",
              DTRUN_BIN "/train_gpt"},
             small_gpt(killed, steps)),
      joined(mesh,
             {"--checkpoint-async", ranks == 2 ? "on" : "off", "--csv", killed_losses.path()})));
  ASSERT_TRUE(job.wait_for_output("step   10 "));
  const int kept = killed.last_kept();
  EXPECT_GE(kept, 5);
  bool has_killed = false;
  for (const pid_t pid : launcher::processes_with(killed.path())) {
    std::error_code none;
    const std::string program =
        std::filesystem::read_symlink("/proc/" + std::to_string(pid) + "/exe", none).filename();
    if (!has_killed && program == "train_gpt") has_killed = ::kill(pid, SIGKILL) == 0;
  }
  EXPECT_TRUE(has_killed);
  const CommandResult result = job.finish();
  EXPECT_EQ(last_loss(result), loss);
  const int after = step_gone_on_after(result);
  EXPECT_GE(after, kept) << result.describe();
  EXPECT_LT(after, steps);
  // Of all steps, with 17 digits: those before the kill and those after it.
  EXPECT_EQ(std::ranges::count(calm_losses.text(), '\n'), steps + 1);
  EXPECT_EQ(killed_losses.text(), calm_losses.text());
  EXPECT_EQ(killed.elements_of(steps), calm.elements_of(steps));
}

INSTANTIATE_TEST_SUITE_P(Meshes, TrainingKillTest,
                         testing::Values(KilledTraining{"fsdp=2", 2, 240},
                                         KilledTraining{"dp=2,tp=2", 4, 80},
                                         KilledTraining{"pp=2", 2, 80}),
                         [](const auto& tested) {
                           std::string name = tested.param.axes;
                           std::erase_if(name, [](char c) { return c == '=' || c == ','; });
                           return name;
                         });

// Two nodes on one machine; the node whose dtrun is killed is started again, as Slurm would.
TEST(TrainingTest, AGptOfWhichANodeIsKilledGoesOnAndEndsWithTheSameBits) {
  const CheckpointFolder calm("calm"), killed("killed");
  constexpr int kSteps = 240;
  const double loss =
      last_loss(train_gpt(2, joined(small_gpt(calm, kSteps), {"--mesh", "fsdp=2"})));
  const testing_support::OwnPort port;
  const auto node = [&](int rank) {
    return std::make_unique<testing_support::Command>(
        joined(joined({DTRUN_BIN "/dtrun", "--nnodes=2", "--node_rank=" + std::to_string(rank),
                       "--rdzv_endpoint=127.0.0.1:" + port.text(), "--nproc_per_node=1",
                       "--max-restarts=1", DTRUN_BIN "/train_gpt"},
                      small_gpt(killed, kSteps)),
               {"--mesh", "fsdp=2"}));
  };
  const auto head = node(0);
  auto member = node(1);
  ASSERT_TRUE(head->wait_for_output("step   10 "));
  const int kept = killed.last_kept();
  EXPECT_GE(kept, 5);
  member->signal(SIGKILL);
  member->finish();
  member = node(1);
  const CommandResult result = head->finish(), other = member->finish();
  EXPECT_EQ(other.exit_code, 0) << other.describe();
  EXPECT_EQ(last_loss(result), loss);
  const int after = step_gone_on_after(result);
  EXPECT_GE(after, kept) << result.describe();
  EXPECT_LT(after, kSteps);
  EXPECT_EQ(killed.elements_of(kSteps), calm.elements_of(kSteps));
}

// Nobody starts the killed node again.
TEST(TrainingTest, AGptOfTwoNodesGoesOnWithTheOneThatIsLeft) {
  const CheckpointFolder calm("calm"), halved("halved");
  constexpr int kSteps = 240;
  const double loss = last_loss(train_gpt(1, small_gpt(calm, kSteps)));
  const testing_support::OwnPort port;
  const auto start_node = [&] {
    return std::make_unique<testing_support::Command>(
        joined({"sh", "-c", "exec \"$@\" 2>&1", "sh", DTRUN_BIN "/dtrun", "-v", "--nnodes=1:2",
                "--rdzv_backend=c10d", "--rdzv_endpoint=127.0.0.1:" + port.text(),
                "--rdzv_conf=last_call_timeout=2", "--nproc_per_node=1", DTRUN_BIN "/train_gpt"},
               small_gpt(halved, kSteps)));
  };
  const auto host = start_node();
  ASSERT_TRUE(host->wait_for_output("hosts the rendezvous"));
  const auto member = start_node();
  ASSERT_TRUE(host->wait_for_output("step   10 "));
  member->signal(SIGKILL);
  member->finish();
  const CommandResult result = host->finish();
  EXPECT_NEAR(last_loss(result), loss, 2e-5);
  int after = 0;
  const std::size_t at = result.out.rfind("goes on after step ");
  ASSERT_NE(at, std::string::npos) << result.describe();
  std::sscanf(result.out.c_str() + at, "goes on after step %d", &after);
  EXPECT_EQ(halved.ranks_of(after), 2);
  // The last that the two have kept.
  EXPECT_EQ(halved.ranks_of(after + 5), 1);
  EXPECT_EQ(halved.ranks_of(kSteps), 1);
}

// Slurm's preemption sends SIGTERM, `sbatch --signal=USR1@120` SIGUSR1.
TEST(TrainingTest, ADrainedGptSavesItsLastStepAndEndsWithTryLater) {
  const CheckpointFolder calm("whole");
  const double loss = last_loss(train_gpt(2, small_gpt(calm, 240)));
  for (const int warning : {SIGTERM, SIGUSR1}) {
    const CheckpointFolder drained("drained");
    // Saved at the end only, were it not for the signal.
    const std::vector<std::string> line =
        joined({DTRUN_BIN "/dtrun", "--nproc_per_node=2", "--on-signal=TERM=drain:60,USR1=drain:60",
                DTRUN_BIN "/train_gpt"},
               joined(small_gpt(drained, 240), {"--checkpoint-every", "1000"}));
    testing_support::Command job(line);
    ASSERT_TRUE(job.wait_for_output("step    5 "));
    job.signal(warning);
    const CommandResult first = job.finish();
    EXPECT_EQ(first.exit_code, 75) << first.describe();
    const int saved = step_after(first, "was asked to end, and has saved step ");
    EXPECT_GE(saved, 5);
    const CommandResult second = run_command(line);
    EXPECT_EQ(step_gone_on_after(second), saved);
    EXPECT_EQ(last_loss(second), loss);
    EXPECT_EQ(drained.elements_of(240), calm.elements_of(240));
  }
}

TEST(TrainingTest, AGptGoesOnWithMoreRanksAndFewerAndPassesDamageOver) {
  const CheckpointFolder whole("whole"), parts("parts");
  const std::vector<std::string> alone = small_gpt(whole, 15), cut = small_gpt(parts, 15);
  const double loss = last_loss(train_gpt(1, alone));
  const auto go_on = [&](int ranks, const char* mesh, const char* from) {
    const CommandResult result = train_gpt(ranks, joined(cut, {"--mesh", mesh}));
    EXPECT_NEAR(last_loss(result), loss, 2e-5) << mesh;
    EXPECT_NE(result.out.find(std::string("goes on after step ") + from), std::string::npos)
        << result.describe();
    return result;
  };
  last_loss(train_gpt(2, joined(cut, {"--mesh", "fsdp=2"})));
  std::filesystem::remove_all(parts.path() + "/step-15");
  go_on(3, "dp=3", "10");
  // The last one is damaged, and told.
  std::filesystem::resize_file(parts.path() + "/step-15/manifest.json", 100);
  EXPECT_NE(go_on(4, "fsdp=2,tp=2", "10").err.find("step-15 is passed over"), std::string::npos);
  std::filesystem::remove_all(parts.path() + "/step-15");
  std::filesystem::remove_all(parts.path() + "/step-10");
  go_on(2, "pp=2", "5");
  std::filesystem::remove_all(parts.path() + "/step-15");
  go_on(1, "dp=1", "10");
}

TEST(TrainingTest, WhatAGptCannotDoIsToldByName) {
  const std::vector<std::pair<std::vector<std::string>, const char*>> lines = {
      {{"--mesh", "ep=2"}, "--mesh ep=2 is not understood"},
      {{"--mesh", "dp=1,dp=1"}, "is not understood"},
      {{"--sequence", "yes"}, "--sequence yes is not understood"},
      {{"--stops", "3"}, "there is no option --stops"},
      {{"--steps"}, "--steps lacks its value"},
      {{"--steps", "0"}, "--steps 0 is not understood"},
      {{"--steps", "5x"}, "--steps 5x is not understood"},
      {{"--dropout", "2"}, "--dropout 2 is not understood"},
      {{"--rate", "fast"}, "--rate fast is not understood"},
      {{"--mesh", "dp=2x"}, "--mesh dp=2x is not understood"},
      {{"--width", "30"}, "--width is no multiple of --heads"},
      {{"--data", "/nowhere"}, "cannot read /nowhere"},
      {{"--explain", "2"}, "--explain 2 is not understood"},
      {{"--rate", "1e30"}, "\"0.bytes.weight\" is not finite"}};
  for (const auto& [line, told] : lines) {
    const CommandResult result = train_gpt(1, line);
    EXPECT_NE(result.exit_code, 0) << told;
    EXPECT_NE(result.err.find(told), std::string::npos) << result.describe();
  }
}

TEST(TrainingTest, ALossThatIsNoNumberIsToldWithItsStepAndParameter) {
  for (const auto& [ranks, mesh] :
       {std::pair{1, "dp=1"}, std::pair{2, "fsdp=2"}, std::pair{2, "tp=2"}, std::pair{2, "pp=2"}}) {
    const CommandResult result =
        train_gpt(ranks, {"--mesh", mesh, "--rate", "1e30", "--steps", "9"});
    EXPECT_NE(result.exit_code, 0) << mesh;
    // The first rate is warmed up from nothing: one step is taken with it.
    EXPECT_TRUE(std::regex_search(result.err, std::regex("the loss of step [2-9] is no number")))
        << result.describe();
    EXPECT_TRUE(std::regex_search(result.err, std::regex("\"[0-9a-z_.]+\" is not finite")))
        << result.describe();
  }
}

// Not when the first of 50 steps is to be saved.
TEST(TrainingTest, AFolderThatCannotHaveCheckpointsIsToldBeforeTheFirstStep) {
  const CheckpointFolder folder("file");
  std::ofstream(folder.path()) << "no folder";
  for (const std::string& path : {folder.path(), folder.path() + "/runs"}) {
    const CommandResult result =
        train_gpt(2, {"--mesh", "dp=2", "--every", "1", "--checkpoint", path});
    EXPECT_NE(result.exit_code, 0);
    EXPECT_NE(result.err.find("no checkpoint can be saved to " + path), std::string::npos)
        << result.describe();
    EXPECT_EQ(result.out.find("step"), std::string::npos) << result.describe();
  }
}

TEST(TrainingTest, TheHelpOfAGptIsPrintedOnceWithEachOptionAndItsValue) {
  const CommandResult result = train_gpt(2, {"--steps", "3", "--help"});
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  const std::string line = "  --width             numbers of a position, at least 1 (64)\n";
  const std::size_t place = result.out.find(line);
  ASSERT_NE(place, std::string::npos) << result.describe();
  EXPECT_EQ(result.out.find(line, place + 1), std::string::npos);
}

TEST(TrainingTest, ExpertsLearnTheSameOnAnyNumberOfRanks) {
  const auto trained = [](const std::string& ranks) {
    return run_command(
        {DTRUN_BIN "/dtrun", "--nproc_per_node=" + ranks, DTRUN_BIN "/mixture_of_experts"});
  };
  const double loss = last_loss(trained("1"));
  EXPECT_LT(loss, 0.6);
  for (const char* ranks : {"2", "4"}) EXPECT_NEAR(last_loss(trained(ranks)), loss, 2e-5) << ranks;
  const CommandResult odd = trained("3");
  EXPECT_NE(odd.exit_code, 0);
  EXPECT_NE(odd.err.find("mixture_of_experts on 3 ranks"), std::string::npos) << odd.describe();
}

}  // namespace
}  // namespace dtrun
