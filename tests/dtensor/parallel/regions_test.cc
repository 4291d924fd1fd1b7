// Regions: each mapping and its gradient, against what one rank computes of all ranks' numbers.
#include "dtrun/dtensor/parallel/regions.h"

#include <gtest/gtest.h>

#include "dtensor/parallel/small_models.h"
#include "dtensor/refusal.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/products.h"
#include "support/rank_threads.h"

namespace dtrun::dtensor {
namespace {

TEST(RegionsTest, EachMappingHasTheOtherOnesGradient) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"tp"});
    const double mine = group.rank() + 1;
    const auto expect = [&](const auto& mapping, const std::vector<double>& forward,
                            const std::vector<double>& backward) {
      const Tensor x = leaf(tensor({{1, 2}, {3, 4}}).to(DType::f64) * mine);
      const Tensor y = mapping(x);
      EXPECT_EQ(y.to_vector(), forward);
      y.backward(ones(y.shape(), {.dtype = DType::f64}) * mine);
      EXPECT_EQ(x.grad().to_vector(), backward);
    };
    const bool first = group.rank() == 0;
    using List = std::vector<double>;
    expect([&](const Tensor& x) { return copy_to_region(x, mesh); },
           first ? List{1, 2, 3, 4} : List{2, 4, 6, 8}, List{3, 3, 3, 3});
    expect([&](const Tensor& x) { return reduce_from_region(x, mesh); }, List{3, 6, 9, 12},
           first ? List{1, 1, 1, 1} : List{2, 2, 2, 2});
    expect([&](const Tensor& x) { return scatter_to_region(x, mesh); },
           first ? List{1, 3} : List{4, 8}, List{1, 2, 1, 2});
    expect([&](const Tensor& x) { return gather_from_region(x, mesh); },
           List{1, 2, 2, 4, 3, 4, 6, 8}, first ? List{1, 1, 1, 1} : List{2, 2, 2, 2});
    expect([&](const Tensor& x) { return reduce_scatter_to_region(x, mesh, 0); },
           first ? List{3, 6} : List{9, 12}, List{1, 1, 2, 2});
    expect([&](const Tensor& x) { return gather_to_region(x, mesh, 0); },
           List{1, 2, 3, 4, 2, 4, 6, 8}, List{3, 3, 3, 3});
  });
}

TEST(RegionsTest, MegatronsMlpHasTheGradientsOfOneRank) {
  const auto made = [](const Shape& shape, std::uint64_t seed) {
    return randn(shape, tensors::RandomKey{.seed = seed}).to(DType::f64);
  };
  const Tensor input = made({6, 4}, 1), up = made({4, 8}, 2), down = made({8, 4}, 3);
  const Tensor x = leaf(input), a = leaf(up), b = leaf(down);
  sum(square(matmul(gelu(matmul(x, a)), b))).backward();
  test::run_ranks(4, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {4}, {"tp"});
    const std::int64_t first = 2 * group.rank();
    const Tensor y = leaf(input), columns = leaf(up.narrow(1, first, 2).contiguous()),
                 rows = leaf(down.narrow(0, first, 2).contiguous());
    const Tensor hidden = gelu(matmul(copy_to_region(y, mesh), columns));
    sum(square(reduce_from_region(matmul(hidden, rows), mesh))).backward();
    expect_near(y.grad(), x.grad(), "input");
    expect_near(columns.grad(), a.grad().narrow(1, first, 2), "up");
    expect_near(rows.grad(), b.grad().narrow(0, first, 2), "down");
  });
}

TEST(RegionsTest, RowsGoToOtherRanksAndTheirGradientsComeBack) {
  test::run_ranks(3, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {3}, {"ep"});
    // Rank r sends q rows of value 10 r + q to rank q: none to the first.
    const std::int64_t rank = group.rank();
    std::vector<std::int64_t> to{0, 1, 2}, from(3, rank);
    const Tensor x =
        leaf(tensor({{1}, {2}, {2}}).to(DType::f64) + 10.0 * static_cast<double>(rank));
    const Tensor y = all_to_all_rows(x, from, to, mesh);
    std::vector<double> expected;
    for (int r = 0; r < 3; ++r)
      expected.insert(expected.end(), static_cast<std::size_t>(rank),
                      10.0 * r + static_cast<double>(rank));
    EXPECT_EQ(y.to_vector(), expected);
    sum(y * static_cast<double>(rank)).backward();
    EXPECT_EQ(x.grad().to_vector(), (std::vector<double>{1, 2, 2}));
  });
}

TEST(RegionsTest, WhatARegionCannotTakeIsRefused) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"tp"});
    const Tensor x = ones(2, 3);
    expect_refused([&] { scatter_to_region(x, mesh); }, {"2 ranks do not divide", "along dim -1"});
    expect_refused([&] { gather_from_region(x, mesh, 2); }, "along dim 2 of a tensor of 2 dims");
    expect_refused([&] { all_to_all_rows(x, {1, 1}, {1, 2}, mesh); }, "[1, 1] and [1, 2]");
    const Tensor on_mesh = distribute_tensor(x, mesh, {Replicate()});
    expect_refused([&] { copy_to_region(on_mesh, mesh); }, "of a distributed tensor");
  });
}

}  // namespace
}  // namespace dtrun::dtensor
