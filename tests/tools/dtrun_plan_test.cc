// The program dtrun-plan, as its users start it.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "support/command.h"

namespace dtrun::dtensor {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing_support::CommandResult;

CommandResult plan(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), DTRUN_PLAN_BINARY);
  return testing_support::run_command(arguments);
}

TEST(DtrunPlanTest, APageSaysWhatTheRankSends) {
  const CommandResult result =
      plan({"--mesh", "2,2", "--names", "dp,tp", "--shape", "1024,4096", "--dtype", "bf16",
            "--from", "[S(0), R]", "--to", "[R, S(1)]", "--rank", "3", "--draw"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("Rank 3 sends 2,097,152 bytes"), HasSubstr("all_gather   dp"),
                    HasSubstr("2.0x slower"), HasSubstr("512:1024 │"), HasSubstr("0, 2")));
}

TEST(DtrunPlanTest, ManyRanksAreNoMatter) {
  const CommandResult result = plan({"--mesh", "16,16,16,16", "--shape", "65536,65536", "--from",
                                     "[S10, S23]", "--to", "[S32, S01]", "--json"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, HasSubstr("\"bytes_sent_by_all\":"));
  EXPECT_THAT(result.out, HasSubstr("\"peak_bytes\":"));
}

TEST(DtrunPlanTest, LinksComeFromAFile) {
  const std::string path = testing::TempDir() + "plan_links.json";
  std::ofstream(path) << R"({"*": {"latency": 1, "bytes_per_second": 1e9}})";
  const CommandResult result =
      plan({"--mesh", "4", "--shape", "8", "--from", "S(0)", "--to", "R", "--link-file", path});
  std::filesystem::remove(path);
  EXPECT_THAT(result.out, HasSubstr("Predicted: 1.00 s"));
}

TEST(DtrunPlanTest, AnOperatorOnThousandsOfRanksIsExplained) {
  const CommandResult result =
      plan({"--mesh", "16,16,16", "--names", "pp,dp,tp", "--op", "matmul", "--operand",
            "bf16[4096, 8192] [R, S(0), S(1)]", "--operand", "bf16[8192,8192] [R, R, S(0)]"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("matmul"), HasSubstr("[R, S(0), P(sum)]"),
                                HasSubstr("S(1), S(0) -> P(sum)")));
}

TEST(DtrunPlanTest, AnOperatorsOperandsAreMoved) {
  const CommandResult page = plan({"--mesh", "4", "--op", "softmax", "--dim", "-1", "--operand",
                                   "[1024, 4096] [P(sum)]", "--rank", "3"});
  EXPECT_EQ(page.exit_code, 0) << page.err;
  EXPECT_THAT(page.out,
              AllOf(HasSubstr("f32[1024, 4096]"), HasSubstr("all_reduce"), HasSubstr("not tried")));
  const CommandResult json = plan({"--mesh", "4", "--op", "embedding", "--operand", "[8, 16] [R]",
                                   "--operand", "f32[1000, 64] [S(0)]", "--json"});
  EXPECT_EQ(json.exit_code, 0) << json.err;
  EXPECT_THAT(json.out, AllOf(HasSubstr("\"calls\""), HasSubstr("\"lost\"")));
}

/// The operators of --help.
std::vector<std::string> operators_of_help() {
  const std::string help = plan({"--help"}).out;
  const std::string begin = "in place of a move:";
  std::istringstream rest(help.substr(help.find(begin) + begin.size()));
  std::vector<std::string> names;
  for (std::string name; rest >> name;) {
    const bool is_last = name.back() != ',';
    names.push_back(is_last ? name : name.substr(0, name.size() - 1));
    if (is_last) break;
  }
  return names;
}

// Of 64 ranks; each with the operands and numbers that it takes.
TEST(DtrunPlanTest, EveryOperatorIsPlannedThereAndBack) {
  struct Said {
    std::vector<std::string> operands;
    std::vector<std::string> more = {};
  };
  const std::string matrix = "[64, 64] [S(0), S(1)]", vector = "[64] [S(0), R]";
  const std::string cube = "[4, 64, 64] [R, S(1)]", rows = "[64] [S(0), S(0)]";
  const Said one{{matrix}}, two{{matrix, matrix}}, along{{matrix}, {"--dim", "1"}};
  const std::map<std::string, Said> said = {
      {"addmm", {{matrix, matrix, matrix}}},
      {"bmm", {{cube, cube}}},
      {"cat", {{matrix, matrix}, {"--dim", "0"}}},
      {"cross_entropy", {{matrix, rows}}},
      {"dot", {{vector, vector}}},
      {"embedding", {{rows, matrix}}},
      {"gather", {{matrix, matrix}, {"--dim", "1"}}},
      {"index_select", {{matrix, rows}, {"--dim", "0"}}},
      {"lerp", {{matrix, matrix, matrix}}},
      {"mv", {{matrix, vector}}},
      {"nll_loss", {{matrix, rows}}},
      {"roll", {{matrix}, {"--dim", "1", "--count", "3"}}},
      {"scaled_dot_product_attention", {{cube, cube, cube}}},
      {"scatter_add", {{matrix, matrix, matrix}, {"--dim", "1"}}},
      {"split", {{matrix}, {"--dim", "1", "--count", "16"}}},
      {"stack", {{matrix, matrix}, {"--dim", "0"}}},
      {"topk", {{matrix}, {"--dim", "1", "--count", "5"}}},
      {"where", {{"bool[64, 64] [S(0), R]", matrix, matrix}}}};
  const std::set<std::string> pairs = {"add", "div",      "linear", "matmul", "maximum", "minimum",
                                       "mm",  "mse_loss", "mul",    "pow",    "sub"};
  const std::set<std::string> alongs = {"argmax",  "argmin",      "argsort",   "cumprod", "cumsum",
                                        "flip",    "log_softmax", "logsumexp", "max",     "min",
                                        "softmax", "sort",        "transpose"};
  const std::set<std::string> without_gradient = {"argmax", "argmin", "argsort"};
  const std::vector<std::string> names = operators_of_help();
  EXPECT_GT(names.size(), 65U);
  int longer = 0;
  for (const std::string& name : names) {
    const auto found = said.find(name);
    const Said& call = found != said.end()     ? found->second
                       : pairs.contains(name)  ? two
                       : alongs.contains(name) ? along
                                               : one;
    std::vector<std::string> line = {"--mesh", "8,8", "--op", name, "--rank", "9"};
    for (const std::string& operand : call.operands)
      line.insert(line.end(), {"--operand", operand});
    line.insert(line.end(), call.more.begin(), call.more.end());
    const CommandResult there = plan(line);
    EXPECT_EQ(there.exit_code, 0) << name << there.err;
    EXPECT_THAT(there.out, HasSubstr(" gives ")) << name;
    line.emplace_back("--backward");
    const CommandResult back = plan(line);
    if (without_gradient.contains(name)) {
      EXPECT_EQ(back.exit_code, 64) << name;
      EXPECT_THAT(back.err, HasSubstr("has no gradient"));
      continue;
    }
    EXPECT_EQ(back.exit_code, 0) << name << back.err;
    EXPECT_GE(back.out.size(), there.out.size()) << name << back.out;
    longer += back.out.size() > there.out.size() ? 1 : 0;
  }
  // The gradient of a sum takes no operator.
  EXPECT_GT(longer, 50);
}

TEST(DtrunPlanTest, TheWayBackOfAProductSendsWhatItsGradientsNeed) {
  const CommandResult result = plan({"--mesh", "4", "--names", "dp", "--op", "matmul", "--operand",
                                     "[64, 32] [S(0)]", "--operand", "[32, 16] [R]", "--backward"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  // The weight's gradient is added up over the ranks.
  EXPECT_THAT(result.out, AllOf(HasSubstr("(part of the gradient's sum)"),
                                HasSubstr("to [R] by all_reduce along dp")));
}

TEST(DtrunPlanTest, AnOperatorThatCannotBePlannedIsRefused) {
  const std::vector<std::string> x = {"--operand", "[8, 8] [R]"};
  const auto refusal = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--mesh", "2"});
    const CommandResult result = plan(arguments);
    EXPECT_EQ(result.exit_code, 64);
    EXPECT_EQ(result.out, "");
    return result.err;
  };
  EXPECT_THAT(refusal({"--op", "fold", x[0], x[1]}), HasSubstr("planned_mesh"));
  EXPECT_THAT(refusal({"--op", "matmul", x[0], x[1]}), HasSubstr("it takes 2"));
  EXPECT_THAT(refusal({"--op", "softmax", x[0], x[1]}), HasSubstr("--dim"));
  EXPECT_THAT(refusal({"--op", "exp", x[0], x[1], "--dim", "1"}), HasSubstr("does not take --dim"));
  EXPECT_THAT(refusal({"--op", "exp", x[0], x[1], "--count", "1"}),
              HasSubstr("does not take --count"));
  EXPECT_THAT(refusal({"--op", "topk", x[0], x[1], "--dim", "1"}), HasSubstr("--count"));
  EXPECT_THAT(refusal({"--op", "exp", x[0], "8, 8 [R]"}), HasSubstr("cannot be read"));
  EXPECT_THAT(refusal({"--op", "exp", x[0], "[8 8] [R]"}), HasSubstr("cannot be read"));
  EXPECT_THAT(refusal({"--op", "matmul", x[0], x[1], x[0], "[7, 2] [R]"}), HasSubstr("[8, 8]"));
  EXPECT_THAT(refusal({"--op", "exp", x[0], x[1], "--from", "R"}), HasSubstr("--from"));
  EXPECT_THAT(refusal({}), HasSubstr("nothing is to be planned"));
}

TEST(DtrunPlanTest, AMoveToAnotherMeshIsToldWithItsMessages) {
  const std::vector<std::string> move = {
      "--mesh",    "2,2", "--names",    "dp,tp", "--shape", "1024,4096", "--from", "[P(sum), S(0)]",
      "--to-mesh", "2,3", "--to-names", "a,b",   "--to",    "[S(0), R]", "--rank", "1"};
  std::vector<std::string> drawn = move;
  drawn.emplace_back("--draw");
  const CommandResult page = plan(drawn);
  EXPECT_EQ(page.exit_code, 0) << page.err;
  EXPECT_THAT(page.out,
              AllOf(HasSubstr("from [P(sum), S(0)] on ranks 0 to 3 (dp=2, tp=2)"),
                    HasSubstr("to   [S(0), R] on ranks 4 to 9 (a=2, b=3)"),
                    HasSubstr("Rank 1 sends 8,388,608 bytes and receives 4,194,304"),
                    HasSubstr("reduce_scatter  first, dp"), HasSubstr("all_gather      second, b"),
                    HasSubstr("all_reduce along dp, messages "), HasSubstr("1.8x slower"),
                    HasSubstr("Here 0 is rank 4"), HasSubstr("3, 4, 5")));
  std::vector<std::string> as_json = move;
  as_json.insert(as_json.end(), {"--json", "--to-first-rank", "0"});
  const CommandResult json = plan(as_json);
  EXPECT_EQ(json.exit_code, 0) << json.err;
  EXPECT_THAT(json.out, AllOf(HasSubstr("\"first_rank\":0,\"layout\":\"[S(0), R]\""),
                              HasSubstr("\"kind\":\"messages\",\"mesh\":\"both\""),
                              HasSubstr("\"bytes_sent\":13983744"), HasSubstr("\"why_not\":")));
}

TEST(DtrunPlanTest, TheOtherMeshHasLinksOfItsOwn) {
  const CommandResult result = plan({"--mesh", "2", "--shape", "8", "--from", "R", "--to-mesh", "4",
                                     "--to", "R", "--to-link-rate", "1:1e9"});
  EXPECT_THAT(result.out, HasSubstr("Predicted: 1.00 s"));
}

TEST(DtrunPlanTest, WhatMakesNoSenseIsNamedWithTheRemedy) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> wrong = {
      {{"--mesh", "4", "--shape", "8", "--from", "Q", "--to", "R"}, "'Q' is no layout"},
      {{"--mesh", "0", "--shape", "8", "--from", "R", "--to", "R"}, "at least one rank"},
      {{"--mesh", "4", "--shape", "8", "--from", "R", "--to", "R", "--rank", "4"}, "0 to 3"},
      {{"--mesh", "4", "--shape", "8", "--from", "R", "--to", "S(1)"}, "its dims are -1 to 0"},
      {{"--mesh", "4", "--names", "a,b", "--from", "R", "--to", "R"}, "one per axis"},
      {{"--mesh", "4", "--from", "R", "--to", "R", "--link-rate", "fast"}, "'fast' is no link"},
      {{"--mesh", "4", "--from", "R", "--to", "R", "--to-names", "a"}, "--to-mesh"},
      {{"--mesh", "4", "--from", "R", "--to-mesh", "0", "--to", "R"},
       "--to-mesh has no such sizes"},
      {{"--mesh", "4", "--from", "R", "--to-mesh", "2", "--to", "[R, R]"}, "axes"},
      {{"--mesh", "4", "--from", "R", "--to-mesh", "2", "--to-names", "a,b", "--to", "R"},
       "--to-names has 2 names"},
      {{"--mesh", "4", "--from", "R", "--to-mesh", "2", "--to", "R", "--to-link-rate", "shm,shm"},
       "--to-link-rate has 2 links"},
      {{"--mesh", "4", "--from", "R", "--to-mesh", "2", "--to", "R", "--to-first-rank", "-1"},
       "--to-first-rank=-1 is no rank"},
      {{"--mesh", "4", "--from", "R", "--to-mesh", "2", "--to", "R", "--rank", "6"},
       "rank 6 is in neither mesh"},
      {{"--mesh", "4", "--from", "R", "--to-mesh", "65537", "--to", "R"}, "at most 65,536"},
      {{"--from", "R", "--to", "R"}, "--mesh is required"}};
  for (const auto& [arguments, words] : wrong) {
    const CommandResult result = plan(arguments);
    EXPECT_EQ(result.exit_code, 64) << words;
    EXPECT_THAT(result.err, HasSubstr(words));
    // Where in this program it was found says nothing to its user.
    EXPECT_THAT(result.err, Not(HasSubstr("at: ")));
  }
}

}  // namespace
}  // namespace dtrun::dtensor
