// Errors of operators name the line of the user's program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "support/command.h"

namespace dtrun::runtime {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing_support::CommandResult;
using testing_support::run_command;

constexpr int kMistakes = 23;

struct Mistake {
  std::string kind;
  std::string line;
  std::string place;
};

std::vector<Mistake> mistakes_of(const std::string& program) {
  const CommandResult result = run_command({program});
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  std::vector<Mistake> mistakes;
  std::istringstream lines(result.out);
  for (Mistake next; std::getline(lines, next.kind, '|') && std::getline(lines, next.line, '|') &&
                     std::getline(lines, next.place);)
    mistakes.push_back(next);
  EXPECT_EQ(mistakes.size(), std::size_t{kMistakes}) << result.describe();
  return mistakes;
}

/// A copy of the program without some of its symbols, beside the tests.
class StrippedProgram {
 public:
  explicit StrippedProgram(const std::string& option)
      : path_(testing::TempDir() + "user_lines" + option + std::to_string(::getpid())) {
    const CommandResult result =
        run_command({"strip", option, "-o", path_, DTRUN_BIN "/user_lines"});
    EXPECT_EQ(result.exit_code, 0) << result.describe();
  }
  ~StrippedProgram() { std::filesystem::remove(path_); }
  StrippedProgram(const StrippedProgram&) = delete;
  StrippedProgram& operator=(const StrippedProgram&) = delete;

  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

TEST(UserLinesTest, EachKindOfMistakeNamesItsLine) {
  if (!DTRUN_HAVE_BACKTRACE) GTEST_SKIP() << "built without libbacktrace";
  for (const Mistake& mistake : mistakes_of(DTRUN_BIN "/user_lines"))
    EXPECT_EQ(mistake.place, "user_lines.cc:" + mistake.line) << mistake.kind;
}

TEST(UserLinesTest, WithoutLineInformationTheFunctionIsNamed) {
  if (!DTRUN_HAVE_BACKTRACE) GTEST_SKIP() << "built without libbacktrace";
  const StrippedProgram program("--strip-debug");
  for (const Mistake& mistake : mistakes_of(program.path())) {
    EXPECT_THAT(mistake.place,
                ContainsRegex(
                    "^[^ ].*\\+0x[0-9a-f]+ in .*/user_lines.* \\(compile with -g for the line\\)$"))
        << mistake.kind;
    EXPECT_THAT(mistake.place, testing::Not(ContainsRegex("^dtrun::"))) << mistake.kind;
    if (mistake.kind == "function") {
      EXPECT_THAT(mistake.place, HasSubstr("::added("));
    }
  }
}

TEST(UserLinesTest, AStrippedProgramGivesAddressesThatLeadToTheLine) {
  if (!DTRUN_HAVE_BACKTRACE) GTEST_SKIP() << "built without libbacktrace";
  const StrippedProgram program("--strip-all");
  for (const Mistake& mistake : mistakes_of(program.path())) {
    const std::size_t addresses = mistake.place.find("SYMBOLS ");
    ASSERT_NE(addresses, std::string::npos) << mistake.kind << ": " << mistake.place;
    const CommandResult lines = run_command(
        {"sh", "-c",
         "addr2line -Cfpie " DTRUN_BIN "/user_lines " + mistake.place.substr(addresses + 8)});
    EXPECT_THAT(lines.out, HasSubstr("user_lines.cc:" + mistake.line)) << mistake.kind;
  }
}

TEST(UserLinesTest, ProgramsThatGoWellAreNotLookedAt) {
  EXPECT_EQ(run_command({DTRUN_BIN "/user_lines", "well"}).out, "0 walks\n");
}

}  // namespace
}  // namespace dtrun::runtime
