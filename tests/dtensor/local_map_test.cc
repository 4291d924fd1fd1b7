// local_map: functions of local tensors on a mesh, and their gradients.
#include "dtrun/dtensor/ops/local_map.h"

#include <gtest/gtest.h>

#include "dtensor/refusal.h"
#include "dtensor/simulated_staging.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/random.h"
#include "dtrun/tensor/cuda.h"
#include "support/rank_threads.h"
#include "tensor/simulated_devices.h"

namespace dtrun::dtensor {
namespace {

using Two = std::pair<Tensor, Tensor>;

Tensor product(const Tensor& a, const Tensor& b) {
  return matmul(a, b);
}
Two made_operands(std::int64_t rows = 4) {
  const TensorOptions doubles{.dtype = DType::f64};
  return {randn({rows, 6}, RandomKey{.seed = 1}, doubles),
          randn({6, 2}, RandomKey{.seed = 2}, doubles)};
}
Two gradients_of_product(std::int64_t rows = 4) {
  const auto [a, b] = made_operands(rows);
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

/// A product whose ranks each have a part, and what their gradients are of.
struct MappedProduct {
  std::vector<int> mesh;
  std::int64_t rows;
  Placements a, b, result, a_gradient, b_gradient;
};

void expect_product_mapped(const MappedProduct& wanted) {
  SCOPED_TRACE(placements_to_string(wanted.a) + " x " + placements_to_string(wanted.b));
  const auto [whole_a, whole_b] = made_operands(wanted.rows);
  const Two expected = gradients_of_product(wanted.rows);
  const Tensor whole = matmul(whole_a, whole_b);
  int ranks = 1;
  for (const int size : wanted.mesh) ranks *= size;
  test::run_ranks(ranks, [&, a = whole_a, b = whole_b](const ProcessGroup& group) {
    const DeviceMesh mesh(group, wanted.mesh);
    const auto laid = [&](const Tensor& tensor, const Placements& placements) {
      return distribute_tensor(tensor, mesh, placements, {.source_rank = -1}).requires_grad_();
    };
    const Tensor x = laid(a, wanted.a), w = laid(b, wanted.b);
    const Tensor c =
        local_map(product, {.out_placements = {wanted.result},
                            .in_placements = {wanted.a, wanted.b},
                            .in_grad_placements = {wanted.a_gradient, wanted.b_gradient},
                            .out_shapes = {{wanted.rows, 2}}})(x, w);
    EXPECT_EQ(c.placements(), wanted.result);
    EXPECT_EQ(c.shape(), (Shape{wanted.rows, 2}));
    expect_close(c, whole);
    sum(c * c).backward();
    EXPECT_EQ(x.grad().placements(), wanted.a);
    EXPECT_EQ(w.grad().placements(), wanted.b);
    expect_close(x.grad(), expected.first);
    expect_close(w.grad(), expected.second);
  });
}

// Five rows of three ranks, of four of which the last has none, and of a grid.
TEST(LocalMapTest, UnevenEmptyAndRaggedPartsAndGradientsOfTwoAxes) {
  const Placement all = Replicate(), rows = Shard(0), columns = Shard(1), terms = Partial();
  const Placement ragged = Shard(0, {0, 1, 4});
  for (const MappedProduct& wanted : std::vector<MappedProduct>{
           {{3}, 5, {rows}, {all}, {rows}, {rows}, {terms}},
           {{4}, 5, {rows}, {all}, {rows}, {rows}, {terms}},
           {{3}, 5, {ragged}, {all}, {ragged}, {ragged}, {terms}},
           {{3}, 5, {all}, {columns}, {columns}, {terms}, {columns}},
           {{2, 2},
            5,
            {rows, all},
            {all, columns},
            {rows, columns},
            {rows, terms},
            {terms, columns}},
           {{2, 2}, 5, {rows, rows}, {all, all}, {rows, rows}, {rows, rows}, {terms, terms}},
           {{2, 3},
            5,
            {rows, columns},
            {all, rows},
            {rows, terms},
            {rows, columns},
            {terms, rows}}})
    expect_product_mapped(wanted);
}

TEST(LocalMapTest, ResultsMayBeTermsOfAnyReduction) {
  test::run_ranks(3, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {3});
    const Tensor x = distribute_tensor(arange(6), mesh, {Shard(0)}, {.source_rank = -1});
    const auto reduced = [&](ReduceOp op) {
      const auto part = [](const Tensor& own) { return own.to(DType::f64) + 1; };
      const Tensor made = local_map(part, {.out_placements = {{Partial(op)}}})(x);
      EXPECT_EQ(made.placements(), Placements{Partial(op)});
      return made.to_vector();
    };
    using Numbers = std::vector<double>;
    EXPECT_EQ(reduced(ReduceOp::sum), (Numbers{9, 12}));
    EXPECT_EQ(reduced(ReduceOp::avg), (Numbers{3, 4}));
    EXPECT_EQ(reduced(ReduceOp::max), (Numbers{5, 6}));
    EXPECT_EQ(reduced(ReduceOp::min), (Numbers{1, 2}));
    EXPECT_EQ(reduced(ReduceOp::product), (Numbers{15, 48}));
  });
}

TEST(LocalMapTest, OnDevicesTheFunctionGetsWhatLiesThere) {
  if (!tensors::cuda::is_built()) GTEST_SKIP() << "built without CUDA: there are no kernels";
  const tensors::cuda::SimulatedDevices devices;
  register_simulated_staging();
  test::run_ranks(2, {.backend = "cpu:cpu,cuda:simulated"}, [](const ProcessGroup& group) {
    const tensors::Device own{tensors::DeviceType::cuda, group.rank()};
    tensors::cuda::set_device(own.index);
    const DeviceMesh mesh(group, {2}, {}, tensors::DeviceType::cuda);
    const Tensor x = ones({3, 2}, mesh, {Shard(0)}).requires_grad_();
    const auto part = [&](const Tensor& held) {
      EXPECT_EQ(held.device(), own);
      return held * (group.rank() + 2);
    };
    const Tensor y = local_map(part, {.out_placements = {{Shard(0)}}, .out_shapes = {{3, 2}}})(x);
    EXPECT_EQ(y.local().device(), own);
    EXPECT_EQ(y.to_vector(), (std::vector<double>{2, 2, 2, 2, 3, 3}));
    sum(y).backward();
    EXPECT_EQ(x.grad().local().device(), own);
    EXPECT_EQ(x.grad().to_vector(), (std::vector<double>{2, 2, 2, 2, 3, 3}));
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
