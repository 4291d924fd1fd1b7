#include "dtrun/dtensor/layout/placement.h"

#include <gtest/gtest.h>

#include "dtrun/base/error.h"

namespace dtrun::dtensor {
namespace {

TEST(PlacementTest, TheShortTextIsThatOfTheVectors) {
  EXPECT_EQ(Shard(0).to_string(), "S(0)");
  EXPECT_EQ(Shard(-2).to_string(), "S(-2)");
  EXPECT_EQ(Replicate().to_string(), "R");
  EXPECT_EQ(Partial().to_string(), "P(sum)");
  EXPECT_EQ(placements_to_string({Shard(0), Replicate()}), "[S(0), R]");
  EXPECT_EQ(placements_to_string({}), "[]");
}

TEST(PlacementTest, ReprIsThatOfPyTorch) {
  EXPECT_EQ(Shard(1).repr(), "Shard(dim=1)");
  EXPECT_EQ(Replicate().repr(), "Replicate()");
  EXPECT_EQ(Partial(ReduceOp::max).repr(), "Partial(max)");
}

TEST(PlacementTest, ParseReadsWhatToStringWrites) {
  for (const Placement& placement :
       {Shard(0), Shard(-1), Shard(12), Replicate(), Partial(), Partial(ReduceOp::avg),
        Partial(ReduceOp::product), Partial(ReduceOp::bxor)}) {
    EXPECT_EQ(Placement::parse(placement.to_string()), placement);
  }
}

TEST(PlacementTest, ParseRefusesWhatIsNoPlacement) {
  for (const char* text :
       {"", "S", "S()", "S(x)", "S(1", "S(1)x", "P", "P(mean)", "P(premul_sum)", "Q(1)", "r"}) {
    try {
      Placement::parse(text);
      FAIL() << text;
    } catch (const base::Error& error) {
      EXPECT_EQ(error.code(), base::ErrorCode::kInvalidArgument) << text;
    }
  }
}

}  // namespace
}  // namespace dtrun::dtensor
