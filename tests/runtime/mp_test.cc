// Processes that run one function of this program: started, joined, ended, failing; this program
// is its own child.
#include "dtrun/runtime/mp.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <stdexcept>

#include "dtrun/tensor/literal.h"
#include "dtrun/tensor/ops.h"
#include "support/thrown_error.h"

namespace dtrun::mp {
namespace {

using base::ErrorCode;
using testing::HasSubstr;
using testing_support::error_of;

void fail_on(int rank, int victim, std::string how) {
  if (rank != victim) return;
  if (how == "throw") throw std::runtime_error("the data is\nbad");
  if (how == "kill") ::kill(::getpid(), SIGKILL);
  if (how == "exit") std::exit(3);
}
DTRUN_MP_FUNCTION(fail_on);

void exit_with(int code) {
  ::_exit(code);
}
DTRUN_MP_FUNCTION(exit_with);

TEST(ProcessTest, TellsItsExitCodeOnceItHasEnded) {
  Process process(exit_with, args(7));
  EXPECT_EQ(process.exitcode(), std::nullopt);
  EXPECT_FALSE(process.is_alive());
  process.start();
  EXPECT_TRUE(process.join());
  EXPECT_EQ(process.exitcode(), 7);
  EXPECT_FALSE(process.is_alive());
}

TEST(SpawnTest, RunsTheFunctionInEveryProcess) {
  EXPECT_TRUE(spawn(fail_on, args(-1, "throw"), {.nprocs = 4}).join());
}

TEST(SpawnTest, AnExceptionComesBackWithRankTypeAndText) {
  try {
    spawn(fail_on, args(1, "throw"), {.nprocs = 3});
    FAIL();
  } catch (const ProcessRaisedException& error) {
    EXPECT_EQ(error.rank(), 1);
    EXPECT_EQ(error.type(), "std::runtime_error");
    EXPECT_EQ(error.text(), "the data is\nbad");
  }
}

}  // namespace
}  // namespace dtrun::mp

int main(int argc, char** argv) {
  dtrun::mp::run_if_child();
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
