#include "dtrun/dtensor/layout/notation.h"

#include <gtest/gtest.h>

#include "dtrun/base/error.h"

namespace dtrun::dtensor {
namespace {

const tensors::Shape kShape = {8, 6, 4};
const std::vector<int> kMesh = {2, 2, 3};

std::string read(const std::string& text) {
  return parse_layout(text, kShape, kMesh).to_string();
}

std::string refusal(const std::string& text) {
  try {
    return "read as " + read(text);
  } catch (const base::Error& error) {
    EXPECT_EQ(error.code(), base::ErrorCode::kInvalidArgument);
    return error.what();
  }
}

TEST(NotationTest, PyTorchsNotationIsReadInEverySpelling) {
  for (const char* text : {"[S(0), R, P(sum)]", "S(0),R,P", "{Shard(0), Replicate(), Partial()}",
                           "(Shard(dim=0), Replicate(), Partial(sum))", "  S( -3 ) , R,P(sum) "}) {
    EXPECT_EQ(read(text), "[S(0), R, P(sum)]") << text;
  }
  EXPECT_EQ(read("[P(max), S(-1), P(max)]"), "[P(max), S(2), P(max)]");
}

TEST(NotationTest, PyTorchsTextOfASpecIsReadWithItsOrder) {
  EXPECT_EQ(read("PS(1)[1]S(1)[0]"), "[P(sum), S(1), S(1)] order {1: [2, 1]}");
  EXPECT_EQ(read("S(0)[2]S(-3)[0]S(0)[1]"), "[S(0), S(0), S(0)] order {0: [1, 2, 0]}");
  EXPECT_EQ(read("[S(0)[0], S(0)[1], R]"), "[S(0), S(0), R]");
  EXPECT_EQ(read("S(2)RP(max)"), "[S(2), R, P(max)]");
  EXPECT_NE(refusal("S(0)[7]S(0)[3]R").find("the places of dim 0 are not 0, 1"), std::string::npos);
  EXPECT_NE(refusal("S(0)[-1]S(0)[0]R").find("the places of dim 0 are not 0, 1"),
            std::string::npos);
  EXPECT_NE(refusal("[S(0)[1], S(0)[0], R] order {0: [1, 0]}").find("an order, and places"),
            std::string::npos);
  EXPECT_NE(refusal("S(0)[1]S(0)[1]R").find("two axes have place 1 of dim 0"), std::string::npos);
  EXPECT_NE(refusal("S(0)[x]S(0)[0]R").find("'x' is no number"), std::string::npos);
  EXPECT_NE(refusal("S(0)[0]S(0)R").find("order"), std::string::npos) << refusal("S(0)[0]S(0)R");
  EXPECT_NE(refusal("P(sum)[0]RR").find("only a Shard"), std::string::npos);
}

TEST(NotationTest, ColossalAIsNotationIsReadWithItsOrder) {
  EXPECT_EQ(read("[S01, R, S2]"), "[S(0), S(0), S(2)]");
  EXPECT_EQ(read("[S10, R, R]"), "[S(0), S(0), R] order {0: [1, 0]}");
  EXPECT_EQ(read("R,S201,R"), "[S(1), S(1), S(1)] order {1: [2, 0, 1]}");
}

TEST(NotationTest, ColossalAIsPartitionIsReadAndPrinted) {
  EXPECT_EQ(read("{0:[0,1]}"), "[S(0), S(0), R]");
  EXPECT_EQ(read("{0: [1, 0], 2: [2]}"), "[S(0), S(0), S(2)] order {0: [1, 0], 2: [2]}");
  EXPECT_EQ(read("{-1: [2]}"), "[R, R, S(2)]");
  for (const char* text : {"{0: [0, 1]}", "{0: [1, 0], 2: [2]}", "{1: [2, 0, 1]}"}) {
    EXPECT_EQ(dim_partition(parse_layout(text, kShape, kMesh), kShape.size()), text);
  }
  EXPECT_EQ(dim_partition(Layout::whole(kMesh.size()), kShape.size()), "{}");
  EXPECT_NE(refusal("{3: [0]}").find("3"), std::string::npos) << refusal("{3: [0]}");
  EXPECT_NE(refusal("{0: [7]}").find("7"), std::string::npos) << refusal("{0: [7]}");
  EXPECT_NE(refusal("{0: [x]}").find("'x' is no number"), std::string::npos);
}

TEST(NotationTest, WhatIsPrintedIsReadAgain) {
  for (const char* text : {"[S10, R, S2]", "[R, R, S021]", "[R, R, R]", "[S0, S1, S2]"}) {
    const Layout layout = parse_layout(text, kShape, kMesh);
    EXPECT_EQ(sharding_sequence(layout, kShape.size()), text);
    EXPECT_EQ(parse_layout(layout.to_string(), kShape, kMesh), layout) << layout.to_string();
  }
}

TEST(NotationTest, WhatIsNoLayoutIsRefusedWithTheReason) {
  EXPECT_NE(refusal("[S(0), R]").find("2 entries for a mesh of 3 axes"), std::string::npos);
  EXPECT_NE(refusal("[S0, R]").find("2 entries for a tensor of 3 dims"), std::string::npos);
  EXPECT_NE(refusal("[S0, S(1), R]").find("'S(1)'"), std::string::npos);
  EXPECT_NE(refusal("[S0, S0, R]").find("cuts twice"), std::string::npos);
  EXPECT_NE(refusal("[S7, R, R]").find("no axis 7"), std::string::npos);
  EXPECT_NE(refusal("[S(x), R, R]").find("'S(x)' is no placement"), std::string::npos);
  EXPECT_NE(refusal("").find("0 entries"), std::string::npos);
  EXPECT_NE(refusal("[S(5), R, R]").find("-3 to 2"), std::string::npos);
  EXPECT_THROW(sharding_sequence(parse_layout("P,R,R", kShape, kMesh), 3), base::Error);
}

}  // namespace
}  // namespace dtrun::dtensor
