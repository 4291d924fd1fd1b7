#include "dtrun/base/env.h"

#include <gtest/gtest.h>

namespace dtrun::base {
namespace {

TEST(EnvironmentTest, ThisProcessHasAPathAndMissingIsNotEmpty) {
  EXPECT_TRUE(get_env("PATH").has_value());
  EXPECT_FALSE(get_env("DTRUN_NO_SUCH_VARIABLE").has_value());
  EXPECT_EQ(Environment::current().get("PATH"), get_env("PATH"));
}

TEST(EnvironmentTest, StringsAreSortedAndKeepEqualSigns) {
  Environment environment;
  environment.set("B", "x=y");
  environment.set("A", "");
  EXPECT_EQ(environment.as_strings(), (std::vector<std::string>{"A=", "B=x=y"}));
  environment.unset("B");
  EXPECT_FALSE(environment.contains("B"));
}

TEST(ParseIntegerTest, OnlyWholeDecimalNumbersPass) {
  EXPECT_EQ(parse_integer("42"), 42);
  EXPECT_EQ(parse_integer("-3"), -3);
  EXPECT_EQ(parse_integer("+3"), 3);
  for (const char* bad :
       {"", " 1", "1 ", "1x", "x", "+", "-", "+-1", "0x10", "99999999999999999999"})
    EXPECT_FALSE(parse_integer(bad).has_value()) << bad;
}

}  // namespace
}  // namespace dtrun::base
