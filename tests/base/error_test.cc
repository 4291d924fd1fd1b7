#include "dtrun/base/error.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <cerrno>

#include "dtrun/base/check.h"

namespace dtrun::base {
namespace {

TEST(ErrorTest, TheTextSaysWhatWhyAndWhatToTry) {
  const Error error(ErrorCode::kTimeout, "cannot reach n0", "nobody listens", "start node 0");
  EXPECT_STREQ(error.what(), "cannot reach n0\n  why: nobody listens\n  try: start node 0");
  EXPECT_EQ(error.code(), ErrorCode::kTimeout);
  EXPECT_EQ(error.summary(), "cannot reach n0");
}

TEST(ErrorTest, WhatIsNotKnownIsLeftOut) {
  EXPECT_STREQ(Error(ErrorCode::kUsage, "no program given").what(), "no program given");
}

TEST(ErrorTest, ASystemErrorNamesErrnoInWordsAndAsASymbol) {
  errno = ENOSPC;
  const Error error = system_error("write x");
  EXPECT_EQ(error.code(), ErrorCode::kSystem);
  EXPECT_EQ(error.why(), "No space left on device (ENOSPC)");
}

TEST(ErrorTest, EveryCodeHasAName) {
  for (int code = 0; code <= static_cast<int>(ErrorCode::kAborted); ++code)
    EXPECT_NE(error_code_name(static_cast<ErrorCode>(code)), "unknown") << code;
}

TEST(ErrorTest, SignalsAreNamed) {
  EXPECT_EQ(signal_name(SIGKILL), "SIGKILL");
  EXPECT_EQ(signal_name(1000), "signal 1000");
}

TEST(CheckDeathTest, AFailedCheckAbortsAndSaysWhere) {
  EXPECT_DEATH(DT_CHECK(1 + 1 == 3), "error_test.cc:[0-9]+: 1 \\+ 1 == 3 does not hold");
}

}  // namespace
}  // namespace dtrun::base
