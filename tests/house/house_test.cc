// The house rules, applied to the tree; and each rule tested on a text that breaks it.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "house/house_rules.h"
#include "support/command.h"

namespace dtrun::house {
namespace {

// Every file that git tracks or would add, read whole.
std::vector<SourceFile> tree() {
  const std::string root = DTRUN_SOURCE_DIR;
  const testing_support::CommandResult listed =
      testing_support::run_command({"git", "-c", "safe.directory=*", "-C", root, "ls-files",
                                    "--cached", "--others", "--exclude-standard"});
  EXPECT_EQ(listed.exit_code, 0) << listed.describe();
  std::vector<SourceFile> files;
  std::istringstream lines(listed.out);
  for (std::string path; std::getline(lines, path);) {
    std::ifstream stream(root + "/" + path, std::ios::binary);
    if (!stream) continue;  // deleted in the working tree
    std::ostringstream text;
    text << stream.rdbuf();
    files.push_back({path, text.str()});
  }
  return files;
}

void expect_clean(Findings (*rule)(const SourceFile&)) {
  const auto files = tree();
  ASSERT_GT(files.size(), 50u) << "git listed too few files for this to be the tree";
  for (const SourceFile& file : files)
    for (const std::string& finding : rule(file)) ADD_FAILURE() << finding;
}

TEST(HouseTest, NoIncludeClimbsALayer) {
  expect_clean(climbing_includes);
}
TEST(HouseTest, NoRoomLooksUp) {
  expect_clean(climbing_rooms);
}
TEST(HouseTest, NoFileIsAPartOfAnother) {
  for (const std::string& finding : parts_of_one_file(tree())) ADD_FAILURE() << finding;
}
TEST(HouseTest, NoFileIsTooLong) {
  expect_clean(long_files);
}
TEST(HouseTest, NoFunctionIsTooLong) {
  expect_clean(long_functions);
}
TEST(HouseTest, EveryNameSaysSomething) {
  expect_clean(empty_names);
}
TEST(HouseTest, NoBannedTextStands) {
  expect_clean(banned_texts);
}
TEST(HouseTest, NoTableCellIsAParagraph) {
  expect_clean(long_cells);
}
TEST(HouseTest, FiguresStandInBenchmarksOnly) {
  expect_clean(figures_outside_benchmarks);
}
TEST(HouseTest, TheReadmeIsReadInTwoMinutes) {
  expect_clean(long_readme);
}

TEST(HouseTest, EveryNameOfTorchDistributedIsExplained) {
  const auto files = tree();
  const auto names = std::ranges::find(files, "tests/house/torch_distributed_names.txt",
                                       [](const SourceFile& file) { return file.path; });
  ASSERT_NE(names, files.end());
  for (const SourceFile& file : files)
    for (const std::string& finding : unexplained_names(names->text, file))
      ADD_FAILURE() << finding;
}

TEST(HouseRuleTest, AnIncludeThatClimbsIsFoundAndOneThatDoesNotIsLeft) {
  EXPECT_EQ(climbing_includes({"base/src/a.cc", "#include \"dtrun/rendezvous/store.h\"\n"}).size(),
            1u);
  EXPECT_EQ(climbing_includes({"launcher/src/a.cc", "#include \"dtrun/tensor/tensor.h\"\n"}).size(),
            1u);
  EXPECT_EQ(
      climbing_includes({"tensor/src/a.cc", "#include \"dtrun/rendezvous/store.h\"\n"}).size(), 1u);
  EXPECT_EQ(climbing_includes({"dtensor/src/a.cc", "#include \"dtrun/dtrun.h\"\n"}).size(), 1u);
  EXPECT_TRUE(climbing_includes({"collectives/src/a.cc", "#include \"dtrun/rendezvous/store.h\"\n"})
                  .empty());
  EXPECT_TRUE(climbing_includes({"tests/base/a.cc", "#include \"dtrun/dtensor/ops/creation.h\"\n"})
                  .empty());
}

TEST(HouseRuleTest, ARoomThatLooksUpIsFoundAndOneThatDoesNotIsLeft) {
  const auto findings = [](const std::string& path, const std::string& included) {
    return climbing_rooms({path, "#include \"" + included + "\"\n"}).size();
  };
  EXPECT_EQ(findings("launcher/src/options/a.h", "plan/launch_plan.h"), 1u);
  EXPECT_EQ(findings("rendezvous/src/store/a.cc", "rounds/head_step.h"), 1u);
  EXPECT_EQ(findings("launcher/src/ranks/a.cc", "agent/agent.h"), 1u);
  EXPECT_EQ(findings("launcher/src/options/a.h", "engines/engine.h"), 0u);
  EXPECT_EQ(findings("launcher/src/ranks/a.cc", "ranks/guard.h"), 0u);
  EXPECT_EQ(findings("launcher/src/main.cc", "verdict/job_report.h"), 0u);
  EXPECT_EQ(findings("dtensor/src/plan/a.cc", "mesh/mesh_body.h"), 1u);
  EXPECT_EQ(findings("dtensor/src/dispatch/a.cc", "dtrun/dtensor/autograd/tensor.h"), 1u);
  EXPECT_EQ(findings("dtensor/include/dtrun/dtensor/layout/a.h", "dtrun/dtensor/mesh/spec.h"), 1u);
  EXPECT_EQ(findings("dtensor/include/dtrun/dtensor/mesh/a.h", "dtrun/dtensor/layout/layout.h"),
            0u);
  EXPECT_EQ(findings("dtensor/src/ops/a.cc", "dtrun/tensor/ops.h"), 0u);
}

TEST(HouseRuleTest, ASmallFileThatOneOtherAloneIncludesIsFound) {
  const SourceFile small{"base/src/room/a.h", std::string(20, '\n')};
  const SourceFile source{"base/src/room/a.cc", "#include \"room/a.h\"\n"};
  const SourceFile user{"base/src/b.cc", "#include \"room/a.h\"\n"};
  const SourceFile test{"tests/base/a_test.cc", "#include \"room/a.h\"\n"};
  EXPECT_EQ(parts_of_one_file({small, source, user}).size(), 1u);
  EXPECT_EQ(parts_of_one_file({small, user}).size(), 1u);
  EXPECT_TRUE(parts_of_one_file({small, source, user, test}).empty()) << "it has a test";
  EXPECT_TRUE(parts_of_one_file({small, source}).empty()) << "nobody else includes it";
  const SourceFile larger{source.path, source.text + std::string(40, '\n')};
  EXPECT_TRUE(parts_of_one_file({small, larger, user}).empty()) << "together they are not small";
  const SourceFile open{"base/include/dtrun/base/a.h", ""};
  EXPECT_TRUE(
      parts_of_one_file({open, {"base/src/b.cc", "#include \"dtrun/base/a.h\"\n"}}).empty());
}

TEST(HouseRuleTest, AFileOfSevenHundredAndOneLinesIsFound) {
  EXPECT_TRUE(long_files({"base/a.cc", std::string(700, '\n')}).empty());
  EXPECT_EQ(long_files({"base/a.cc", std::string(701, '\n')}).size(), 1u);
}

TEST(HouseRuleTest, AFunctionOfSeventyOneLinesIsFoundWhereverItStands) {
  const std::string longest(69, '\n');
  for (const std::string head : {"void f() ", "namespace n {\nclass C {\n  int g(int a) const ",
                                 "Type::Type(int a) : a_(a) "}) {
    const std::string tail = head.find("class") == std::string::npos ? "" : "};\n}\n";
    EXPECT_TRUE(long_functions({"base/a.cc", head + "{" + longest + "}\n" + tail}).empty()) << head;
    EXPECT_EQ(long_functions({"base/a.cc", head + "{" + longest + "\n}\n" + tail}).size(), 1u)
        << head;
  }
}

TEST(HouseRuleTest, ALongTypeOrTableIsNoFunction) {
  EXPECT_TRUE(long_functions({"base/a.h", "struct S {" + std::string(200, '\n') + "};\n"}).empty());
  EXPECT_TRUE(
      long_functions({"base/a.cc", "const int kTable[] = {" + std::string(200, '\n') + "};\n"})
          .empty());
}

TEST(HouseRuleTest, BracesInStringsAndCommentsDoNotCount) {
  EXPECT_EQ(without_comments_and_strings("a(\"{\"); // {\n'{' /* { */ b"),
            "a(\" \");     \n' '         b");
  EXPECT_TRUE(
      long_functions({"base/a.cc", "void f() { g(\"{\"); }\n" + std::string(100, '\n')}).empty());
}

TEST(HouseRuleTest, ANameThatSaysNothingIsFoundInFilesAndFolders) {
  EXPECT_EQ(empty_names({"base/src/string_util.cc", ""}).size(), 1u);
  EXPECT_EQ(empty_names({"base/common/a.cc", ""}).size(), 1u);
  EXPECT_TRUE(empty_names({"base/src/utility_of_time.cc", ""}).empty());
}

TEST(HouseRuleTest, EachBannedTextIsFound) {
  EXPECT_EQ(banned_texts({"base/src/a.cc", "#include <boost/asio.hpp>\n"}).size(), 1u);
  EXPECT_EQ(banned_texts({"base/src/a.cc", "std::this_thread::sleep_for(x);\n"}).size(), 1u);
  EXPECT_EQ(banned_texts({"base/include/dtrun/base/a.h", "#include <spdlog/spdlog.h>\n"}).size(),
            1u);
  EXPECT_EQ(banned_texts({"base/src/a.cc", "// TODO later\n"}).size(), 1u);
  EXPECT_EQ(banned_texts({"base/src/a.cc", std::string("open(\"/") + "home/me/x\");\n"}).size(),
            1u);
  EXPECT_TRUE(banned_texts({"bench/a.cc", "usleep(1);\n"}).empty());
  EXPECT_TRUE(banned_texts({"base/src/a.cc", "// it may sleep here\n"}).empty());
}

TEST(HouseRuleTest, ATableCellOfMoreThan220CharactersIsFoundInThePagesOnly) {
  const std::string longest(220, 'x');
  EXPECT_TRUE(long_cells({"docs/a.md", "| a | " + longest + " |\n" + longest + "x\n"}).empty());
  EXPECT_EQ(long_cells({"docs/a.md", "| a | " + longest + "x | b |\n"}).size(), 1u);
  EXPECT_EQ(long_cells({"README.md", "| " + longest + "\\|x |\n"}).size(), 1u);
  EXPECT_TRUE(long_cells({"docs/a.md", "| \u00b7" + longest.substr(1) + " |\n"}).empty());
  EXPECT_TRUE(long_cells({"tests/lab/README.md", "| " + longest + "x |\n"}).empty());
}

TEST(HouseRuleTest, AFigureIsFoundInThePagesButNotALimitAndNotWhatAProgramPrints) {
  const auto findings = [](const std::string& path, const std::string& text) {
    return figures_outside_benchmarks({path, text + "\n"}).size();
  };
  for (const char* figure :
       {"The first error takes 2 to 15 ms.", "It costs an all_reduce some 0.2 us.",
        "| kept | the next start takes 0.05 s |", "A copy goes at 12 GB/s.", "It took 21 % longer.",
        "dtrun is 57 times as fast.", "A call has about 300 us."}) {
    EXPECT_EQ(findings("docs/a.md", figure), 1u) << figure;
    EXPECT_EQ(findings("README.md", figure), 1u) << figure;
    EXPECT_EQ(findings("docs/benchmarks.md", figure), 0u) << figure;
    EXPECT_EQ(findings("docs/a.md", "```text\n" + std::string(figure) + "\n```"), 0u) << figure;
    EXPECT_EQ(findings("docs/a.md", "    " + std::string(figure)), 0u) << figure;
  }
  for (const char* limit :
       {"It takes 10 s at the most.", "A line waits 80 ms for its like.",
        "Pieces of 256 KiB go by the ring.", "The window is 15 s.", "Clocks differ by 1 %."})
    EXPECT_EQ(findings("docs/a.md", limit), 0u) << limit;
}

TEST(HouseRuleTest, ANameThatNoTableRowExplainsIsFoundInThePageOfNames) {
  const std::string names = "# a comment\nsend\nrecv\nWork\n";
  const std::string page = "recv in a text\n| `send`, `irecv` | x |\n| [`Work`](#work) | y |\n";
  EXPECT_EQ(unexplained_names(names, {"docs/dist.md", page}),
            Findings{"docs/dist.md:1: no table row explains recv"});
  EXPECT_EQ(unexplained_names(names, {"docs/other.md", page}), Findings{});
}

TEST(HouseRuleTest, AReadmeOfSixtyOneLinesIsFound) {
  EXPECT_TRUE(long_readme({"README.md", std::string(60, '\n')}).empty());
  EXPECT_EQ(long_readme({"README.md", std::string(61, '\n')}).size(), 1u);
  EXPECT_TRUE(long_readme({"docs/README.md", std::string(61, '\n')}).empty());
}

}  // namespace
}  // namespace dtrun::house
