// softmax, log_softmax, cross_entropy and linear: values and gradients on every layout are those of
// one rank, whose gradients are those of finite differences.
#include "dtrun/dtensor/ops/rows.h"

#include <gtest/gtest.h>

#include <functional>

#include "dtensor/refusal.h"
#include "dtensor/vector_tensor.h"
#include "dtrun/dtensor/creation.h"
#include "dtrun/dtensor/ops.h"
#include "support/rank_threads.h"

namespace dtrun::dtensor {
namespace {

using Function = std::function<Tensor(const Tensor&)>;
constexpr tensors::TensorOptions kDoubles{.dtype = DType::f64};

/// A number that all results have a part in, each another.
Tensor weighed(const Tensor& result) {
  const Tensor weights = randn(result.shape(), {7}, kDoubles);
  return sum(result.is_distributed()
                 ? result * distribute_tensor(weights, result.device_mesh(),
                                              Placements(result.placements().size(), Replicate()),
                                              {.source_rank = -1})
                 : result * weights);
}

Tensor gradient_of(const Function& function, const Tensor& at) {
  const Tensor x = at.detach().requires_grad_();
  weighed(function(x)).backward();
  return x.grad();
}

void expect_gradient_right(const Function& function, const Shape& shape) {
  const Tensor x = randn(shape, {1}, kDoubles);
  const std::vector<double> gradient = gradient_of(function, x).to_vector();
  const std::vector<double> at = x.to_vector();
  constexpr double kStep = 1e-6;
  for (std::size_t i = 0; i < at.size(); ++i) {
    const auto moved = [&](double by) {
      std::vector<double> values = at;
      values[i] += by;
      return weighed(function(tensor_from(values, shape, DType::f64))).item();
    };
    EXPECT_NEAR(gradient[i], (moved(kStep) - moved(-kStep)) / (2 * kStep), 1e-7) << "element " << i;
  }
}

/// On a line and a square, the input cut along each dim, whole, and Partial.
void expect_right_on_meshes(const Function& function, const Shape& shape) {
  const Tensor whole = randn(shape, {1}, kDoubles);
  const Tensor expected = function(whole);
  const Tensor expected_gradient = gradient_of(function, whole);
  for (const std::vector<int>& mesh_shape : {std::vector<int>{3}, std::vector<int>{2, 2}}) {
    const int world = mesh_shape.size() == 1 ? mesh_shape[0] : mesh_shape[0] * mesh_shape[1];
    test::run_ranks(world, [&](const ProcessGroup& group) {
      const DeviceMesh mesh(group, mesh_shape);
      for (const Placement& first : {Shard(0), Shard(-1), Replicate(), Partial()}) {
        for (const Placement& second : {Shard(0), Shard(-1), Replicate(), Partial()}) {
          const Placements placements =
              mesh_shape.size() == 1 ? Placements{first} : Placements{first, second};
          SCOPED_TRACE(placements_to_string(placements));
          const Tensor x = distribute_tensor(whole, mesh, placements, {.source_rank = -1});
          EXPECT_EQ(difference(function(x).full_tensor(), expected, {1e-12, 1e-12}), "");
          const Tensor gradient = gradient_of(function, x);
          EXPECT_EQ(difference(gradient.full_tensor(), expected_gradient, {1e-12, 1e-12}), "");
          for (const Placement& placement : gradient.placements())
            EXPECT_FALSE(placement.is_partial());
        }
      }
    });
  }
}

/// Targets for as many rows, on the mesh of the scores.
Tensor targets_like(const Tensor& logits, const std::vector<std::int64_t>& classes) {
  const Tensor whole =
      tensor_from(classes, {static_cast<std::int64_t>(classes.size())}, DType::i64);
  if (!logits.is_distributed()) return whole;
  return distribute_tensor(whole, logits.device_mesh(),
                           Placements(logits.placements().size(), Replicate()),
                           {.source_rank = -1});
}

TEST(RowsTest, SoftmaxHasTheRightGradientOnEveryLayout) {
  for (const int dim : {0, 1, -1}) {
    const Function function = [dim](const Tensor& x) { return softmax(x, dim); };
    expect_gradient_right(function, {4, 5});
    expect_right_on_meshes(function, {4, 5});
  }
}

TEST(RowsTest, LogSoftmaxHasTheRightGradientOnEveryLayout) {
  for (const int dim : {0, -1}) {
    const Function function = [dim](const Tensor& x) { return log_softmax(x, dim); };
    expect_gradient_right(function, {5, 4});
    expect_right_on_meshes(function, {5, 4});
  }
}

TEST(RowsTest, CrossEntropyHasTheRightGradientOnEveryLayout) {
  for (const Reduction reduction : {Reduction::none, Reduction::mean, Reduction::sum}) {
    const Function function = [reduction](const Tensor& x) {
      return cross_entropy(x, targets_like(x, {2, 0, -100, 1, 2}), {.reduction = reduction});
    };
    expect_gradient_right(function, {5, 3});
    expect_right_on_meshes(function, {5, 3});
  }
}

TEST(RowsTest, SecondDerivativesAreRight) {
  const Shape shape = {3, 4};
  const Tensor whole = randn(shape, {1}, kDoubles);
  for (const auto rows : {&softmax, &log_softmax}) {
    // The gradient, as part of a graph when a gradient of it is wanted.
    const Function gradient = [rows](const Tensor& x) {
      const Tensor leaf = x.requires_grad() ? x : x.detach().requires_grad_();
      weighed(rows(leaf, 1)).backward({.create_graph = true});
      const Tensor found = leaf.grad();
      leaf.set_grad({});
      return found;
    };
    expect_gradient_right(gradient, shape);
  }
}

TEST(RowsTest, LinearIsAProductAndABias) {
  const Tensor weight = randn({3, 4}, {2}, kDoubles), bias = randn({3}, {3}, kDoubles);
  const Function function = [&](const Tensor& x) {
    if (!x.is_distributed()) return linear(x, weight, bias);
    const auto on_mesh = [&](const Tensor& whole) {
      return distribute_tensor(whole, x.device_mesh(), Placements(x.placements().size(), Shard(0)),
                               {.source_rank = -1});
    };
    return linear(x, on_mesh(weight), on_mesh(bias));
  };
  expect_gradient_right(function, {5, 4});
  expect_right_on_meshes(function, {5, 4});
}

TEST(RowsTest, WhatIsNoRowOrNoClassIsRefused) {
  const Tensor scores = randn({2, 3}, {1});
  expect_refused([&] { softmax(scores, 2); }, "dim 2 is out of range");
  expect_refused([&] { softmax(arange(3), 0); }, "softmax");
  expect_refused([&] { cross_entropy(scores, tensor({0, 3})); }, "3");
  expect_refused([&] { cross_entropy(scores, tensor({0.0, 1.0})); }, "cross_entropy");
  expect_refused([&] { cross_entropy(scores, tensor({0, 1, 2})); }, "cross_entropy");
}

}  // namespace
}  // namespace dtrun::dtensor
