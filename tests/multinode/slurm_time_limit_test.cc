// A job that is longer than its time limit: Slurm's warning, a checkpoint, exit code 75, and
// another life in which it goes on (docs/engines.md). Slow: no limit is shorter than a minute.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "support/slurm_lab.h"

namespace dtrun {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing_support::CommandResult;
using testing_support::SlurmLab;

TEST(SlurmTimeLimitTest, TheWarningBeforeTheLimitEndsInACheckpointAndARequeue) {
  SlurmLab lab(2);
  REQUIRE_SLURM(lab);
  lab.options().environment["PATH"] = DTRUN_BIN ":/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin";
  lab.options().limit = std::chrono::seconds(240);
  const std::string output = lab.folder() + "/limit.out";
  const CommandResult result =
      lab.run({"sbatch", "--wait", "--time=1", "--signal=USR1@30", "--output=" + output,
               DTRUN_SOURCE_DIR "/examples/slurm/requeue.sbatch", "--on-signal=USR1=drain:20",
               "python3", "-c",
               "import os, signal, sys\n"
               "life = os.environ.get('SLURM_RESTART_COUNT', '0')\n"
               "def save(*_):\n"
               "  print('saved by', os.environ['RANK'], 'in life', life, flush=True)\n"
               "  os._exit(75)\n"
               "signal.signal(signal.SIGUSR1, save)\n"
               "print('up', os.environ['RANK'], 'in life', life, flush=True)\n"
               "if life == '1': sys.exit(0)\n"
               "while True: signal.pause()"});
  std::ifstream in(output);
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  EXPECT_EQ(result.exit_code, 0) << text << result.describe();
  for (const char* rank : {"0", "1", "2", "3"})
    EXPECT_THAT(text, AllOf(HasSubstr(std::string("saved by ") + rank + " in life 0"),
                            HasSubstr(std::string("up ") + rank + " in life 1")));
  EXPECT_THAT(text, AllOf(HasSubstr("requeue 1 of 10"), Not(HasSubstr("DUE TO TIME LIMIT"))));
}

}  // namespace
}  // namespace dtrun
