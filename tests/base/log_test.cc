#include "dtrun/base/log.h"

#include <gtest/gtest.h>

namespace dtrun::base::log {
namespace {

class LogTest : public testing::Test {
 protected:
  void TearDown() override {
    set_levels("");
    set_prefix("");
  }
};

TEST_F(LogTest, WarningsAreOnByDefaultAndLessIsNot) {
  set_levels("");
  EXPECT_TRUE(enabled(Component::kStore, Level::kWarning));
  EXPECT_FALSE(enabled(Component::kStore, Level::kInfo));
}

TEST_F(LogTest, PlusIsDebugPlainIsInfoMinusIsErrorsOnly) {
  set_levels("+store,runtime,-launcher");
  EXPECT_TRUE(enabled(Component::kStore, Level::kDebug));
  EXPECT_TRUE(enabled(Component::kRuntime, Level::kInfo));
  EXPECT_FALSE(enabled(Component::kRuntime, Level::kDebug));
  EXPECT_FALSE(enabled(Component::kLauncher, Level::kWarning));
  EXPECT_TRUE(enabled(Component::kLauncher, Level::kError));
}

TEST_F(LogTest, AllNamesEveryComponentAndForeignNamesAreIgnored) {
  set_levels("+all,dynamo,+inductor,-tensor");
  EXPECT_TRUE(enabled(Component::kCollectives, Level::kDebug));
  EXPECT_FALSE(enabled(Component::kTensor, Level::kWarning));
}

TEST_F(LogTest, ALineNamesTheRankTheLevelAndTheComponent) {
  set_prefix("rank 3");
  testing::internal::CaptureStderr();
  warning(Component::kStore, "no answer for {} s", 5);
  const std::string line = testing::internal::GetCapturedStderr();
  EXPECT_EQ(line.rfind("[dtrun rank 3 +", 0), 0u) << line;
  EXPECT_NE(line.find("s W store] no answer for 5 s\n"), std::string::npos) << line;
}

TEST_F(LogTest, AnotherWriterGetsTheLineAndItsParts) {
  static std::string seen;
  set_writer([](const Line& line) {
    seen = std::string(line.message) + "|" + std::string(line.text.substr(line.text.find(" W ")));
    EXPECT_EQ(line.level, Level::kWarning);
  });
  testing::internal::CaptureStderr();
  warning(Component::kStore, "no answer");
  set_writer(nullptr);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(seen, "no answer| W store] no answer");
}

TEST_F(LogTest, WhatIsNotEnabledIsNotWritten) {
  testing::internal::CaptureStderr();
  debug(Component::kStore, "quiet");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace dtrun::base::log
