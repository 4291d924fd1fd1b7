#include <gtest/gtest.h>

#include <random>
#include <utility>

#include "dtrun/base/error.h"
#include "dtrun/tensor/ops.h"

namespace dtrun::tensors {
namespace {

using base::Error;
using Values = std::vector<double>;

LocalTensor grid() {
  return arange(6).view({2, 3});
}

TEST(ViewTest, ViewsShareTheirElements) {
  const LocalTensor whole = zeros({2, 3});
  whole.select(0, 1).fill_(5);
  whole.slice(1, 0, 1).fill_(7);
  whole.transpose(0, 1).select(0, 2).fill_(9);
  EXPECT_EQ(whole.to_vector(), (Values{7, 0, 9, 7, 5, 9}));
}

TEST(ViewTest, OverOtherMemoryAViewShowsTheSamePlaces) {
  const LocalTensor a = arange(12, {.dtype = DType::f32}).view({3, 4});
  const LocalTensor other = full({12}, 7, {.dtype = DType::f32});
  const LocalTensor column = a.select(1, 2).over(other.storage());
  column.fill_(1);
  EXPECT_EQ(column.shape(), (Shape{3}));
  EXPECT_EQ(other.to_vector(), (std::vector<double>{7, 7, 1, 7, 7, 7, 1, 7, 7, 7, 1, 7}));
  EXPECT_EQ(a.to_vector()[2], 2);
  EXPECT_TRUE(a.over(other.storage()).is_contiguous());
  EXPECT_EQ(a.over(other.storage()).numel(), 12);
  EXPECT_DEATH(a.over(Storage::allocate(47, kCpu)), "storage");
}

TEST(ViewTest, ATransposedTensorIsReadInItsOwnOrder) {
  const LocalTensor turned = grid().transpose(0, -1);
  EXPECT_EQ(turned.shape(), (Shape{3, 2}));
  EXPECT_FALSE(turned.is_contiguous());
  EXPECT_EQ(turned.to_vector(), (Values{0, 3, 1, 4, 2, 5}));
  EXPECT_TRUE(turned.contiguous().is_contiguous());
  EXPECT_EQ(turned.contiguous().to_vector(), turned.to_vector());
  EXPECT_EQ(grid().permute({1, 0}).strides(), turned.strides());
}

TEST(ViewTest, ViewInfersMinusOne) {
  EXPECT_EQ(grid().view({3, -1}).shape(), (Shape{3, 2}));
  EXPECT_EQ(arange(0).view({-1, 4}).shape(), (Shape{0, 4}));
  EXPECT_THROW(grid().view({-1, -1}), Error);
  EXPECT_THROW(grid().view({4, -1}), Error);
  EXPECT_THROW(grid().view({5}), Error);
  EXPECT_THROW(arange(0).view({0, -1}), Error);
}

TEST(ViewTest, ViewWorksOnStridesThatAllowItAndReshapeCopiesElsewhere) {
  const LocalTensor rows = arange(24).view({4, 6}).slice(0, 0, 4, 2);
  EXPECT_EQ(rows.view({2, 2, 3}).to_vector(), rows.to_vector());
  EXPECT_EQ(rows.view({2, 1, 6, 1}).storage(), rows.storage());
  EXPECT_THROW(rows.view({12}), Error);
  EXPECT_EQ(rows.reshape({12}).to_vector(), (Values{0, 1, 2, 3, 4, 5, 12, 13, 14, 15, 16, 17}));
  const LocalTensor turned = arange(24).view({2, 3, 4}).transpose(0, 1);
  EXPECT_EQ(turned.view({3, 2, 2, 2}).to_vector(), turned.to_vector());
  EXPECT_THROW(turned.view({6, 4}), Error);
  EXPECT_THROW(turned.view({3, 8}), Error);
  EXPECT_EQ(turned.reshape({6, 4}).to_vector(), turned.to_vector());
  EXPECT_EQ(arange(3).unsqueeze(0).expand({2, 3}).reshape({6}).to_vector(),
            (Values{0, 1, 2, 0, 1, 2}));
}

TEST(ViewTest, SlicesClampAndCountFromTheEnd) {
  const LocalTensor numbers = arange(10);
  EXPECT_EQ(numbers.slice(0, 1, 8, 3).to_vector(), (Values{1, 4, 7}));
  EXPECT_EQ(numbers.slice(0, -3, 100).to_vector(), (Values{7, 8, 9}));
  EXPECT_EQ(numbers.slice(0, 8, 2).numel(), 0);
  EXPECT_EQ(numbers.slice(0, 10, 10).numel(), 0);
  EXPECT_EQ(numbers.slice(0, 1, 8, 3).slice(0, 1, 3).to_vector(), (Values{4, 7}));
  EXPECT_THROW(numbers.slice(0, 0, 1, 0), Error);
  EXPECT_THROW(numbers.slice(1, 0, 1), Error);
}

TEST(ViewTest, NarrowAndSelectRefuseWhatIsOutside) {
  EXPECT_EQ(grid().narrow(1, 1, 2).to_vector(), (Values{1, 2, 4, 5}));
  EXPECT_EQ(grid().narrow(1, -1, 1).to_vector(), (Values{2, 5}));
  EXPECT_THROW(grid().narrow(1, 2, 2), Error);
  EXPECT_THROW(grid().narrow(1, 0, -1), Error);
  EXPECT_EQ(grid()[-1].to_vector(), (Values{3, 4, 5}));
  EXPECT_THROW(grid()[2], Error);
  EXPECT_THROW(arange(1)[0][0], Error);
}

TEST(ViewTest, DimsOfOneComeAndGo) {
  EXPECT_EQ(grid().unsqueeze(0).shape(), (Shape{1, 2, 3}));
  EXPECT_EQ(grid().unsqueeze(-1).shape(), (Shape{2, 3, 1}));
  EXPECT_EQ(grid().unsqueeze(1).squeeze(1).shape(), (Shape{2, 3}));
  EXPECT_EQ(grid().squeeze(0).shape(), (Shape{2, 3}));
}

TEST(ViewTest, ExpandRepeatsWithoutCopying) {
  const LocalTensor row = arange(3).expand({2, -1});
  EXPECT_EQ(row.to_vector(), (Values{0, 1, 2, 0, 1, 2}));
  EXPECT_THROW(grid().expand({3, 3}), Error);
  EXPECT_THROW(grid().expand({3}), Error);
  EXPECT_THROW(row.fill_(1), Error);
}

TEST(ViewTest, PermuteWantsEveryDimOnce) {
  EXPECT_THROW(grid().permute({0}), Error);
  EXPECT_THROW(grid().permute({0, 0}), Error);
}

TEST(JoinTest, CatJoinsAlongADimAndPromotes) {
  EXPECT_EQ(cat({grid(), grid()}, 1).shape(), (Shape{2, 6}));
  EXPECT_EQ(cat({grid(), grid()}, 1).to_vector(), (Values{0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5}));
  EXPECT_EQ(cat({grid(), grid().to(DType::f16)}).dtype(), DType::f16);
  EXPECT_EQ(cat({arange(0), grid()}).shape(), (Shape{2, 3}));
  EXPECT_EQ(cat({arange(0), arange(0)}).shape(), Shape{0});
  EXPECT_EQ(cat({grid(), zeros({0, 3}, {DType::i64})}, 0).shape(), (Shape{2, 3}));
}

TEST(JoinTest, CatRefusesWhatDoesNotFit) {
  EXPECT_THROW(cat({}), Error);
  EXPECT_THROW(cat({grid(), grid().transpose(0, 1)}), Error);
  EXPECT_THROW(cat({grid(), arange(3)}), Error);
  EXPECT_THROW(cat({full({}, 1)}), Error);
}

TEST(JoinTest, StackAddsADim) {
  EXPECT_EQ(stack({arange(2), arange(2)}).to_vector(), (Values{0, 1, 0, 1}));
  EXPECT_EQ(stack({arange(2), arange(2)}, -1).to_vector(), (Values{0, 0, 1, 1}));
  EXPECT_EQ(stack({full({}, 1), full({}, 2)}).to_vector(), (Values{1, 2}));
  EXPECT_THROW(stack({arange(2), arange(3)}), Error);
  EXPECT_THROW(stack({}), Error);
}

TEST(SplitTest, PiecesAreOfTheSizeAskedAndTheLastIsSmaller) {
  const std::vector<LocalTensor> pieces = split(arange(7), 3);
  ASSERT_EQ(pieces.size(), 3u);
  EXPECT_EQ(pieces[1].to_vector(), (Values{3, 4, 5}));
  EXPECT_EQ(pieces[2].to_vector(), Values{6});
  EXPECT_EQ(split(arange(0), 3).size(), 1u);
  EXPECT_EQ(split(grid(), {1, 0, 2}, 1)[2].to_vector(), (Values{1, 2, 4, 5}));
  EXPECT_THROW(split(arange(7), 0), Error);
  EXPECT_THROW(split(arange(7), {3, 3}), Error);
  EXPECT_THROW(split(arange(7), {8, -1}), Error);
}

TEST(SplitTest, ChunkAlwaysGivesAsManyPiecesAsAsked) {
  const auto sizes = [](std::int64_t n, int chunks) {
    std::vector<std::int64_t> result;
    for (const LocalTensor& piece : chunk(arange(n), chunks)) result.push_back(piece.numel());
    return result;
  };
  EXPECT_EQ(sizes(10, 4), (std::vector<std::int64_t>{3, 3, 3, 1}));
  EXPECT_EQ(sizes(6, 4), (std::vector<std::int64_t>{2, 2, 2, 0}));
  EXPECT_EQ(sizes(3, 4), (std::vector<std::int64_t>{1, 1, 1, 0}));
  EXPECT_EQ(sizes(0, 2), (std::vector<std::int64_t>{0, 0}));
  EXPECT_THROW(chunk(arange(3), 0), Error);
}

// Against plain index arithmetic, over many random strided tensors.

/// Where each element lies, in row-major order.
std::vector<std::int64_t> positions_of(const Shape& shape, const Strides& strides,
                                       std::int64_t offset) {
  std::vector<std::int64_t> positions;
  for (std::int64_t i = 0; i < numel(shape); ++i) {
    std::int64_t position = offset;
    std::int64_t rest = i;
    for (std::size_t d = shape.size(); d-- > 0;) {
      position += rest % shape[d] * strides[d];
      rest /= shape[d];
    }
    positions.push_back(position);
  }
  return positions;
}

/// Takes steps of 1 along each dim of `shape` and sees whether they explain all positions.
bool can_be_viewed(const std::vector<std::int64_t>& positions, const Shape& shape) {
  const Strides steps = contiguous_strides(shape);
  Strides strides(shape.size(), 0);
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] > 1) strides[d] = positions[static_cast<std::size_t>(steps[d])] - positions[0];
  }
  return positions_of(shape, strides, positions[0]) == positions;
}

LocalTensor random_view(std::mt19937& random) {
  const auto draw = [&random](int limit) { return static_cast<int>(random() % limit); };
  Shape shape;
  for (int d = 0; d < 4; ++d) shape.push_back(1 + draw(4));
  LocalTensor tensor = arange(numel(shape)).view(shape);
  for (int step = 0; step < 3; ++step) {
    const int d = draw(4);
    if (draw(2) == 0) tensor = tensor.transpose(d, draw(4));
    if (draw(3) == 0) tensor = tensor.slice(d, draw(2), 4, 1 + draw(2));
    if (draw(4) == 0 && tensor.size(d) == 1) {
      Shape wider = tensor.shape();
      wider[static_cast<std::size_t>(d)] = 3;
      tensor = tensor.expand(wider);
    }
  }
  return tensor;
}

TEST(ViewPropertyTest, RandomViewsReadCopyAndReshapeAsIndexArithmeticSays) {
  std::mt19937 random(3);
  int views = 0;
  int refusals = 0;
  for (int round = 0; round < 3000; ++round) {
    const LocalTensor tensor = random_view(random);
    if (tensor.numel() == 0) continue;
    const auto positions = positions_of(tensor.shape(), tensor.strides(), tensor.offset());
    // arange: each element's value is its position.
    ASSERT_EQ(tensor.clone().to_vector_i64(), positions);
    ASSERT_EQ(tensor.to(DType::f32).to_vector_i64(), positions);
    Shape shape = {1, tensor.numel(), 1};
    for (const std::int64_t factor : {2, 3, 4}) {
      if (random() % 2 == 0 && shape[1] % factor == 0) {
        shape[1] /= factor;
        shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(random() % shape.size()), factor);
        std::swap(shape[1], shape[shape.size() - 2]);
      }
    }
    ASSERT_EQ(tensor.reshape(shape).to_vector_i64(), positions);
    if (can_be_viewed(positions, shape)) {
      ASSERT_EQ(tensor.view(shape).to_vector_i64(), positions) << shape_to_string(shape);
      ASSERT_EQ(tensor.view(shape).storage(), tensor.storage());
      ++views;
    } else {
      ASSERT_THROW(tensor.view(shape), Error);
      ++refusals;
    }
  }
  EXPECT_GT(views, 200);
  EXPECT_GT(refusals, 200);
}

}  // namespace
}  // namespace dtrun::tensors
