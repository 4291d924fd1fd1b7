// Reductions and scans: values and gradients on every layout are those of one rank, whose gradients
// are those of finite differences. PyTorch's recorded results are in operator_vectors_test.cc.
#include "dtrun/dtensor/ops/reduction.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "dtensor/gradient_check.h"
#include "dtensor/refusal.h"
#include "dtrun/dtensor/ops/elementwise.h"

namespace dtrun::dtensor {
namespace {

/// With every placement of one axis, over three ranks: values only.
void expect_same_on_meshes(const Function& function, const Tensor& whole) {
  const Tensor expected = function(whole);
  test::run_ranks(3, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {3});
    for (int d = 0; d < whole.dim(); ++d) {
      const Tensor x = distribute_tensor(whole, mesh, {Shard(d)}, {.source_rank = -1});
      EXPECT_EQ(difference(function(x).full_tensor(), expected, {0, 0}), "") << "cut along " << d;
    }
  });
}

TEST(ReductionTest, ExtremesAreRightOnEveryLayout) {
  for (const auto op : {&amax, &amin}) {
    expect_right([op](const Tensor& x) { return op(x, {}, false); });
    expect_right([op](const Tensor& x) { return op(x, {0}, false); });
    expect_right([op](const Tensor& x) { return op(x, {-1}, true); });
  }
}

TEST(ReductionTest, ExtremesAlongADimGiveTheGradientToTheFirst) {
  for (const int dim : {0, 1}) {
    expect_right([dim](const Tensor& x) { return max(x, dim).values; });
    expect_right([dim](const Tensor& x) { return min(x, dim, true).values; });
  }
  const Tensor x = tensor_from(std::vector<double>{2, 5, 5}, {3}, DType::f64).requires_grad_();
  max(x, 0).values.backward();
  EXPECT_EQ(x.grad().to_vector(), (std::vector<double>{0, 1, 0}));
  x.set_grad({});
  amax(x).backward();
  EXPECT_EQ(x.grad().to_vector(), (std::vector<double>{0, 0.5, 0.5}));
}

TEST(ReductionTest, PositionsAreThoseInTheWholeTensor) {
  // The greatest twice, the later one on a later rank, and a nan.
  for (const double last : {9.0, kNan}) {
    const Tensor whole = tensor_from(std::vector<double>{1, 9, 3, 4, 5, 9, 7, last, -2, 9, 8, -2},
                                     {4, 3}, DType::f64);
    expect_same_on_meshes([](const Tensor& x) { return argmax(x); }, whole);
    expect_same_on_meshes([](const Tensor& x) { return argmin(x); }, whole);
    for (const int dim : {0, 1}) {
      expect_same_on_meshes([dim](const Tensor& x) { return argmax(x, dim); }, whole);
      expect_same_on_meshes([dim](const Tensor& x) { return argmin(x, dim, true); }, whole);
      expect_same_on_meshes([dim](const Tensor& x) { return max(x, dim).indices; }, whole);
    }
  }
}

TEST(ReductionTest, ARankWithoutElementsChangesNothing) {
  // Two rows on three ranks.
  const Tensor whole = tensor_from(std::vector<double>{-3, -1, -2, -7}, {2, 2}, DType::f64);
  for (const auto op : {&amax, &amin}) {
    expect_same_on_meshes([op](const Tensor& x) { return op(x, {0}, false); }, whole);
    expect_same_on_meshes([op](const Tensor& x) { return op(x.to(DType::i64), {}, false); }, whole);
  }
  expect_same_on_meshes([](const Tensor& x) { return argmax(x, 0); }, whole);
  expect_same_on_meshes([](const Tensor& x) { return any(x, {0}); }, whole);
  expect_same_on_meshes([](const Tensor& x) { return all(x, {0}); }, whole);
  expect_same_on_meshes([](const Tensor& x) { return prod(x, 0); }, whole);
  expect_same_on_meshes([](const Tensor& x) { return logsumexp(x, {0}); }, whole);
  for (const double power : {0.0, 1.0, kInfinity, -kInfinity}) {
    expect_same_on_meshes([power](const Tensor& x) { return norm(x, power, {0}); }, whole);
  }
}

TEST(ReductionTest, ProductsAreRightWithAndWithoutZeros) {
  for (const std::vector<double>& row :
       {std::vector<double>{2, -3, 0.5, 4, 1, 5}, std::vector<double>{2, 0, 0.5, 4, 1, 5},
        std::vector<double>{0, -3, 0, 0, 1, 5}}) {
    const Tensor x = tensor_from(row, {2, 3}, DType::f64);
    expect_right([](const Tensor& at) { return prod(at, 1); }, x);
    expect_right([](const Tensor& at) { return prod(at); }, x);
    expect_second_derivative_right([](const Tensor& at) { return prod(at, 1); }, x);
    expect_second_derivative_right([](const Tensor& at) { return prod(at); }, x);
    expect_right([](const Tensor& at) { return cumprod(at, 1); }, x);
    expect_right([](const Tensor& at) { return cumprod(at, 0); }, x);
    expect_second_derivative_right([](const Tensor& at) { return cumprod(at, 1); }, x);
  }
}

TEST(ReductionTest, SumsOfAPrefixAreRight) {
  for (const int dim : {0, -1}) {
    expect_right([dim](const Tensor& x) { return cumsum(x, dim); });
  }
  expect_second_derivative_right([](const Tensor& x) { return cumsum(x * x, 0); },
                                 randn({4}, {1}, kDoubles));
  // An infinity has no part in the gradient of what comes after it.
  const Tensor x = tensor_from(std::vector<double>{1, 2}, {2}, DType::f64).requires_grad_();
  cumsum(x, 0).backward(tensor_from(std::vector<double>{kInfinity, 1}, {2}, DType::f64));
  EXPECT_EQ(x.grad().to_vector(), (std::vector<double>{kInfinity, 1}));
}

TEST(ReductionTest, NormsAreRightOnEveryLayout) {
  for (const double power : {0.0, 0.5, 1.0, 2.0, 3.0, kInfinity, -kInfinity}) {
    SCOPED_TRACE(power);
    expect_right([power](const Tensor& x) { return norm(x, power); });
    expect_right([power](const Tensor& x) { return norm(x, power, {0}, true); });
  }
  expect_second_derivative_right([](const Tensor& x) { return norm(x); },
                                 randn({4}, {1}, kDoubles));
}

TEST(ReductionTest, TheGradientOfANormIsZeroWhereTheNormIs) {
  for (const double power : {0.5, 1.0, 2.0, 3.0}) {
    const Tensor x = zeros({3}, {.dtype = DType::f64}).requires_grad_();
    norm(x, power).backward();
    EXPECT_EQ(x.grad().to_vector(), (std::vector<double>{0, 0, 0})) << power;
  }
}

TEST(ReductionTest, SpreadIsRightOnEveryLayout) {
  for (const double correction : {0.0, 1.0}) {
    for (const auto op : {&var, &stddev}) {
      expect_right([&](const Tensor& x) { return op(x, {}, correction, false); });
      expect_right([&](const Tensor& x) { return op(x, {0}, correction, true); });
      expect_right([&](const Tensor& x) { return op(x, {1}, correction, false); });
    }
  }
  expect_second_derivative_right([](const Tensor& x) { return stddev(x); },
                                 randn({4}, {1}, kDoubles));
  const Tensor x = ones({3}, {.dtype = DType::f64}).requires_grad_();
  stddev(x).backward();
  EXPECT_EQ(x.grad().to_vector(), (std::vector<double>{0, 0, 0}));
}

TEST(ReductionTest, SpreadOfCutHalvesHasAGradientOfTheirDtype) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const Tensor whole = randn({8, 4}, {1}).to(dtype);
    test::run_ranks(2, [&](const ProcessGroup& group) {
      const DeviceMesh mesh(group, {2});
      for (const auto op : {&var, &stddev}) {
        const Tensor x = distribute_tensor(whole, mesh, {Shard(0)}, {.source_rank = -1});
        x.requires_grad_();
        op(x, {0}, 1, false).sum().backward();
        EXPECT_EQ(x.grad().dtype(), dtype);
        const Tensor one = whole.detach().requires_grad_();
        op(one, {0}, 1, false).sum().backward();
        EXPECT_EQ(difference(x.grad().full_tensor(), one.grad(), {2e-2, 2e-2}), "");
      }
    });
  }
}

// The mean is further from 0 than a square can tell.
TEST(ReductionTest, ARankWithoutElementsAddsNoNaNToASpread) {
  const Tensor whole = full({3}, 2e19, {.dtype = DType::f32});
  test::run_ranks(4, [&](const ProcessGroup& group) {
    const Tensor x =
        distribute_tensor(whole, DeviceMesh(group, {4}), {Shard(0)}, {.source_rank = -1});
    EXPECT_EQ(var(x, {}, 1, false).full_tensor().item(), 0);
  });
}

TEST(ReductionTest, LogSumExpIsRightOnEveryLayout) {
  expect_right([](const Tensor& x) { return logsumexp(x); });
  expect_right([](const Tensor& x) { return logsumexp(x, {0}, true); });
  expect_right([](const Tensor& x) { return logsumexp(x * 500, {1}); });
  expect_second_derivative_right([](const Tensor& x) { return logsumexp(x, {0}); },
                                 randn({3, 2}, {1}, kDoubles));
}

TEST(ReductionTest, TruthIsThatOfTheWhole) {
  const Tensor whole =
      tensor_from(std::vector<std::int64_t>{0, 0, 1, 0, 2, 1, 0, 0, 3}, {3, 3}, DType::i64);
  for (const DType dtype : {DType::boolean, DType::u8, DType::i32, DType::f32}) {
    for (const auto op : {&any, &all}) {
      expect_same_on_meshes([&](const Tensor& x) { return op(x.to(dtype), {}, false); }, whole);
      expect_same_on_meshes([&](const Tensor& x) { return op(x.to(dtype), {0}, true); }, whole);
    }
  }
}

TEST(ReductionTest, MethodsAreTheFunctions) {
  const Tensor x = tensor({{1.0, 4.0, 2.0}, {3.0, 0.5, 7.0}});
  EXPECT_EQ(x.max().item(), 7);
  EXPECT_EQ(x.min(1).indices.to_vector_i64(), (std::vector<std::int64_t>{0, 1}));
  EXPECT_EQ(x.argmax(0, true).shape(), (Shape{1, 3}));
  EXPECT_EQ(x.amin({1}).to_vector(), (std::vector<double>{1, 0.5}));
  EXPECT_EQ(x.prod(0).to_vector(), (std::vector<double>{3, 2, 14}));
  EXPECT_EQ(x.cumsum(1).to_vector(), (std::vector<double>{1, 5, 7, 3, 3.5, 10.5}));
  EXPECT_TRUE(equal(x.var({0}, 0), var(x, {0}, 0)) && equal(x.norm(1), norm(x, 1)));
  EXPECT_EQ(gt(x, 2).any({0}).to_vector(), (std::vector<double>{1, 1, 1}));
}

TEST(ReductionTest, AReductionWithoutAnAnswerIsRefused) {
  const Tensor x = zeros({2, 3}), none = zeros({0, 3}), number = zeros({2}).to(DType::i64);
  expect_refused([&] { amax(x, {0, -2}); }, "amax was given dim 0 twice");
  expect_refused([&] { max(x, 2); }, "dim 2");
  const auto expect_all_refused = [](const Tensor& empty, const Tensor& integers) {
    expect_refused([&] { amax(empty, {0}); }, "amax of no elements");
    expect_refused([&] { argmax(empty); }, "argmax of no elements");
    expect_refused([&] { norm(empty, -1); }, "norm of no elements");
    expect_refused([&] { norm(empty, kInfinity); }, "norm of no elements");
    expect_refused([&] { var(integers); }, "does not take int64");
    expect_refused([&] { norm(integers); }, "does not take int64");
  };
  expect_all_refused(none, number);
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    expect_all_refused(distribute_tensor(none, mesh, {Shard(0)}, {.source_rank = -1}),
                       distribute_tensor(number, mesh, {Shard(0)}, {.source_rank = -1}));
  });
  EXPECT_EQ(amax(none, {1}).shape(), Shape{0});
  EXPECT_TRUE(std::isnan(var(zeros({1})).item()));
}

}  // namespace
}  // namespace dtrun::dtensor
