// train_mlp and train_gpt learn, and learn the same on every mesh.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "support/command.h"

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
  std::vector<std::string> line = {DTRUN_BIN "/dtrun", "--nproc_per_node=" + std::to_string(ranks),
                                   DTRUN_BIN "/train_mlp", "--mesh", mesh};
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

double last_loss(const CommandResult& result) {
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  const std::size_t last = result.out.rfind("\nloss: ");
  if (last != std::string::npos) return std::strtod(result.out.c_str() + last + 7, nullptr);
  ADD_FAILURE() << result.describe();
  return 0;
}

/// Between the lines of progress and the last one.
std::string text_of(const CommandResult& result) {
  const std::size_t begin = result.out.find("s left\n"), end = result.out.rfind("\nloss: ");
  return begin < end ? result.out.substr(begin + 7, end - begin - 7) : "";
}

TEST(TrainingTest, AGptLearnsTheSameOnEveryMeshAndWritesTheSameText) {
  const std::vector<std::string> line = {"--steps",  "8", "--every",   "8",  "--accumulate", "2",
                                         "--batch",  "6", "--context", "32", "--width",      "32",
                                         "--sample", "20"};
  const CommandResult alone = train_gpt(1, line);
  const double loss = last_loss(alone);
  EXPECT_LT(loss, 5);  // it begins at log(256)
  EXPECT_EQ(text_of(alone).size(), 16U + 20U) << alone.describe();
  // 4 heads and 6 samples: neither fits 4 and 3 ranks alike.
  for (const char* mesh : {"dp=4", "fsdp=2,tp=2", "dp=2,fsdp=2", "tp=3"}) {
    SCOPED_TRACE(mesh);
    std::vector<std::string> on_mesh = line;
    on_mesh.insert(on_mesh.end(), {"--mesh", mesh});
    const CommandResult result = train_gpt(std::strcmp(mesh, "tp=3") == 0 ? 3 : 4, on_mesh);
    EXPECT_NEAR(last_loss(result), loss, 2e-5);
    EXPECT_EQ(text_of(result), text_of(alone));
  }
}

TEST(TrainingTest, WhatAGptCannotDoIsToldByName) {
  const std::vector<std::pair<std::vector<std::string>, const char*>> lines = {
      {{"--mesh", "pp=2"}, "--mesh pp=2 is not understood"},
      {{"--stops", "3"}, "there is no option --stops"},
      {{"--steps"}, "--steps lacks its value"},
      {{"--steps", "0"}, "a value of 0"},
      {{"--width", "30"}, "a width of 30 for 4 heads"},
      {{"--data", "/nowhere"}, "cannot read /nowhere"},
      {{"--rate", "1e30"}, "is no number"}};
  for (const auto& [line, told] : lines) {
    const CommandResult result = train_gpt(1, line);
    EXPECT_NE(result.exit_code, 0) << told;
    EXPECT_NE(result.err.find(told), std::string::npos) << result.describe();
  }
}

}  // namespace
}  // namespace dtrun
