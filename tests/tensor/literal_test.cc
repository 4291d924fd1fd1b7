#include "dtrun/tensor/literal.h"

#include <gtest/gtest.h>

#include "dtrun/base/error.h"

namespace dtrun::tensors {
namespace {

using Values = std::vector<double>;

TEST(LiteralTest, NestedBracesMakeTheShape) {
  EXPECT_EQ(tensor({1., 2.}).shape(), Shape{2});
  EXPECT_EQ(tensor({{1, 2}, {3, 4}}).shape(), (Shape{2, 2}));
  EXPECT_EQ(tensor({{1, 2}, {3, 4}}).to_vector(), (Values{1, 2, 3, 4}));
  EXPECT_EQ(tensor({{{1}, {2}}, {{3}, {4}}, {{5}, {6}}}).shape(), (Shape{3, 2, 1}));
  EXPECT_EQ(tensor({{1, 2, 3}}).shape(), (Shape{1, 3}));
  EXPECT_EQ(tensor({{1, 2}}).shape(), (Shape{1, 2}));
  EXPECT_EQ(tensor({{1}, {2}}).shape(), (Shape{2, 1}));
  EXPECT_EQ(tensor({7}).shape(), Shape{1});
  EXPECT_EQ(tensor(7).shape(), Shape{});
  EXPECT_EQ(tensor({}).shape(), Shape{0});
  EXPECT_EQ(tensor({}).dtype(), DType::f32);
}

TEST(LiteralTest, TheKindsOfTheNumbersMakeTheDType) {
  EXPECT_EQ(tensor({1, 2}).dtype(), DType::i64);
  EXPECT_EQ(tensor({1, 2.5}).dtype(), DType::f32);
  EXPECT_EQ(tensor({1.f}).dtype(), DType::f32);
  EXPECT_EQ(tensor({true, false}).dtype(), DType::boolean);
  EXPECT_EQ(tensor({true, 3}).dtype(), DType::i64);
  EXPECT_EQ(tensor({true, 3}).to_vector(), (Values{1, 3}));
  EXPECT_EQ(tensor({{true}, {2.5}}).to_vector(), (Values{1, 2.5}));
  EXPECT_EQ(tensor({1, 2}, {.dtype = DType::f16}).dtype(), DType::f16);
  EXPECT_EQ(tensor(true).dtype(), DType::boolean);
}

TEST(LiteralTest, LargeIntegersAreExact) {
  constexpr std::int64_t kLarge = (std::int64_t{1} << 53) + 1;
  EXPECT_EQ(tensor({kLarge}).to_vector_i64(), std::vector<std::int64_t>{kLarge});
}

TEST(LiteralTest, RaggedListsAreErrors) {
  EXPECT_THROW(tensor({{1, 2}, {3}}), base::Error);
  EXPECT_THROW(tensor({{1, 2}, 3}), base::Error);
}

}  // namespace
}  // namespace dtrun::tensors
