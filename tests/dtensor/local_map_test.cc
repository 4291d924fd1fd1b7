// local_map: functions of local tensors on a mesh, and their gradients.
#include "dtrun/dtensor/ops/local_map.h"

#include <gtest/gtest.h>

#include "dtensor/refusal.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/random.h"
#include "support/rank_threads.h"

namespace dtrun::dtensor {
namespace {

using Two = std::pair<Tensor, Tensor>;

Tensor product(const Tensor& a, const Tensor& b) {
  return matmul(a, b);
}
Two made_operands() {
  const TensorOptions doubles{.dtype = DType::f64};
  return {randn({4, 6}, RandomKey{.seed = 1}, doubles),
          randn({6, 2}, RandomKey{.seed = 2}, doubles)};
}
Two gradients_of_product() {
  const auto [a, b] = made_operands();
  a.requires_grad_();
  b.requires_grad_();
  const Tensor c = matmul(a, b);
  sum(c * c).backward();
  return {a.grad(), b.grad()};
}
void expect_close(const Tensor& found, const Tensor& expected) {
  const std::vector<double> numbers = found.to_vector(), others = expected.to_vector();
  ASSERT_EQ(numbers.size(), others.size());
  for (std::size_t i = 0; i < numbers.size(); ++i) EXPECT_NEAR(numbers[i], others[i], 1e-12);
}
Tensor placed(const Tensor& whole, const DeviceMesh& mesh, const Placement& placement) {
  return distribute_tensor(whole, mesh, {placement}, {.source_rank = -1}).requires_grad_();
}

TEST(LocalMapTest, RowsOfAProductAndTheirGradients) {
  const auto [whole_a, whole_b] = made_operands();
  const Two expected = gradients_of_product();
  const Tensor whole = matmul(whole_a, whole_b);
  test::run_ranks(2, [&, a = whole_a, b = whole_b](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const Tensor x = placed(a, mesh, Shard(0)), w = placed(b, mesh, Replicate());
    const auto rows = local_map(product, {.out_placements = {{Shard(0)}},
                                          .in_placements = {{Shard(-2)}, {Replicate()}},
                                          .in_grad_placements = {{Shard(0)}, {Partial()}}});
    const Tensor c = rows(x, w);
    EXPECT_EQ(c.placements(), Placements{Shard(0)});
    expect_close(c, whole);
    sum(c * c).backward();
    expect_close(x.grad(), expected.first);
    EXPECT_EQ(w.grad().placements(), Placements{Replicate()});
    expect_close(w.grad(), expected.second);
  });
}

TEST(LocalMapTest, TermsOfASumAndArgumentsThatAreBrought) {
  const auto [whole_a, whole_b] = made_operands();
  const Two expected = gradients_of_product();
  const Tensor whole = matmul(whole_a, whole_b);
  test::run_ranks(2, [&, a = whole_a, b = whole_b](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const Tensor x = placed(a, mesh, Shard(0)), w = placed(b, mesh, Replicate());
    const LocalMapOptions options = {.out_placements = {{Partial()}},
                                     .in_placements = {{Shard(1)}, {Shard(0)}}};
    expect_refused([&] { local_map(product, options)(x, w); }, "argument 0 is f64[4, 6]");
    LocalMapOptions moving = options;
    moving.redistribute_inputs = true;
    const Tensor c = local_map(product, moving)(x, w);
    EXPECT_EQ(c.placements(), Placements{Partial()});
    expect_close(c, whole);
    sum(c * c).backward();
    expect_close(x.grad(), expected.first);
    expect_close(w.grad(), expected.second);
  });
}

TEST(LocalMapTest, OtherArgumentsAndSeveralResults) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const Tensor x = distribute_tensor(arange(5), mesh, {Shard(0)}, {.source_rank = -1});
    const auto both = [](const Tensor& a, int factor, const Tensor& b) {
      EXPECT_FALSE(a.is_distributed());
      return Tensors{a * factor, sum(a), b};
    };
    const Tensor plain = ones({2});
    const Tensors results =
        local_map(both, {.out_placements = {{Shard(0)}, {Partial()}, std::nullopt},
                         .in_placements = {{Shard(0)}, std::nullopt, std::nullopt},
                         .out_shapes = {{5}, {}, {}}})(x, 3, plain);
    EXPECT_TRUE(equal(results[0], arange(5) * 3));
    EXPECT_EQ(results[1].full_tensor().item(), 10);
    EXPECT_TRUE(same(results[2], plain));
  });
}

TEST(LocalMapTest, WithoutAMeshAllIsLocalAndWithOneTheResultsAreNot) {
  const auto twice = [](const Tensor& a) { return a * 2; };
  EXPECT_TRUE(equal(local_map(twice, {.out_placements = {{Shard(0)}}})(ones({2})), full({2}, 2)));
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const Tensor all = local_map(twice, {.out_placements = {{Shard(0)}}, .mesh = mesh})(ones({2}));
    EXPECT_EQ(all.shape(), Shape{4});
  });
}

TEST(LocalMapTest, WhatDoesNotFitIsRefusedByItsPlace) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}), other(group, {2, 1});
    const Tensor x = distribute_tensor(ones({4}), mesh, {Shard(0)}, {.source_rank = -1});
    const Tensor far =
        distribute_tensor(ones({4}), other, {Shard(0), Replicate()}, {.source_rank = -1});
    const auto sum_of = [](const Tensor& a, const Tensor& b) { return a + b; };
    const auto scaled = [](const Tensor& a, double by) { return a * by; };
    const PlacementsOfEach rows = {{Shard(0)}};
    expect_refused(
        [&] { local_map(sum_of, {.out_placements = rows, .in_placements = rows})(x, x); },
        "in_placements has 1 item, and the function was called with 2 arguments");
    expect_refused(
        [&] { local_map(sum_of, {.out_placements = rows, .in_grad_placements = rows})(x, x); },
        "in_grad_placements has 1 item");
    expect_refused([&] { local_map(sum_of, {.out_placements = {}})(x, x); },
                   "out_placements has 0 items, and the function gave 1 result");
    expect_refused(
        [&] {
          local_map(sum_of, {.out_placements = rows, .out_shapes = {{4}, {4}}})(x, x);
        },
        "out_shapes has 2 items");
    expect_refused([&] { local_map(sum_of, {.out_placements = rows})(x, far); },
                   "argument 1 lies on");
    expect_refused(
        [&] {
          local_map(scaled, {.out_placements = rows, .in_placements = {{Shard(0)}, {Shard(0)}}})(
              x, 2.0);
        },
        "argument 1 is no tensor");
    expect_refused(
        [&] {
          local_map(scaled, {.out_placements = rows,
                             .in_placements = {std::nullopt, std::nullopt}})(x, 2.0);
        },
        "argument 0 is f32[4]");
    const auto itself = [&](const Tensor&) { return x; };
    expect_refused([&] { local_map(itself, {.out_placements = rows})(x); }, "result 0 is");
  });
}

}  // namespace
}  // namespace dtrun::dtensor
