#include "dtrun/tensor/shape.h"

#include <gtest/gtest.h>

#include "dtrun/base/error.h"

namespace dtrun::tensors {
namespace {

TEST(ShapeTest, ElementsAreTheProductOfTheSizes) {
  EXPECT_EQ(numel({}), 1);
  EXPECT_EQ(numel({2, 3, 4}), 24);
  EXPECT_EQ(numel({5, 0}), 0);
  EXPECT_EQ(numel({std::int64_t{1} << 40, std::int64_t{1} << 40, 0}), 0);
}

TEST(ShapeTest, NegativeSizesAndOverflowAreErrors) {
  EXPECT_THROW(numel({2, -1}), base::Error);
  EXPECT_THROW(numel({0, -1}), base::Error);
  EXPECT_THROW(numel({std::int64_t{1} << 40, std::int64_t{1} << 40}), base::Error);
}

TEST(ShapeTest, ContiguousStridesAreRowMajor) {
  EXPECT_EQ(contiguous_strides({2, 3, 4}), (Strides{12, 4, 1}));
  EXPECT_EQ(contiguous_strides({}), Strides{});
  EXPECT_EQ(contiguous_strides({2, 0, 4}), (Strides{4, 4, 1}));
}

TEST(ShapeTest, NegativeDimsCountFromTheEnd) {
  EXPECT_EQ(normalize_dim(-1, 3), 2);
  EXPECT_EQ(normalize_dim(0, 3), 0);
  EXPECT_THROW(normalize_dim(3, 3), base::Error);
  EXPECT_THROW(normalize_dim(-4, 3), base::Error);
  EXPECT_THROW(normalize_dim(0, 0), base::Error);
}

TEST(ShapeTest, ShapesBroadcastFromTheLastDim) {
  EXPECT_EQ(broadcast_shapes({3, 1}, {4}), (Shape{3, 4}));
  EXPECT_EQ(broadcast_shapes({}, {2, 0}), (Shape{2, 0}));
  EXPECT_EQ(broadcast_shapes({1}, {0}), Shape{0});
}

TEST(ShapeTest, ABadBroadcastNamesBothShapesAndTheDim) {
  try {
    broadcast_shapes({2, 3}, {2, 4});
    FAIL() << "no error";
  } catch (const base::Error& error) {
    EXPECT_EQ(error.summary(), "shapes [2, 3] and [2, 4] do not broadcast");
    EXPECT_EQ(error.why(), "at dim 1 one has 3 and the other 4");
  }
}

}  // namespace
}  // namespace dtrun::tensors
