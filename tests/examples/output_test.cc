// The examples print, under the real dtrun, what the documents show that they were ported from.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "dtrun/base/deadline.h"
#include "support/command.h"
#include "support/promptness.h"

namespace dtrun {
namespace {

using testing_support::CommandResult;
using testing_support::run_command;

CommandResult run_example(const std::string& name) {
  return run_command({DTRUN_BIN "/dtrun", "--nproc_per_node=4", DTRUN_BIN "/" + name});
}

// The lines of one rank in the order in which it printed them.
std::vector<std::string> lines_of_rank(const CommandResult& result, int rank) {
  const std::string start = "[Rank " + std::to_string(rank) + "]";
  std::vector<std::string> lines;
  std::size_t at = 0;
  while (at < result.out.size()) {
    const std::size_t end = std::min(result.out.find('\n', at), result.out.size());
    if (result.out.compare(at, start.size(), start) == 0)
      lines.push_back(result.out.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

TEST(ExampleTest, FullTensorExamplePrintsTheDocumentsLines) {
  const CommandResult result = run_example("full_tensor_example");
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  const std::vector<std::string> expected = {
      "[Rank 0] After broadcast, full tensor: tensor([0., 1., 2., 3.])",
      "[Rank 0] DTensor full_tensor: tensor([0., 1., 2., 3.])",
      "[Rank 0] Local shard: tensor([0.])",
      "[Rank 0] Original full tensor: tensor([0., 1., 2., 3.])",
      "[Rank 1] After broadcast, full tensor: tensor([0., 1., 2., 3.])",
      "[Rank 1] DTensor full_tensor: tensor([0., 1., 2., 3.])",
      "[Rank 1] Local shard: tensor([1.])",
      "[Rank 2] After broadcast, full tensor: tensor([0., 1., 2., 3.])",
      "[Rank 2] DTensor full_tensor: tensor([0., 1., 2., 3.])",
      "[Rank 2] Local shard: tensor([2.])",
      "[Rank 3] After broadcast, full tensor: tensor([0., 1., 2., 3.])",
      "[Rank 3] DTensor full_tensor: tensor([0., 1., 2., 3.])",
      "[Rank 3] Local shard: tensor([3.])",
  };
  EXPECT_EQ(result.sorted_lines(), expected) << result.describe();
}

TEST(ExampleTest, GatherShardsAndConcatPrintsTheDocumentsLines) {
  const CommandResult result = run_example("gather_shards_and_concat");
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_EQ(lines_of_rank(result, 0),
            (std::vector<std::string>{
                "[Rank 0] Original full tensor: tensor([0., 1., 2., 3.])",
                "[Rank 0] Local shard: tensor([0.])",
                "[Rank 0] Received shard from rank 1, shard: tensor([1.])",
                "[Rank 0] Received shard from rank 2, shard: tensor([2.])",
                "[Rank 0] Received shard from rank 3, shard: tensor([3.])",
                "[Rank 0] Gathered full tensor: tensor([0., 1., 2., 3.])",
            }))
      << result.describe();
  for (int rank = 1; rank < 4; ++rank) {
    const std::string number = std::to_string(rank);
    EXPECT_EQ(lines_of_rank(result, rank),
              (std::vector<std::string>{
                  "[Rank " + number + "] Local shard: tensor([" + number + ".])",
                  "[Rank " + number + "] Sending local shard to rank 0 by dist.send()"}))
        << result.describe();
  }
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 12);
}

/// "tensor([1., 1., 2., 2.])" of begin / divisor, ...
std::string row_text(int begin, int end, int divisor) {
  std::string text;
  for (int number = begin; number < end; ++number)
    text += (text.empty() ? "" : ", ") + std::to_string(number / divisor) + ".";
  return "tensor([" + text + "])";
}

/// "tensor([8., 8., 8., 8.])".
std::string row_of(const std::string& number) {
  const std::string each = number + ".";
  return "tensor([" + each + ", " + each + ", " + each + ", " + each + "])";
}

/// Behind the line's words, of "tensor([0.1, -0.2])".
std::vector<double> numbers_behind(const std::string& text, const std::string& words) {
  const std::size_t at = text.find(words + " tensor([");
  EXPECT_NE(at, std::string::npos) << words;
  if (at == std::string::npos) return {};
  std::istringstream rest(text.substr(at + words.size() + 9));
  std::vector<double> numbers;
  char comma = ',';
  for (double number = 0; comma == ',' && rest >> number >> comma;) numbers.push_back(number);
  return numbers;
}

/// The parts, and what each promises.
std::vector<std::string> demo_lines(int ranks) {
  const std::string count = std::to_string(ranks);
  const std::string hidden = std::to_string(4 * ranks);
  const std::string n = std::to_string(2 * ranks);
  const std::string sum = std::to_string(ranks * (ranks + 1) / 2);
  const std::string of_n = ": global [" + n + ", " + n + "], local [";
  std::vector<std::string> lines = {
      "=== 1. Device mesh ===",
      "=== 2. Making distributed tensors ===",
      "=== 3. Placements ===",
      "=== 4. Operations ===",
      "=== 5. Redistribution ===",
      "=== 7. A network with distributed parameters ===",
      "=== 8. Collectives ===",
      "[Rank 1] 1-D mesh DeviceMesh((ranks=" + count + "), 'cpu', stride=(1,)): coordinate [1]",
      "[Rank 0] DTensor::from_local(): global [" + std::to_string(2 * ranks) +
          ", 3], local [2, 3], placements [S(0)]",
      "[Rank 1] distribute_tensor(): global [" + n + ", 2], local [2, 2], placements [S(0)]",
      "[Rank 1] distribute_tensor(), uneven: global [" + std::to_string(2 * ranks - 1) +
          ", 2], local [" + (ranks == 2 ? "1" : "2") + ", 2], placements [S(0)]",
      "[Rank 1] zeros(): global [" + count + ", 4], local [1, 4], placements [S(0)]",
      "[Rank 1] ones(): global [4, " + count + "], local [4, 1], placements [S(1)]",
      "[Rank 1] randn(): global [" + count + ", " + count + "], local [" + count + ", " + count +
          "], placements [R]",
      "[Rank 1] [S(0)]: tensor([2., 3.])",
      "[Rank 1] [P(sum)]: tensor([1., 1., 1.])",
      "[Rank 0] the Partial one, added up: tensor([" + count + "., " + count + "., " + count +
          ".])",
      "[Rank 1] a + b" + of_n + "2, " + n + "], placements [S(0)]",
      "[Rank 1] a * b" + of_n + "2, " + n + "], placements [S(0)]",
      "[Rank 1] matmul(a, replicated)" + of_n + "2, " + n + "], placements [S(0)]",
      "[Rank 1] matmul(columns, rows)" + of_n + n + ", " + n + "], placements [P(sum)]",
      "[Rank 0] sum " + std::to_string(12 * ranks * ranks) + ", mean 2",
      "[Rank 0] a + b begins with tensor([3., 3., 3., 3.])",
      "[Rank 0] a * b begins with tensor([2., 2., 2., 2.])",
      "[Rank 0] matmul(a, replicated) begins with " + row_of(n),
      "[Rank 0] matmul(columns, rows) begins with " + row_of(std::to_string(4 * ranks)),
      "[Rank 0] Replicate to Shard(1): no communication",
      "[Rank 0] gradient of down.bias: global [2], local [2], placements [R]",
      "[Rank 1] up.weight: global [" + hidden + ", 8], local [4, 8], placements [S(0)]",
      "[Rank 1] down.weight: global [2, " + hidden + "], local [2, 4], placements [S(1)]",
      "[Rank 1] gradient of up.weight: global [" + hidden + ", 8], local [4, 8], placements [S(0)]",
      "[Rank 1] all_reduce: tensor([" + sum + "., " + sum + ".])",
      "[Rank 1] all_gather: " + row_text(2, 2 * ranks + 2, 2),
      "[Rank 1] reduce_scatter: tensor([" + count + "., " + count + ".])",
      "=== All parts ran on " + count + " ranks ===",
  };
  // Sixteen of two digits take more than a line.
  if (ranks < 8) lines.push_back("[Rank 1] [R]: " + row_text(0, 2 * ranks, 1));
  if (ranks >= 4) {
    lines.push_back("=== 6. A mesh of two axes ===");
    const std::string columns = std::to_string(16 / ranks);
    lines.push_back("[Rank 3] cut along both axes: global [8, 8], local [4, " + columns +
                    "], placements [S(0), S(1)]");
    const std::string tp = std::to_string(ranks / 2), last = std::to_string(ranks - 1);
    lines.push_back("[Rank " + last + "] 2-D mesh DeviceMesh((dp=2, tp=" + tp +
                    "), 'cpu', stride=(" + tp + ", 1)): coordinate [1, " +
                    std::to_string(ranks / 2 - 1) + "]");
    lines.push_back("[Rank 0] samples times weight: no communication");
  } else {
    lines.push_back(
        "=== 6. A mesh of two axes needs 4 ranks: dtrun --nproc_per_node=4 dtensor_demo ===");
  }
  return lines;
}

TEST(ExampleTest, DTensorDemoShowsItsEightPartsOnTwoFourAndEightRanks) {
  for (const int ranks : {2, 4, 8}) {
    const CommandResult result =
        run_command({DTRUN_BIN "/dtrun", "--nproc_per_node=" + std::to_string(ranks),
                     DTRUN_BIN "/dtensor_demo"});
    ASSERT_EQ(result.exit_code, 0) << result.describe();
    EXPECT_EQ(result.err, "");
    for (const std::string& line : demo_lines(ranks))
      EXPECT_NE(result.out.find(line + "\n"), std::string::npos) << line << result.describe();
    for (const std::string move :
         {"Shard(0) to Replicate: 1 all_gather (", "Partial to Replicate: 1 all_reduce (",
          "Partial to Shard(0): 1 reduce_scatter (", "Shard(0) to Shard(1): 1 all_to_all (",
          "operations: 2 all_reduce (", "forward: 1 all_reduce (", "its collection: 1 all_reduce (",
          "collectives: 1 all_gather ("})
      EXPECT_NE(result.out.find("[Rank 0] " + move), std::string::npos) << move;
    const std::vector<double> gradient =
        numbers_behind(result.out, "gradient of down.weight begins with");
    const std::vector<double> alone =
        numbers_behind(result.out, "of the whole network it begins with");
    ASSERT_EQ(gradient.size(), 4U) << result.describe();
    ASSERT_EQ(alone.size(), 4U) << result.describe();
    for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(gradient[i], alone[i], 2e-4);
    const std::size_t loss = result.out.find("[Rank 0] loss ");
    ASSERT_NE(loss, std::string::npos);
    const std::string line = result.out.substr(loss, result.out.find('\n', loss) - loss);
    const std::size_t value = std::string("[Rank 0] loss ").size();
    // One sum is split over the ranks.
    const double split = std::stod(line.substr(value));
    EXPECT_NEAR(split, std::stod(line.substr(line.rfind(' ') + 1)), 1e-6 * split) << line;
  }
}

TEST(ExampleTest, DTensorDemoRunsOnTheGpusThatThereAre) {
  const CommandResult result =
      run_command({DTRUN_BIN "/dtrun", "--nproc_per_node=2", DTRUN_BIN "/dtensor_demo_on_devices",
                   "--backend", "cpu:cpu,cuda:simulated"});
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_EQ(result.err, "");
  for (std::string line : demo_lines(2)) {
    if (line.find("tensor(") != std::string::npos) continue;  // a GPU's names its device
    if (const std::size_t cpu = line.find("'cpu'"); cpu != std::string::npos)
      line.replace(cpu, 5, "'cuda'");
    EXPECT_NE(result.out.find(line + "\n"), std::string::npos) << line << result.describe();
  }
  EXPECT_NE(result.out.find("all_reduce: tensor([3., 3.], device='cuda:1')"), std::string::npos);
}

TEST(ExampleTest, DTensorDemoRefusesWhatItDoesNotKnow) {
  const CommandResult words = run_command({DTRUN_BIN "/dtensor_demo", "--what"});
  EXPECT_EQ(words.exit_code, 64) << words.describe();
  EXPECT_EQ(words.err, "Usage: dtrun --nproc_per_node=4 dtensor_demo [--backend NAME]\n");
  const CommandResult backend = run_command(
      {DTRUN_BIN "/dtrun", "--nproc_per_node=2", DTRUN_BIN "/dtensor_demo", "--backend", "ncl"});
  EXPECT_NE(backend.exit_code, 0);
  EXPECT_NE(backend.err.find("no backend 'ncl'"), std::string::npos) << backend.describe();
}

TEST(ExampleTest, TheShardingSpecProgramDrawsThePicturesAndTellsTheConvertersPath) {
  const CommandResult result =
      run_command({DTRUN_BIN "/dtrun", "--nproc_per_node=4", DTRUN_BIN "/sharding_spec"});
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(result.out.find("DTensor(local_tensor=tensor([[0."), 0U) << result.describe();
  const std::string after_local =
      ", device_mesh=DeviceMesh((2, 2), 'cpu', stride=(2, 1)), "
      "placements=(Shard(dim=0), Replicate()))\n";
  const std::size_t local_end = result.out.find(after_local);
  ASSERT_NE(local_end, std::string::npos) << result.describe();
  // Rank 0 has the first 8 of a's 16 rows.
  const std::size_t local_begin = std::string("DTensor(local_tensor=").size();
  const std::string rows = result.out.substr(local_begin, local_end - local_begin - 2);
  EXPECT_EQ(std::count(rows.begin(), rows.end(), '['), 1 + 8) << rows;
  EXPECT_EQ(std::count(rows.begin(), rows.end(), '.'), 8 * 32) << rows;
  const std::size_t global_begin = local_end + after_local.size();
  const std::size_t global_end = result.out.find("to_global() gives a\n");
  ASSERT_NE(global_end, std::string::npos) << result.describe();
  const std::string global = result.out.substr(global_begin, global_end - global_begin);
  EXPECT_EQ(global.substr(0, rows.size()), rows);
  EXPECT_EQ(std::count(global.begin(), global.end(), '.'), 16 * 32) << global;
  const std::string pictures = R"([S0, R]
i64[4, 4] on (2, 2): [S(0), R]
┌─ rank 0 ───────────┬─ rank 1 ───────────┐
│ [[1, 2, 3, 4],     │ [[1, 2, 3, 4],     │
│  [4, 5, 6, 7]]     │  [4, 5, 6, 7]]     │
├─ rank 2 ───────────┼─ rank 3 ───────────┤
│ [[ 8,  9, 10, 11], │ [[ 8,  9, 10, 11], │
│  [12, 13, 14, 15]] │  [12, 13, 14, 15]] │
└────────────────────┴────────────────────┘

[S01, R]
i64[4, 4] on (2, 2): [S(0), S(0)]
┌─ rank 0 ───────────┬─ rank 1 ───────────┐
│ [[1, 2, 3, 4]]     │ [[4, 5, 6, 7]]     │
├─ rank 2 ───────────┼─ rank 3 ───────────┤
│ [[ 8,  9, 10, 11]] │ [[12, 13, 14, 15]] │
└────────────────────┴────────────────────┘

[R, S01, R]->[R, S0, R]->[S0, R, R]->[S01, R, R]
  all_gather(gather_dim 1, axis 1)
  all_to_all(gather_dim 1, shard_dim 0, axis 0)
  local_chunk(shard_dim 0, axis 1)
  forward 7.3 us, backward 7.3 us
)";
  EXPECT_NE(result.out.find(pictures), std::string::npos) << result.describe();
  EXPECT_NE(result.out.find("redistributed to [S01, R, R]: the same elements\n"),
            std::string::npos);
}

// The page's common errors: each is named with the line, and nobody hangs.
TEST(ExampleTest, TheDistributedTensorProgramsMistakesAreNamed) {
  const std::pair<const char*, std::vector<const char*>> mistakes[] = {
      {"dimension",
       {"sharding dimension mismatch: S(2) of a tensor of shape [4, 4]",
        "redistribute at distributed_tensor.cc:"}},
      {"barrier",
       {"ranks of group 'world' disagree: rank 0 called barrier #2 at distributed_tensor.cc:",
        "called all_reduce #2 (f32 x 4, sum) at distributed_tensor.cc:"}},
      {"nonsense", {"--mistake=nonsense is none", "try: dimension, barrier or missing"}},
      {"missing", {"rank 0 (pid ", "has left group 'world'", "distributed_tensor.cc:"}}};
  for (const auto& [mistake, words] : mistakes) {
    const base::Deadline deadline = base::Deadline::after(testing_support::kPatience);
    const CommandResult result =
        run_command({DTRUN_BIN "/dtrun", "--nproc_per_node=4", DTRUN_BIN "/distributed_tensor",
                     "--mistake", mistake});
    EXPECT_FALSE(deadline.expired()) << "it hung until something ended it" << result.describe();
    EXPECT_NE(result.exit_code, 0) << result.describe();
    for (const char* word : words) {
      EXPECT_NE(result.err.find(word), std::string::npos) << word << result.describe();
    }
  }
}

TEST(ExampleTest, TheDemosScriptTellsEveryRedistributionAndRefusesWhatItDoesNotKnow) {
  const std::string script = DTRUN_SOURCE_DIR "/examples/run_dtensor_demo.sh";
  testing_support::CommandOptions options;
  options.environment["BIN"] = DTRUN_BIN;
  const CommandResult told = run_command({script, "basic", "--cpu", "--debug"}, options);
  ASSERT_EQ(told.exit_code, 0) << told.describe();
  EXPECT_NE(told.err.find("from [S(0)] to [S(1)]: all_to_all along ranks (16 bytes sent)"),
            std::string::npos)
      << told.describe();
  EXPECT_NE(told.err.find("dtensor_demo.cc:"), std::string::npos);
  // The line that the README shows.
  std::stringstream page;
  page << std::ifstream(DTRUN_SOURCE_DIR "/examples/DTensor_README.md").rdbuf();
  const std::string words = "redistribute at examples/";
  const std::string shown = page.str().substr(page.str().find(words) + words.size());
  EXPECT_NE(told.err.find(shown.substr(0, shown.find(": ") + 2)), std::string::npos)
      << told.describe();
  EXPECT_EQ(run_command({script, "huge"}, options).exit_code, 64);
  options.environment["BIN"] = "/nowhere";
  const CommandResult absent = run_command({script}, options);
  EXPECT_EQ(absent.exit_code, 66);
  EXPECT_NE(absent.err.find("/nowhere/dtrun"), std::string::npos) << absent.describe();
}

/// What rank 0 tells of its moves, in order: "item: f32[] from [P(sum)] to [R]: ...".
std::vector<std::string> moves_told(const std::string& variable) {
  testing_support::CommandOptions options;
  options.environment[variable] = "+dtensor";
  const CommandResult result =
      run_command({DTRUN_BIN "/dtrun", "--nproc_per_node=2", DTRUN_BIN "/dtensor_demo"}, options);
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  const std::regex line(
      "\\[dtrun rank 0 [^\\]]* D dtensor\\] ([a-z_' ]+)( at [^ ]*dtensor_demo.cc:[0-9]+|, argument "
      "1|, backward): ([^\n]*) along ranks");
  std::vector<std::string> moves;
  for (std::sregex_iterator at(result.err.begin(), result.err.end(), line), end; at != end; ++at)
    moves.push_back((*at)[1].str() + ": " + (*at)[3].str());
  return moves;
}

TEST(ExampleTest, BothLogsOfTheDemoTellEachMoveWithItsCause) {
  const std::vector<std::string> moves = {
      "full_tensor: f32[3] from [P(sum)] to [R]: all_reduce",
      "redistribute: f32[4, 4] from [S(0)] to [S(1)]: all_to_all",
      "item: f32[] from [P(sum)] to [R]: all_reduce",
      "item: f32[] from [P(sum)] to [R]: all_reduce",
      "full_tensor: f32[4, 4] from [S(0)] to [R]: all_gather",
      "full_tensor: f32[4, 4] from [S(0)] to [R]: all_gather",
      "full_tensor: f32[4, 4] from [S(0)] to [R]: all_gather",
      "full_tensor: f32[4, 4] from [P(sum)] to [R]: all_reduce",
      "redistribute: f32[4, 4] from [S(0)] to [R]: all_gather",
      "redistribute: f32[4, 4] from [R] to [S(1)]: local_chunk",
      "redistribute: f32[4, 4] from [P(sum)] to [R]: all_reduce",
      "redistribute: f32[4, 4] from [P(sum)] to [S(0)]: reduce_scatter",
      "redistribute: f32[4, 4] from [S(0)] to [S(1)]: all_to_all",
      "linear: f32[2] from [R] to [P(sum)]: to_partial",
      "square: f32[6, 2] from [P(sum)] to [R]: all_reduce",
      "full_tensor: f32[2, 8] from [S(1)] to [R]: all_gather",
      "the gradient's sum: f32[4, 2] from [R] to [S(0)]: local_chunk",
      "the gradient's sum: f32[8, 2] from [P(sum)] to [R]: all_reduce",
      "full_tensor: f32[4] from [S(0)] to [R]: all_gather",
      "redistribute: f32[4] from [P(sum)] to [S(0)]: reduce_scatter"};
  EXPECT_EQ(moves_told("DTRUN_LOGS"), moves);
  EXPECT_EQ(moves_told("TORCH_LOGS"), moves);
}

/// The lines of the log of DTensor alone.
std::string log_of(int ranks, const std::vector<std::string>& program) {
  testing_support::CommandOptions options;
  options.environment["TORCH_LOGS"] = "+dtensor";
  std::vector<std::string> command = {DTRUN_BIN "/dtrun",
                                      "--nproc_per_node=" + std::to_string(ranks)};
  command.insert(command.end(), program.begin(), program.end());
  const CommandResult result = run_command(command, options);
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  std::string log;
  for (std::size_t at = 0, end = 0; at < result.err.size(); at = end + 1) {
    end = std::min(result.err.find('\n', at), result.err.size());
    const std::string line = result.err.substr(at, end - at);
    if (line.find(" D dtensor] ") != std::string::npos) log += line + "\n";
  }
  return log;
}

// Each of them with the line of the program that asked for it, or with the operator's name.
TEST(ExampleTest, TheLogsOfTrainingsTellWhatEachLayerSends) {
  const std::vector<std::string> small = {"--width", "32", "--batch", "8", "--sample", "0"};
  struct Case {
    std::string mesh;
    std::vector<std::string> told;
  };
  const Case cases[] = {
      {"tp=2", {"Rowwise of 1.down at ", "clip_grad_norm_ at "}},
      {"fsdp=2", {"unshard of ", "gradients of ", "clip_grad_norm_ at "}},
      {"pp=2", {"a stage's output at ", "a stage's gradient at ", "the pipeline's loss at "}},
      {"dp=2", {"data_parallel at ", "data_parallel's bucket, backward at "}},
      {"cp=2", {"ring_attention at ", "ring_attention, backward at "}}};
  for (const Case& one : cases) {
    std::vector<std::string> program = {DTRUN_BIN "/train_gpt", "--mesh", one.mesh, "--steps", "2"};
    program.insert(program.end(), small.begin(), small.end());
    const std::string log = log_of(2, program);
    EXPECT_EQ(log.find("dtensor/src/"), std::string::npos) << one.mesh << "\n" << log;
    EXPECT_EQ(log.find("an operator"), std::string::npos) << one.mesh << "\n" << log;
    for (const std::string& told : one.told)
      EXPECT_NE(log.find(" D dtensor] " + told), std::string::npos) << told << one.mesh << "\n"
                                                                    << log;
    EXPECT_NE(log.find("train_gpt.cc:"), std::string::npos) << one.mesh << "\n" << log;
  }
  const std::string drawn = log_of(4, {DTRUN_BIN "/sharding_spec"});
  EXPECT_NE(drawn.find("shards_text at "), std::string::npos) << drawn;
  EXPECT_EQ(drawn.find("dtensor/src/"), std::string::npos) << drawn;
}

TEST(ExampleTest, TheDemosScriptStartsFourRanksAndEight) {
  const std::string script = DTRUN_SOURCE_DIR "/examples/run_dtensor_demo.sh";
  testing_support::CommandOptions options;
  options.environment["BIN"] = DTRUN_BIN;
  const std::pair<std::vector<std::string>, int> wanted[] = {
      {{"--cpu"}, 4}, {{"full", "--cpu"}, 4}, {{"large", "--cpu"}, 8}, {{"--cpu", "large"}, 8}};
  for (const auto& [arguments, ranks] : wanted) {
    std::vector<std::string> command = {script};
    command.insert(command.end(), arguments.begin(), arguments.end());
    const CommandResult told = run_command(command, options);
    ASSERT_EQ(told.exit_code, 0) << told.describe();
    EXPECT_EQ(told.err, "");
    for (const std::string& line : {"=== All parts ran on " + std::to_string(ranks) + " ranks ===",
                                    "[Rank " + std::to_string(ranks - 1) +
                                        "] cut along both axes: global [8, 8], local [4, " +
                                        std::to_string(16 / ranks) + "], placements [S(0), S(1)]"})
      EXPECT_NE(told.out.find(line + "\n"), std::string::npos) << line << told.describe();
    EXPECT_EQ(told.out.find("[Rank " + std::to_string(ranks) + "]"), std::string::npos);
  }
  const CommandResult debug = run_command({script, "large", "--cpu", "--debug"}, options);
  ASSERT_EQ(debug.exit_code, 0) << debug.describe();
  EXPECT_NE(debug.err.find("all_to_all along "), std::string::npos) << debug.describe();
  // What else is given goes to dtrun.
  const CommandResult passed_on =
      run_command({script, "basic", "--cpu", "--nproc_per_node=4", "--master_port=0"}, options);
  ASSERT_EQ(passed_on.exit_code, 0) << passed_on.describe();
  EXPECT_NE(passed_on.out.find("=== All parts ran on 4 ranks ===\n"), std::string::npos);
}

TEST(ExampleTest, HelloPrintsRankLocalRankAndWorldSize) {
  const CommandResult result = run_example("hello");
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_EQ(result.sorted_lines(), (std::vector<std::string>{
                                       "hello from rank 0 (local rank 0) of 4",
                                       "hello from rank 1 (local rank 1) of 4",
                                       "hello from rank 2 (local rank 2) of 4",
                                       "hello from rank 3 (local rank 3) of 4",
                                   }));
}

TEST(ExampleTest, NothingIsSaidThatTheProgramHasNotWritten) {
  EXPECT_EQ(run_example("hello").err, "");
}

}  // namespace
}  // namespace dtrun
