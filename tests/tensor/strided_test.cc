// Operators on views of every kind: random shapes, strides, offsets, stretched and empty dims,
// against loops over numbers.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/ops/index.h"

namespace dtrun::tensors {
namespace {

constexpr int kRounds = 400;

class StridedTest : public testing::Test {
 protected:
  int below(int count) { return static_cast<int>(random_() % static_cast<unsigned>(count)); }
  bool sometimes() { return below(3) == 0; }

  Shape some_shape() {
    Shape shape;
    for (int d = below(4); d-- >= 0 && shape.size() < 4;)
      shape.push_back(below(12) == 0 ? 0 : 1 + below(9));
    return shape;
  }

  /// Small whole numbers, so that sums and products are exact, in a view of some other tensor.
  LocalTensor view_of(const Shape& shape, DType dtype) {
    std::vector<int> order(shape.size());
    for (std::size_t d = 0; d < order.size(); ++d) order[d] = static_cast<int>(d);
    std::shuffle(order.begin(), order.end(), random_);
    Shape stored;
    std::vector<std::int64_t> steps, starts;
    for (const int d : order) {
      const std::int64_t size = shape[static_cast<std::size_t>(d)];
      steps.push_back(sometimes() ? 2 : 1);
      starts.push_back(below(3));
      stored.push_back(sometimes() && size == 1 ? 1 + starts.back()
                                                : starts.back() + size * steps.back());
    }
    std::vector<double> values(static_cast<std::size_t>(numel(stored)));
    for (double& value : values) value = below(7) - 3;
    LocalTensor view = tensor_from(values, stored, dtype);
    std::vector<int> back(order.size());
    for (std::size_t i = 0; i < order.size(); ++i) {
      const std::int64_t size = shape[static_cast<std::size_t>(order[i])];
      view = view.slice(static_cast<int>(i), starts[i], starts[i] + size * steps[i], steps[i]);
      back[static_cast<std::size_t>(order[i])] = static_cast<int>(i);
    }
    return shape.empty() ? view : view.permute(back);
  }

  /// One that broadcasts to the shape.
  LocalTensor broadcast_of(Shape shape, DType dtype) {
    for (std::int64_t& size : shape) {
      if (sometimes()) size = 1;
    }
    if (!shape.empty() && sometimes()) shape = Shape(shape.begin() + 1, shape.end());
    const LocalTensor small = view_of(shape, dtype);
    return sometimes() && shape.size() > 0 ? small.expand(shape) : small;
  }

  static std::vector<double> stretched(const LocalTensor& a, const Shape& shape) {
    return a.expand(shape).contiguous().to_vector();
  }

  std::mt19937 random_{20261123};
};

TEST_F(StridedTest, PointwiseOperatorsBroadcastEveryView) {
  for (int round = 0; round < kRounds; ++round) {
    const DType dtype = below(2) == 0 ? DType::f32 : DType::i64;
    const Shape shape = some_shape();
    const LocalTensor a = view_of(shape, dtype), b = broadcast_of(shape, dtype);
    const LocalTensor mask = gt(broadcast_of(shape, DType::i64), 0);
    const LocalTensor got = where(mask, a * b, a - b);
    ASSERT_EQ(got.shape(), shape);
    const std::vector<double> x = a.to_vector(), y = stretched(b, shape),
                              m = stretched(mask, shape);
    std::vector<double> expected(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) expected[i] = m[i] != 0 ? x[i] * y[i] : x[i] - y[i];
    ASSERT_EQ(got.to_vector(), expected) << shape_to_string(shape) << " round " << round;
    // In place, into a view.
    const LocalTensor target = a.clone().transpose(0, -1).contiguous().transpose(0, -1);
    add_(target, b);
    for (std::size_t i = 0; i < x.size(); ++i) expected[i] = x[i] + y[i];
    ASSERT_EQ(target.to_vector(), expected) << shape_to_string(shape) << " round " << round;
  }
}

TEST_F(StridedTest, ReductionsSeeEveryViewAsItIs) {
  for (int round = 0; round < kRounds; ++round) {
    const Shape shape = some_shape();
    const LocalTensor a = view_of(shape, below(2) == 0 ? DType::f64 : DType::i32);
    const LocalTensor packed = a.contiguous();
    const int dim = below(static_cast<int>(shape.size()));
    ASSERT_EQ(sum(a, {dim}).to_vector(), sum(packed, {dim}).to_vector());
    ASSERT_EQ(cumsum(a, dim).to_vector(), cumsum(packed, dim).to_vector());
    ASSERT_EQ(sort(a, dim).indices.to_vector(), sort(packed, dim).indices.to_vector());
    double total = 0;
    for (const double value : a.to_vector()) total += value;
    ASSERT_EQ(sum(a).item(), total) << shape_to_string(shape) << " round " << round;
    if (shape[static_cast<std::size_t>(dim)] == 0) continue;
    ASSERT_EQ(amax(a, {dim}).to_vector(), amax(packed, {dim}).to_vector());
    ASSERT_EQ(argmin(a, dim).to_vector(), argmin(packed, dim).to_vector());
  }
}

TEST_F(StridedTest, PositionsPointIntoEveryView) {
  for (int round = 0; round < kRounds; ++round) {
    const Shape shape = some_shape();
    const int dim = below(static_cast<int>(shape.size()));
    const auto d = static_cast<std::size_t>(dim);
    if (shape[d] == 0) continue;
    Shape beside = shape;
    beside[d] = below(6);
    const LocalTensor a = view_of(shape, DType::f32);
    const LocalTensor index = remainder(view_of(beside, DType::i64) + 3, shape[d])
                                  .transpose(0, -1)
                                  .contiguous()
                                  .transpose(0, -1);
    const LocalTensor got = gather(a, dim, index);
    const std::vector<double> numbers = index.to_vector(), values = a.to_vector();
    std::vector<double> expected;
    std::int64_t after = 1;
    for (std::size_t later = d + 1; later < shape.size(); ++later) after *= shape[later];
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const std::int64_t place = static_cast<std::int64_t>(i);
      const std::int64_t before = place / after / beside[d];
      const std::int64_t at = (before * shape[d] + static_cast<std::int64_t>(numbers[i])) * after;
      expected.push_back(values[static_cast<std::size_t>(at + place % after)]);
    }
    ASSERT_EQ(got.to_vector(), expected) << shape_to_string(shape) << " round " << round;
    // What is gathered and added back doubles what was pointed to, as often as it was.
    const LocalTensor counts = scatter_add(zeros(shape), dim, index, ones(beside));
    ASSERT_EQ(sum(counts).item(), static_cast<double>(numel(beside)));
    ASSERT_EQ(scatter_add(a, dim, index, got).to_vector(), add(a, a * counts).to_vector());
  }
}

TEST_F(StridedTest, ProductsOfEveryViewAreThoseOfTheNumbers) {
  for (int round = 0; round < kRounds; ++round) {
    const std::int64_t n = below(20), k = below(20), m = below(20);
    const LocalTensor a = view_of({n, k}, DType::f32), b = view_of({k, m}, DType::f32);
    const std::vector<double> x = a.to_vector(), y = b.to_vector();
    std::vector<double> expected(static_cast<std::size_t>(n * m));
    for (std::int64_t i = 0; i < n * k; ++i) {
      for (std::int64_t j = 0; j < m; ++j) {
        expected[static_cast<std::size_t>(i / k * m + j)] +=
            x[static_cast<std::size_t>(i)] * y[static_cast<std::size_t>(i % k * m + j)];
      }
    }
    ASSERT_EQ(matmul(a, b).to_vector(), expected) << n << " " << k << " " << m;
  }
}

}  // namespace
}  // namespace dtrun::tensors
