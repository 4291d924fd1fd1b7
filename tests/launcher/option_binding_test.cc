// Values of a line as variables get them: as they were written, whatever CLI11 would make of them.
#include "options/option_binding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "options/option_names.h"
#include "preview/inquiry.h"
#include "sources/option_sources.h"
#include "support/thrown_error.h"

namespace dtrun::launcher {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;
using testing_support::error_of;

TEST(OptionBinding, TakesATextAsItIsWritten) {
  for (const char* text :
       {"", " ", "[a,b]", "{}", "--nnodes=2", "-m", "--", "%%", "a\nb", "\"a\""}) {
    const CommandLine line = read_command_line({std::string("--role=") + text, "x"}, {});
    std::string role = "default";
    OptionBinding binding(line);
    binding.text("role", role);
    EXPECT_EQ(role, text);
  }
}

TEST(OptionBinding, LeavesWhatNobodyHasGiven) {
  std::string role = "default";
  bool module = false, verbose = false;
  const CommandLine line = read_command_line({"-v", "x"}, {});
  OptionBinding binding(line);
  binding.text("role", role);
  binding.flag("module", module);
  binding.flag("verbose", verbose);
  EXPECT_EQ(role, "default");
  EXPECT_FALSE(module);
  EXPECT_TRUE(verbose);
}

// CLI11 reads 010 as 8, 0x10 as 16 and " 5" as 5; torchrun's int() and float() are the model.
TEST(OptionBinding, ReadsNumbersInDecimalOnly) {
  EXPECT_EQ(parse_integer_within("010", 0, 100), 10);
  EXPECT_EQ(parse_integer_within("+3", 0, 100), 3);
  EXPECT_EQ(parse_seconds("1.5"), std::chrono::milliseconds(1500));
  for (const char* text : {"", "0x10", " 5", "5 ", "five", "99999999999999999999"})
    EXPECT_TRUE(error_of([&] { parse_integer_within(text, 0, 100); })) << text;
  for (const char* text : {"", "nan", "-1", " 1", "1s", "0x1p3"})
    EXPECT_TRUE(error_of([&] { parse_seconds(text); })) << text;
}

TEST(OptionBinding, BlamesAValueOnWhereItIsFrom) {
  int restarts = 0;
  base::Environment environment;
  environment.set("PET_MAX_RESTARTS", "-1");
  const CommandLine line = read_command_line({"x"}, environment);
  OptionBinding binding(line);
  const auto error = error_of([&] { binding.parsed("max-restarts", restarts, within(0, 9)); });
  ASSERT_TRUE(error);
  EXPECT_THAT(error->what(), AllOf(HasSubstr("PET_MAX_RESTARTS=-1 must be from 0 to 9"),
                                   HasSubstr("dtrun --help=max_restarts")));
}

// That it takes each of them is OptionReference's.
TEST(OptionBinding, RefusesAWordThatTheTableDoesNotNameAndSaysAllThatItNames) {
  int options = 0;
  for (const OptionRow& row : option_table()) {
    const std::string_view form = row.value == nullptr ? "" : row.value;
    const auto choices = choices_of(row);
    // Of other values than words there is more to say.
    if (choices.empty() || std::ranges::count(form, '|') + 1 != std::ssize(choices)) continue;
    ++options;
    const std::string word = spelling_of(row) + "=0";
    const auto error = error_of([&] {
      const CommandLine line = gather_options({word, "x"}, {});
      if (!answer_to_inquiry(line)) read_options("dtrun", line, {});
    });
    ASSERT_TRUE(error) << word;
    EXPECT_THAT(error->summary(), StartsWith(word + " must be "));
    for (const std::string_view choice : choices)
      EXPECT_THAT(error->summary(), HasSubstr(std::string(choice)));
  }
  EXPECT_EQ(options, 16);
}

}  // namespace
}  // namespace dtrun::launcher
