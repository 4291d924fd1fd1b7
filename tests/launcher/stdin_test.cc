// --stdin=all: each rank gets a copy of standard input.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "launcher/launcher_job.h"

namespace dtrun::launcher {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing_support::CommandOptions;
using testing_support::CommandResult;

// `input | dtrun --stdin=all --nproc_per_node=3 sh -c script`
CommandResult run_with_input(const std::string& input, const std::string& script,
                             const std::string& options = "") {
  const LauncherJob job;
  return testing_support::run_command(
      {"sh", "-c",
       input + " | " DTRUN_BINARY " --stdin=all --nproc_per_node=3 " + options + " sh -c '" +
           script + "'"},
      {.environment = {{"TMPDIR", job.folder()}, {"OMP_NUM_THREADS", "1"}}});
}

const std::string kMegabytes = "yes 0123456789 | head -c 5000000";

TEST(StdinTest, EachRankGetsAWholeCopy) {
  EXPECT_THAT(run_with_input("printf \"one\\ntwo\"", "echo $RANK:$(cat)").sorted_lines(),
              ElementsAre("0:one two", "1:one two", "2:one two"));
  const CommandResult large = run_with_input(kMegabytes, "cat | md5sum");
  const std::vector<std::string> sums = large.sorted_lines();
  ASSERT_EQ(sums.size(), 3U) << large.describe();
  EXPECT_EQ(sums[0], sums[2]);
  EXPECT_EQ(sums[0] + "\n",
            testing_support::run_command({"sh", "-c", kMegabytes + " | md5sum"}).out);
  EXPECT_THAT(run_with_input("true", "echo $RANK:$(cat)").sorted_lines(),
              ElementsAre("0:", "1:", "2:"));
}

TEST(StdinTest, ARankThatClosesItsInputOrEndsIsLeftOut) {
  // Rank 1 lives on until rank 0 has read all.
  const CommandResult closed = run_with_input(
      kMegabytes,
      "if [ $RANK = 1 ]; then exec <&-; until [ -e $TMPDIR/read ]; do sleep 0.02; done; fi; "
      "[ $RANK = 0 ] && wc -c && : >$TMPDIR/read; exit 0");
  EXPECT_EQ(closed.exit_code, 0) << closed.describe();
  EXPECT_THAT(closed.out, HasSubstr("5000000\n"));
}

// The reader at one byte a time is the slowest.
TEST(StdinTest, ASlowRankGetsAllAsWell) {
  const CommandResult slow =
      run_with_input("yes 0123456789 | head -c 300000",
                     "if [ $RANK = 1 ]; then dd bs=1 2>/dev/null | wc -c; else wc -c; fi");
  EXPECT_THAT(slow.sorted_lines(), ElementsAre("300000", "300000", "300000"));
}

TEST(StdinTest, ALaterRoundIsGivenWhatComesThen) {
  const CommandResult restarted = run_with_input(
      kMegabytes, "[ $TORCHELASTIC_RESTART_COUNT = 0 ] && exit 1; cat >/dev/null; echo end",
      "--max_restarts=1");
  EXPECT_EQ(restarted.exit_code, 0) << restarted.describe();
  EXPECT_THAT(restarted.sorted_lines(), ElementsAre("end", "end", "end"));
}

TEST(StdinTest, AnInputThatNeverEndsHoldsUpNoJob) {
  LauncherJob job;
  job.options().input = CommandOptions::Input::kPipe;
  const CommandResult result = job.run({"--stdin=all", "--nproc_per_node=2", "true"});
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_FALSE(result.killed_at_limit);
}

TEST(StdinTest, AWordThatIsNoneIsRefused) {
  const CommandResult result = run_dtrun({"--stdin=every", "true"});
  EXPECT_EQ(result.exit_code, 64);
  EXPECT_THAT(result.err, HasSubstr("must be a rank, all or none"));
}

}  // namespace
}  // namespace dtrun::launcher
