// softmax, log_softmax, cross_entropy and linear: values and gradients on every layout are those of
// one rank, whose gradients are those of finite differences.
#include "dtrun/dtensor/ops/rows.h"

#include <gtest/gtest.h>

#include "dtensor/gradient_check.h"
#include "dtensor/refusal.h"
#include "dtrun/dtensor/creation.h"
#include "dtrun/dtensor/ops.h"

namespace dtrun::dtensor {
namespace {

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
