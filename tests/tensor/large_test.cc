// Tensors of more than 2^31 elements: counts, offsets and positions that no int holds. Some
// gigabytes, hence among the long tests.
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/ops/index.h"

namespace dtrun::tensors {
namespace {

constexpr std::int64_t kCount = (std::int64_t{1} << 31) + 11;
constexpr std::int64_t kLast = kCount - 1;

std::int64_t available_bytes() {
  std::ifstream file("/proc/meminfo");
  for (std::string word; file >> word;) {
    std::int64_t kilobytes = 0;
    if (word == "MemAvailable:" && file >> kilobytes) return kilobytes * 1024;
  }
  return 0;
}

/// A test without them would bring the OOM killer.
#define DT_NEEDS_BYTES(needed)                                                \
  if (const std::int64_t available = available_bytes(); available < (needed)) \
  GTEST_SKIP() << "needs " << (needed) << " bytes of memory, " << available << " are available"

class LargeTest : public testing::Test {
 protected:
  void SetUp() override {
    DT_NEEDS_BYTES(6 * kCount);
    bytes_ = zeros({kCount}, {DType::u8});
    bytes_.data_as<std::uint8_t>()[kLast] = 3;
    bytes_.data_as<std::uint8_t>()[5] = 2;
  }
  LocalTensor bytes_;
};

TEST_F(LargeTest, PointwiseFunctionsReachTheLastElement) {
  const LocalTensor sum = add(bytes_, bytes_);
  EXPECT_EQ(sum[kLast].item(), 6);
  EXPECT_EQ(gt(sum, 5)[kLast].item(), 1);
  const LocalTensor rows = bytes_.slice(0, 1, kCount).view({2, (kCount - 1) / 2});
  const LocalTensor strided = add(rows.transpose(0, 1), rows.transpose(0, 1));
  EXPECT_EQ(strided.select(0, (kCount - 1) / 2 - 1)[1].item(), 6);
  EXPECT_EQ(strided.select(0, 4)[0].item(), 4);
}

TEST_F(LargeTest, ReductionsCountAllElements) {
  EXPECT_EQ(sum(bytes_).item(), 5);
  EXPECT_EQ(sum(ones({kCount}, {DType::boolean})).to_vector_i64()[0], kCount);
  EXPECT_EQ(amax(bytes_).item(), 3);
  EXPECT_EQ(argmax(bytes_).to_vector_i64()[0], kLast);
  EXPECT_EQ(sum(bytes_.view({kCount, 1}), {0}).item(), 5);
}

TEST_F(LargeTest, ProductsHaveMoreRowsThanABlasCounts) {
  const LocalTensor tripled = matmul(bytes_.view({kCount, 1}), full({1, 1}, 3, {DType::u8}));
  EXPECT_EQ(tripled.shape(), (Shape{kCount, 1}));
  EXPECT_EQ(tripled[kLast].item(), 9);
  EXPECT_EQ(tripled[5].item(), 6);
  EXPECT_EQ(sum(tripled).item(), 15);
}

TEST_F(LargeTest, ProductsOfIntegersHaveMoreColumnsThanABlasCounts) {
  const LocalTensor row = bytes_.view({1, kCount}), column = bytes_.view({kCount, 1});
  EXPECT_EQ(matmul(row, column).item(), 13);
  const LocalTensor tripled = matmul(full({1, 1}, 3, {DType::u8}), row);
  EXPECT_EQ(tripled[0][kLast].item(), 9);
  EXPECT_EQ(sum(tripled).item(), 15);
}

TEST(LargeProductTest, HalvesHaveMoreColumnsThanABlasCounts) {
  DT_NEEDS_BYTES(6 * kCount);
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const LocalTensor x = zeros({kCount}, {dtype});
    x[kLast].fill_(3);
    x[5].fill_(2);
    EXPECT_EQ(matmul(x.view({1, kCount}), x.view({kCount, 1})).item(), 13);
    const LocalTensor tripled = matmul(full({1, 1}, 3, {dtype}), x.view({1, kCount}));
    EXPECT_EQ(tripled[0][kLast].item(), 9);
    EXPECT_EQ(tripled[0][5].item(), 6);
    EXPECT_EQ(tripled[0][kLast - 1].item(), 0);
  }
}

TEST(LargeProductTest, ALastPieceOfRowsHasItsOwnTermAndResult) {
  DT_NEEDS_BYTES(8 * kCount);
  const LocalTensor left = zeros({kCount, 1}, {DType::f16});
  left[kLast].fill_(3);
  left[6].fill_(2);
  const LocalTensor term = zeros({kCount, 1}, {DType::f16});
  term[kLast].fill_(0.5);
  const LocalTensor right = full({1, 1}, 4, {DType::f16});
  const LocalTensor result = add_matmul(term, left, right);
  EXPECT_EQ(result[kLast].item(), 12.5);
  EXPECT_EQ(result[kLast - 1].item(), 0);
  EXPECT_EQ(result[6].item(), 8);
  EXPECT_EQ(matmul(left, right.view({1}))[kLast].item(), 12);
}

TEST_F(LargeTest, PositionsGoBeyondThirtyOneBits) {
  const LocalTensor at = tensor_from(std::vector<std::int64_t>{kLast, 5, 0}, {3}, DType::i64);
  EXPECT_EQ(index_select(bytes_, 0, at).to_vector(), (std::vector<double>{3, 2, 0}));
  EXPECT_EQ(gather(bytes_, 0, at).to_vector(), (std::vector<double>{3, 2, 0}));
  EXPECT_EQ(true_positions(bytes_.to(DType::boolean)).to_vector_i64(),
            (std::vector<std::int64_t>{5, kLast}));
  EXPECT_EQ(bytes_.slice(0, kLast - 1, kCount).to_vector(), (std::vector<double>{0, 3}));
  EXPECT_EQ(cat({bytes_, bytes_.slice(0, 0, 6)}, 0)[kCount + 5].item(), 2);
}

TEST_F(LargeTest, FloatingPointSumsAreRight) {
  const LocalTensor halves = ones({kCount / 2}, {DType::bf16});
  EXPECT_EQ(sum(halves.view({kCount / 2, 1}), {0}, true).to(DType::f32).item(), 1073741824.0);
}

// The operand of these repeats a row, so that the results alone take memory.
constexpr std::int64_t kColumns = 32;
constexpr std::int64_t kRows = kCount / kColumns + 1;

/// [kRows, kColumns]: in each row the numbers from kColumns - 1 to 0.
LocalTensor descending_rows(DType dtype) {
  return sub(kColumns - 1, arange(kColumns)).to(dtype).unsqueeze(0).expand({kRows, kColumns});
}

TEST(LargeRowsTest, EachRowsSoftmaxIsThatOfARow) {
  DT_NEEDS_BYTES(3 * kCount);
  const LocalTensor rows = descending_rows(DType::bf16);
  const LocalTensor found = softmax(rows, 1), expected = softmax(rows[0], 0);
  for (const std::int64_t row : {std::int64_t{0}, kRows / 2, kRows - 1})
    EXPECT_TRUE(equal(found[row], expected)) << row;
}

TEST(LargeRowsTest, AScanGoesThroughToTheLastElement) {
  DT_NEEDS_BYTES(5 * kCount);
  const LocalTensor line = zeros({kCount}, {DType::bf16});
  for (const std::int64_t at : {std::int64_t{1}, std::int64_t{1} << 31, kLast}) line[at].fill_(1);
  const LocalTensor sums = cumsum(line, 0);
  EXPECT_EQ(sums[0].item(), 0);
  EXPECT_EQ(sums[(std::int64_t{1} << 31) - 1].item(), 1);
  EXPECT_EQ(sums[std::int64_t{1} << 31].item(), 2);
  EXPECT_EQ(sums[kLast].item(), 3);
}

TEST(LargeRowsTest, EveryRowIsScanned) {
  DT_NEEDS_BYTES(3 * kCount);
  const LocalTensor rows = descending_rows(DType::bf16);
  const LocalTensor found = cumsum(rows, 1), expected = cumsum(rows[0], 0);
  for (const std::int64_t row : {std::int64_t{0}, kRows / 2, kRows - 1})
    EXPECT_TRUE(equal(found[row], expected)) << row;
}

TEST(LargeRowsTest, TheFirstOfEachRowAreFound) {
  DT_NEEDS_BYTES(kCount);
  const Sorted found = topk(descending_rows(DType::u8), 1, 1, SortOrder::ascending);
  for (const std::int64_t row : {std::int64_t{0}, kRows / 2, kRows - 1}) {
    EXPECT_EQ(found.values[row][0].item(), 0) << row;
    EXPECT_EQ(found.indices[row][0].item(), kColumns - 1) << row;
  }
}

TEST(LargeRowsTest, EveryRowIsSorted) {
  DT_NEEDS_BYTES(10 * kCount);
  const Sorted found = sort(descending_rows(DType::u8), 1);
  const LocalTensor numbers = arange(kColumns);
  for (const std::int64_t row : {std::int64_t{0}, kRows / 2, kRows - 1}) {
    EXPECT_TRUE(equal(found.values[row], numbers)) << row;
    EXPECT_TRUE(equal(found.indices[row], sub(kColumns - 1, numbers))) << row;
  }
}

}  // namespace
}  // namespace dtrun::tensors
