// The program dtrun-plan, as its users start it.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "support/command.h"

namespace dtrun::dtensor {
namespace {

using testing::AllOf;
using testing::HasSubstr;
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

TEST(DtrunPlanTest, WhatMakesNoSenseIsNamedWithTheRemedy) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> wrong = {
      {{"--mesh", "4", "--shape", "8", "--from", "Q", "--to", "R"}, "'Q' is no layout"},
      {{"--mesh", "0", "--shape", "8", "--from", "R", "--to", "R"}, "at least one rank"},
      {{"--mesh", "4", "--shape", "8", "--from", "R", "--to", "R", "--rank", "4"}, "0 to 3"},
      {{"--mesh", "4", "--shape", "8", "--from", "R", "--to", "S(1)"}, "its dims are -1 to 0"},
      {{"--mesh", "4", "--names", "a,b", "--from", "R", "--to", "R"}, "one per axis"},
      {{"--mesh", "4", "--from", "R", "--to", "R", "--link-rate", "fast"}, "'fast' is no link"},
      {{"--from", "R", "--to", "R"}, "--mesh is required"}};
  for (const auto& [arguments, words] : wrong) {
    const CommandResult result = plan(arguments);
    EXPECT_EQ(result.exit_code, 64) << words;
    EXPECT_THAT(result.err, HasSubstr(words));
  }
}

}  // namespace
}  // namespace dtrun::dtensor
