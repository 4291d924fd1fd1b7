#include "dtrun/base/split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dtrun::base {
namespace {

using testing::ElementsAre;

TEST(SplitTest, ThereIsOnePartMoreThanSeparators) {
  EXPECT_THAT(split("a,b,c", ','), ElementsAre("a", "b", "c"));
  EXPECT_THAT(split(",a,,", ','), ElementsAre("", "a", "", ""));
  EXPECT_THAT(split("a", ','), ElementsAre("a"));
  EXPECT_THAT(split("", ','), ElementsAre(""));
}

TEST(SplitTest, BlanksAroundAWordAreTrimmed) {
  EXPECT_EQ(trimmed(" \t a b\r\n"), "a b");
  EXPECT_EQ(trimmed("a"), "a");
  EXPECT_EQ(trimmed(" \n"), "");
  EXPECT_EQ(trimmed(""), "");
}

TEST(SplitTest, NoWordIsEmpty) {
  EXPECT_THAT(words("\ta  b\r\n c "), ElementsAre("a", "b", "c"));
  EXPECT_THAT(words("a"), ElementsAre("a"));
  EXPECT_THAT(words(" \t\r\n"), ElementsAre());
  EXPECT_THAT(words(""), ElementsAre());
}

}  // namespace
}  // namespace dtrun::base
