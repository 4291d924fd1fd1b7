// How kernels find an element of a strided tensor, with 32 bits and with 64: places and divisions,
// without the memory that tensors of such sizes take.
#include "cuda/strided_layout.h"

#include <gtest/gtest.h>

#include "cuda/line_layout.h"
#include "dtrun/base/error.h"

namespace dtrun::tensors::cuda {
namespace {

constexpr std::int64_t k31Bits = std::int64_t{1} << 31, k32Bits = std::int64_t{1} << 32;

TEST(StridedLayoutTest, ElementsBeyond31BitsHaveTheirPlaces) {
  for (const std::int64_t rows : {std::int64_t{7}, (k31Bits - 2) / 2, k31Bits / 2, k31Bits + 5}) {
    const Strides by_rows = {2, 1}, by_columns = {1, rows}, spread = {6, 3};
    const auto layout = make_layout<3>({rows, 2}, {&by_rows, &by_columns, &spread});
    ASSERT_EQ(layout.count, 2 * rows);
    EXPECT_EQ(layout.rank, 2);
    for (const std::int64_t i : {std::int64_t{0}, std::int64_t{1}, rows - 1, rows, layout.count / 3,
                                 layout.count - 2, layout.count - 1}) {
      const auto offsets = layout.offsets(i);
      EXPECT_EQ(offsets.of[0], i) << rows;
      EXPECT_EQ(offsets.of[1], i / 2 + i % 2 * rows) << rows << ", element " << i;
      EXPECT_EQ(offsets.of[2], 3 * i) << rows << ", element " << i;
    }
  }
}

TEST(StridedLayoutTest, OneRunOfMoreThan32BitsIsFlat) {
  const Strides whole = {4, 2, 1}, row = {0, 0, 0};
  const auto layout = make_layout<2>({k31Bits, 2, 2}, {&whole, &row});
  EXPECT_EQ(layout.rank, 1);
  EXPECT_TRUE(layout.is_flat());
  EXPECT_EQ(layout.count, 4 * k31Bits);
  EXPECT_EQ(layout.step(0), 1);
  EXPECT_EQ(layout.step(1), 0);
  EXPECT_EQ(layout.offsets(layout.count - 1).of[0], layout.count - 1);
  EXPECT_EQ(layout.offsets(layout.count - 1).of[1], 0);
}

TEST(StridedLayoutTest, LinesBeyond31BitsHaveTheirPlaces) {
  const std::int64_t length = k31Bits + 5;
  const Strides strides = {2 * length, 2, 1};
  const auto along = make_lines<1>({3, length, 2}, 1, {&strides});
  EXPECT_EQ(along.length, length);
  EXPECT_EQ(along.lines, 6);
  EXPECT_EQ(along.steps[0], 2);
  EXPECT_EQ(along.others.offsets(5).of[0], 4 * length + 1);
  const auto across = make_lines<1>({3, length, 2}, 0, {&strides});
  EXPECT_EQ(across.length, 3);
  EXPECT_EQ(across.lines, 2 * length);
  EXPECT_EQ(across.steps[0], 2 * length);
  EXPECT_EQ(across.others.offsets(across.lines - 1).of[0], across.lines - 1);
}

TEST(StridedLayoutTest, NumbersOfAnySizeAreDivided) {
  for (const std::int64_t divisor : {std::int64_t{1}, std::int64_t{3}, k31Bits - 1, k31Bits + 5,
                                     k32Bits - 1, k32Bits, k32Bits + 7}) {
    for (const std::int64_t number : {std::int64_t{0}, std::int64_t{2}, k31Bits, k32Bits - 1,
                                      k32Bits, 5 * k32Bits + 11, k32Bits * (k31Bits - 1)}) {
      const Division division = divide(number, divisor);
      EXPECT_EQ(division.quotient, number / divisor) << number << " / " << divisor;
      EXPECT_EQ(division.remainder, number % divisor) << number << " / " << divisor;
    }
  }
}

TEST(StridedLayoutTest, DimsThatDoNotMergeAreCounted) {
  const auto turned = [](std::size_t dims) {
    Strides strides;
    for (std::size_t d = 0; d < dims; ++d) strides.push_back(std::int64_t{1} << d);
    return make_layout<1>(Shape(dims, 2), {&strides});
  };
  EXPECT_EQ(turned(12).rank, 12);
  EXPECT_EQ(turned(12).offsets(1).of[0], 2048);
  try {
    turned(13);
    ADD_FAILURE() << "no error";
  } catch (const base::Error& error) {
    EXPECT_EQ(error.code(), base::ErrorCode::kInvalidArgument);
    EXPECT_NE(error.summary().find("[2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2]"), std::string::npos);
    EXPECT_NE(error.why().find("12 dims"), std::string::npos);
  }
}

}  // namespace
}  // namespace dtrun::tensors::cuda
