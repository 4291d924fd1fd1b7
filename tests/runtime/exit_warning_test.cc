// Programs that end with their world open.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/command.h"

namespace dtrun::runtime {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing_support::CommandResult;
using testing_support::run_command;

constexpr const char* kWarning = "without dist::destroy_process_group()";

CommandResult run_leaving(const std::string& how) {
  return run_command({DTRUN_BIN "/dtrun", "--nproc_per_node=2", DTRUN_BIN "/leaving", how});
}

int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++count;
  return count;
}

TEST(ExitWarningTest, WhoeverDestroysIsNotWarned) {
  const CommandResult result = run_leaving("destroy");
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_THAT(result.err, Not(HasSubstr(kWarning)));
}

TEST(ExitWarningTest, WhoeverDestroysMayInitAgain) {
  const CommandResult result = run_leaving("init-again");
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_EQ(count_of(result.out, ": tensor([2.])"), 10) << result.describe();
  EXPECT_EQ(count_of(result.err, kWarning), 0) << result.describe();
}

TEST(ExitWarningTest, WhoIsLeftShrinksTheGroupAndTheJobGoesOn) {
  const CommandResult result = run_leaving("one-leaves");
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_THAT(result.out, HasSubstr("has left group 'world', and rank 0 still needs it\n"));
  EXPECT_THAT(result.out,
              HasSubstr("rank 0 goes on in ProcessGroup(name=world-shrink-0, backend=cpu, "
                        "rank=0, ranks=[0]): tensor([1.])\n"));
  EXPECT_EQ(count_of(result.err, kWarning), 0) << result.describe();
}

TEST(ExitWarningTest, WhoeverDoesNotDestroyIsWarnedOnceAndTheJobSucceeds) {
  for (const char* how : {"return", "exit", "send-last"}) {
    const CommandResult result = run_leaving(how);
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    EXPECT_EQ(count_of(result.err, kWarning), 2) << result.describe();
    for (const char* rank : {"[rank0]: warning: ", "[rank1]: warning: "})
      EXPECT_EQ(count_of(result.err, rank), 1) << result.describe();
  }
}

TEST(ExitWarningTest, ExitByAnotherThreadWarnsAndEnds) {
  const CommandResult result = run_leaving("exit-from-thread");
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_EQ(count_of(result.err, kWarning), 2) << result.describe();
}

TEST(ExitWarningTest, AnExceptionIsReportedAndNothingOnTopOfIt) {
  const CommandResult result = run_leaving("throw");
  EXPECT_EQ(result.exit_code, 1) << result.describe();
  EXPECT_THAT(result.err, HasSubstr("[rank0]: std::runtime_error: the data is bad\n"));
  EXPECT_EQ(count_of(result.err, "[rank0]: warning: "), 0) << result.describe();
}

}  // namespace
}  // namespace dtrun::runtime
