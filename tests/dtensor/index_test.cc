// Picking, placing and ordering on every layout: values and gradients are those of one rank, whose
// gradients are those of finite differences. PyTorch's recorded results: operator_vectors_test.cc.
#include "dtrun/dtensor/ops/index.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "dtensor/gradient_check.h"
#include "dtensor/refusal.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/move/comm_counter.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/reduction.h"
#include "dtrun/dtensor/ops/views.h"
#include "tensor/all_dtypes.h"

namespace dtrun::dtensor {
namespace {

/// A whole tensor where another one is, cut as told.
Tensor placed(const Tensor& where, const Tensor& whole, const Placement& placement) {
  if (!where.is_distributed()) return whole;
  return distribute_tensor(whole, where.device_mesh(),
                           Placements(where.placements().size(), placement), {.source_rank = -1});
}

TEST(IndexTest, SlicesAreRightOnEveryLayout) {
  // One of them twice; the index whole, and cut.
  const Tensor list = tensor({3, 0, 3, 1});
  for (const Placement& cut : {Placement(Replicate()), Placement(Shard(0))}) {
    for (const int dim : {0, 1}) {
      expect_right([&](const Tensor& x) { return index_select(x, dim, placed(x, list, cut)); },
                   {5, 4});
    }
    const Tensor source = randn({4, 2}, {3}, kDoubles);
    expect_right(
        [&](const Tensor& x) {
          return index_add(x, 0, placed(x, list, cut), placed(x, source, cut), 2.5);
        },
        {5, 2});
    const Tensor target = randn({5, 2}, {4}, kDoubles);
    expect_right(
        [&](const Tensor& x) {
          return index_add(placed(x, target, cut), 0, placed(x, list, cut), x);
        },
        {4, 2});
  }
}

TEST(IndexTest, ElementsAreRightOnEveryLayout) {
  const Tensor rows = tensor({{2, 0, 2}, {1, 1, 0}}),
               columns = tensor({{0, 2}, {1, 1}, {2, 0}, {0, 0}});
  const Tensor values = randn({2, 3}, {3}, kDoubles), target = randn({4, 3}, {4}, kDoubles);
  for (const Placement& cut : {Placement(Replicate()), Placement(Shard(0)), Placement(Shard(1))}) {
    expect_right([&](const Tensor& x) { return gather(x, 0, placed(x, rows, cut)); }, {4, 3});
    expect_right([&](const Tensor& x) { return gather(x, 1, placed(x, columns, cut)); }, {4, 3});
    expect_right(
        [&](const Tensor& x) {
          return scatter_add(x, 0, placed(x, rows, cut), placed(x, values, cut));
        },
        {4, 3});
    expect_right(
        [&](const Tensor& x) {
          return scatter_add(placed(x, target, cut), 0, placed(x, rows, cut), x);
        },
        {2, 3});
    const Tensor once = tensor({{2, 0, 3}, {1, 1, 0}});
    expect_right(
        [&](const Tensor& x) {
          return scatter(x, 0, placed(x, once, cut), placed(x, values, cut));
        },
        {4, 3});
    expect_right(
        [&](const Tensor& x) {
          return scatter(placed(x, target, cut), 0, placed(x, once, cut), x);
        },
        {2, 3});
    expect_right([&](const Tensor& x) { return scatter(x, 0, placed(x, once, cut), 7); }, {4, 3});
  }
}

TEST(IndexTest, FoldedElementsAreRightOnEveryLayout) {
  const Tensor rows = tensor({{2, 0, 2}, {1, 1, 0}}), values = randn({2, 3}, {3}, kDoubles),
               target = randn({4, 3}, {4}, kDoubles);
  for (const ScatterReduce by : {ScatterReduce::sum, ScatterReduce::prod, ScatterReduce::mean,
                                 ScatterReduce::amax, ScatterReduce::amin}) {
    for (const IncludeSelf self : {IncludeSelf::yes, IncludeSelf::no}) {
      for (const Placement& cut :
           {Placement(Replicate()), Placement(Shard(0)), Placement(Shard(1))}) {
        expect_right(
            [&](const Tensor& x) {
              return scatter_reduce(x, 0, placed(x, rows, cut), placed(x, values, cut), by, self);
            },
            {4, 3});
        expect_right(
            [&](const Tensor& x) {
              return scatter_reduce(placed(x, target, cut), 0, placed(x, rows, cut), x, by, self);
            },
            {2, 3});
      }
    }
  }
}

TEST(IndexTest, ExtremesOfWhatEachRankHasNeedNoGather) {
  const Tensor rows = tensor({{2, 0, 2}, {1, 1, 0}, {3, 1, 1}});
  test::run_ranks(3, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {3});
    const Tensor target = zeros({4, 3}, mesh, {Replicate()}, DType::f64);
    const Tensor source =
        distribute_tensor(randn({3, 3}, {1}, kDoubles), mesh, {Shard(0)}, {.source_rank = -1});
    const Tensor least =
        scatter_reduce(target, 0, placed(source, rows, Shard(0)), source, ScatterReduce::amin);
    EXPECT_EQ(placements_to_string(least.placements()), "[P(min)]") << "sources travelled";
  });
}

TEST(IndexTest, ASecondGradientOfProductsWithZerosIsRefused) {
  const Tensor target = full({2}, 3.0), factors = tensor({2.0, 0.0}).requires_grad_();
  const Tensor both = tensor({0, 0});
  const Tensor product = scatter_reduce(target, 0, both, factors, ScatterReduce::prod);
  EXPECT_EQ(grad({sum(product)}, {factors}, {}, {.retain_graph = true})[0].to_vector(),
            (std::vector<double>{0, 6}));
  expect_refused([&] { grad({sum(product)}, {factors}, {}, {.create_graph = true}); },
                 "a source is 0");
}

TEST(IndexTest, ATableMayBeCutAlongItsRows) {
  const Tensor positions = tensor({{4, 0, 2}, {2, 2, 6}});
  for (const Placement& cut : {Placement(Replicate()), Placement(Shard(0)), Placement(Shard(1))}) {
    expect_right(
        [&](const Tensor& table) { return embedding(placed(table, positions, cut), table); },
        {7, 2});
  }
  test::run_ranks(3, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {3});
    const Tensor table =
        distribute_tensor(randn({7, 2}, {1}, kDoubles), mesh, {Shard(0)}, {.source_rank = -1});
    table.requires_grad_();
    const Tensor rows = embedding(placed(table, positions, Replicate()), table);
    EXPECT_EQ(placements_to_string(rows.placements()), "[P(sum)]") << "rows travelled";
    sum(rows).backward();
    EXPECT_EQ(placements_to_string(table.grad().placements()), "[S(0)]");
  });
}

// The table's gradient is summed over the ranks then, which is no reason to give the cut up: all
// that follows would be computed by every rank.
TEST(IndexTest, RowsOfCutPositionsStayCutInTraining) {
  const Tensor numbers = zeros({4096, 96}), list = zeros({8, 16}, {.dtype = DType::i64});
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const Tensor table = distribute_tensor(numbers, mesh, {Replicate()}, {.source_rank = -1});
    const Tensor at = distribute_tensor(list, mesh, {Shard(0)}, {.source_rank = -1});
    const Tensor in_a_row =
        distribute_tensor(list.view({128}), mesh, {Shard(0)}, {.source_rank = -1});
    for (const bool trains : {false, true}) {
      table.requires_grad_(trains);
      EXPECT_EQ(embedding(at, table).placements(), Placements{Shard(0)}) << trains;
      EXPECT_EQ(index(table, at).placements(), Placements{Shard(0)}) << trains;
      EXPECT_EQ(index_select(table, 0, in_a_row).placements(), Placements{Shard(0)}) << trains;
    }
  });
}

TEST(IndexTest, PaddingHasNoGradient) {
  const Tensor table = randn({3, 2}, {1}, kDoubles).requires_grad_();
  sum(embedding(tensor({1, 2, 1}), table, 1)).backward();
  EXPECT_EQ(table.grad().to_vector(), (std::vector<double>{0, 0, 0, 0, 1, 1}));
  table.set_grad({});
  sum(embedding(tensor({1, 2, 1}), table, -1)).backward();
  EXPECT_EQ(table.grad().to_vector(), (std::vector<double>{0, 0, 2, 2, 0, 0}));
}

TEST(IndexTest, PositionsFromTheEndAreThose) {
  const Tensor positions = tensor({{-1, 0}, {2, -4}});
  expect_right([&](const Tensor& x) { return index(x, placed(x, positions, Replicate())); },
               {4, 3});
  const Tensor values = randn({3}, {3}, kDoubles);
  expect_right(
      [&](const Tensor& x) {
        return index_put(x, placed(x, tensor({-1, 1}), Replicate()),
                         placed(x, values, Replicate()));
      },
      {4, 3});
}

TEST(IndexTest, SeveralPositionsPickFromAsManyDims) {
  const Tensor x = arange(24).to(DType::f64).reshape({2, 3, 4});
  // PyTorch: x[[[1], [-2]], [0, -1]], x[i, j, k].
  const Tensors rows_and_columns = {tensor({{1}, {-2}}), tensor({0, -1})};
  const Tensor slices = index(x, rows_and_columns);
  EXPECT_EQ(slices.shape(), (Shape{2, 2, 4}));
  EXPECT_EQ(slices.to_vector(),
            (std::vector<double>{12, 13, 14, 15, 20, 21, 22, 23, 0, 1, 2, 3, 8, 9, 10, 11}));
  EXPECT_EQ(index(x, Tensors{tensor({0, 1}), tensor({2, 0}), tensor({-1})}).to_vector(),
            (std::vector<double>{11, 15}));
  const auto placed_all = [](const Tensor& where, Tensors all, const Placement& placement) {
    for (Tensor& one : all) one = placed(where, one, placement);
    return all;
  };
  const Tensor values = randn({2, 2}, {3}, kDoubles);
  // Where none stands twice, and where one does.
  const Tensors once = {tensor({{1}, {-2}}), tensor({0, 2})};
  const Tensors twice = {tensor({{4}, {-1}}), tensor({0, 2})};
  for (const Placement& cut : {Placement(Replicate()), Placement(Shard(0))}) {
    expect_right([&](const Tensor& a) { return index(a, placed_all(a, twice, cut)); }, {5, 4});
    expect_right([&](const Tensor& a) { return index(a, placed_all(a, twice, cut)); }, {5, 4, 2});
    expect_right(
        [&](const Tensor& a) {
          return index_put(a, placed_all(a, once, cut), placed(a, values, cut));
        },
        {5, 4});
    for (const Tensors& target : {once, twice}) {
      expect_right(
          [&](const Tensor& a) {
            return index_put(a, placed_all(a, target, cut), placed(a, values, cut),
                             PutMode::accumulate);
          },
          {5, 4});
    }
  }
  const Tensor sums = index_put(zeros(3), tensor({2, 0, -1}), ones(3), PutMode::accumulate);
  EXPECT_EQ(sums.to_vector(), (std::vector<double>{1, 0, 2}));
}

TEST(IndexTest, OnlyThePartOfALargerSourceBesideTheIndexIsTaken) {
  const Tensor rows = tensor({{2, 0}, {1, 3}}), source = randn({3, 4}, {3}, kDoubles);
  for (const Placement& cut : {Placement(Replicate()), Placement(Shard(0)), Placement(Shard(1))}) {
    const auto at = [&](const Tensor& x) { return placed(x, rows, cut); };
    const auto from = [&](const Tensor& x) { return placed(x, source, cut); };
    expect_right([&](const Tensor& x) { return scatter(x, 0, at(x), from(x)); }, {4, 3});
    expect_right([&](const Tensor& x) { return scatter_add(x, 0, at(x), from(x)); }, {4, 3});
    const Tensor target = randn({4, 3}, {4}, kDoubles);
    expect_right([&](const Tensor& x) { return scatter(placed(x, target, cut), 0, at(x), x); },
                 {3, 4});
  }
}

TEST(IndexTest, AMaskStandsForThePositionsWhereItIsTrue) {
  const Tensor x = tensor({{1.0, 2.0, 3.0}, {4.0, 5.0, 6.0}});
  const Tensor columns = tensor({true, false, true}), rows = tensor({false, true});
  const Tensor elements = tensor({{true, false, false}, {false, true, true}});
  EXPECT_EQ(masked_select(x, columns).to_vector(), (Values{1, 3, 4, 6}));
  EXPECT_EQ(masked_select(x, tensor({false})).shape(), (Shape{0}));
  EXPECT_EQ(index(x, rows).to_vector(), (Values{4, 5, 6}));
  EXPECT_EQ(x[elements].to_vector(), (Values{1, 5, 6}));
  EXPECT_EQ(index(x, Tensors{rows, columns}).to_vector(), (Values{4, 6}));
  EXPECT_EQ(index(x, Tensors{tensor({1, 0}), columns}).to_vector(), (Values{4, 3}));
  EXPECT_EQ(index_put(x, elements, tensor({7.0, 8.0, 9.0})).to_vector(),
            (Values{7, 2, 3, 4, 8, 9}));
  EXPECT_EQ(index_put(x, rows, tensor(0.5), PutMode::accumulate).to_vector(),
            (Values{1, 2, 3, 4.5, 5.5, 6.5}));
  EXPECT_EQ(nonzero(elements).to_vector_i64(), (std::vector<std::int64_t>{0, 0, 1, 1, 1, 2}));
  EXPECT_EQ(nonzero(tensor({{0.0, 2.0}})).to_vector_i64(), (std::vector<std::int64_t>{0, 1}));
  EXPECT_EQ(nonzero(tensor(3.0)).shape(), (Shape{1, 0}));
  EXPECT_EQ(nonzero(tensor(0.0)).shape(), (Shape{0, 0}));
  expect_refused([&] { masked_select(x, tensor({1, 0, 1})); }, "a mask is bool");
  expect_refused([&] { index(x, columns); }, "with a mask of shape [3]");
  expect_refused([&] { index(x, tensor(true)); }, "with a mask of shape []");
  expect_refused([&] { index(x, Tensors{rows, elements}); }, "from dim 1 on");
}

TEST(IndexTest, AMaskPicksOnEveryLayout) {
  const Tensor positive = tensor({{true, false, true}, {false, true, true}, {true, true, false}});
  const Tensor rows = tensor({true, false, true});
  for (const Placement& cut : {Shard(0), Shard(1), Replicate()}) {
    const auto mask = [&](const Tensor& x) { return placed(x, positive, cut); };
    expect_right([&](const Tensor& x) { return masked_select(x, mask(x)); }, {3, 3});
    expect_right([&](const Tensor& x) { return x[mask(x)]; }, {3, 3});
    expect_right([&](const Tensor& x) { return index(x, placed(x, rows, Replicate())); }, {3, 3});
    expect_right([&](const Tensor& x) { return index_put(x, mask(x), x[mask(x)] * 2.0); }, {3, 3});
  }
}

TEST(IndexTest, ClassesAreOnesOfTheirOwnDim) {
  const Tensor classes = tensor({{2, 0}, {1, 2}, {0, 0}});
  const std::vector<double> three = {0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 1, 1, 0, 0, 1, 0, 0};
  EXPECT_EQ(one_hot(classes).shape(), (Shape{3, 2, 3}));
  EXPECT_EQ(one_hot(classes).to_vector(), three);
  EXPECT_EQ(one_hot(tensor({1}), 4).to_vector(), (std::vector<double>{0, 1, 0, 0}));
  const auto expect_refusals = [](const Tensor& x) {
    expect_refused([&] { one_hot(x, 2); }, "one_hot: position");
    expect_refused([&] { one_hot(x, 0); }, "one_hot of 0 classes");
    expect_refused([&] { one_hot(x.to(DType::f64)); }, "positions are int64");
    expect_refused([&] { one_hot(x.narrow(0, 0, 0)); }, "one_hot of no classes");
  };
  expect_refusals(classes);
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    for (const Placement& placement : {Placement(Replicate()), Placement(Shard(1))}) {
      const Tensor x = distribute_tensor(classes, mesh, {placement}, {.source_rank = -1});
      EXPECT_EQ(one_hot(x).placements(), Placements{placement});
      EXPECT_EQ(one_hot(x).to_vector(), three);
    }
    expect_refusals(distribute_tensor(classes, mesh, {Replicate()}, {.source_rank = -1}));
  });
}

TEST(IndexTest, PlacesChangeOnEveryLayout) {
  expect_right([](const Tensor& x) { return flip(x, {0}); }, {5, 4});
  expect_right([](const Tensor& x) { return flip(x, {-1, 0}); }, {5, 4});
  expect_right([](const Tensor& x) { return roll(x, {2}, {0}); }, {5, 4});
  expect_right([](const Tensor& x) { return roll(x, {3}); }, {5, 4});
  expect_right([](const Tensor& x) { return pad(x, {1, -1}, 3); }, {5, 4});
  expect_right([](const Tensor& x) { return pad(x, {0, 0, 2, 1}); }, {5, 4});
  for (const std::int64_t diagonal : {-2, 0, 1}) {
    expect_right([diagonal](const Tensor& x) { return tril(x, diagonal); }, {5, 4});
    expect_right([diagonal](const Tensor& x) { return triu(x, diagonal); }, {4, 5});
  }
}

TEST(IndexTest, OrderIsRightOnEveryLayout) {
  for (const SortOrder order : {SortOrder::ascending, SortOrder::descending}) {
    for (const int dim : {0, 1}) {
      expect_right([=](const Tensor& x) { return sort(x, dim, order).values; }, {5, 4});
      expect_right([=](const Tensor& x) { return topk(x, 3, dim, order).values; }, {5, 4});
    }
  }
}

TEST(IndexTest, ElementsOfEachDtypeComeOutOfACutDim) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  const Tensor odd = tensor({{inf, 1.0}, {-0.0, nan}, {3.0, -inf}, {0.0, 1.0}, {200.0, -0.0}});
  const Tensor list = tensor({4, 0, 1, 1}), beside = tensor({{1, 3}, {4, 2}});
  test::run_ranks(3, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {3});
    for (const DType dtype : tensors::kAllDTypes) {
      SCOPED_TRACE(tensors::dtype_name(dtype));
      const bool floating = tensors::is_floating_point(dtype);
      const Tensor whole =
          (floating ? odd : tensor({{3, 1}, {0, 7}, {2, 5}, {0, 1}, {200, 3}})).to(dtype);
      const Tensor cut = distribute_tensor(whole, mesh, {Shard(0)}, {.source_rank = -1});
      const auto at = [&](const Tensor& index) { return placed(cut, index, Replicate()); };
      const auto expect_same = [](const Tensor& found, const Tensor& expected) {
        EXPECT_EQ(found.dtype(), expected.dtype());
        EXPECT_EQ(found.full_tensor().local().to_string(), expected.local().to_string());
      };
      expect_same(index_select(cut, 0, at(list)), index_select(whole, 0, list));
      expect_same(gather(cut, 0, at(beside)), gather(whole, 0, beside));
      expect_same(index(cut, at(list)), index(whole, list));
      expect_same(sort(cut, 0).values, sort(whole, 0).values);
      expect_same(sort(cut, 0).indices, sort(whole, 0).indices);
      expect_same(topk(cut, 2, 0).values, topk(whole, 2, 0).values);
    }
  });
}

TEST(IndexTest, SecondDerivativesAreRight) {
  const Tensor list = tensor({1, 0, 1}), columns = tensor({{0, 2}, {1, 1}});
  for (const Function& function :
       std::vector<Function>{[&](const Tensor& x) { return index_select(x * x, 0, list); },
                             [&](const Tensor& x) { return gather(x * x, 1, columns); },
                             [&](const Tensor& x) { return sort(x * x, 1).values; },
                             [&](const Tensor& x) { return tril(x * x); },
                             [&](const Tensor& x) {
                               return scatter_add(x * x, 1, columns, gather(x, 1, columns));
                             }}) {
    expect_second_derivative_right(function, randn({2, 3}, {1}, kDoubles));
  }
}

TEST(IndexTest, APositionThatIsNoneIsNotSoughtAmongTheNumbersThatItPointsInto) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    // Each rank's part is as large as the list.
    const Tensor target = zeros({4, 3}, mesh, {Shard(0)}, DType::i64);
    const Tensor list = placed(target, tensor({{0, 1, 2}, {3, 9, 0}}), Replicate());
    const char* const words = "position 4 of dim 0 is 9, in positions of shape [2, 3]";
    expect_refused([&] { gather(target, 0, list); }, words);
    expect_refused([&] { scatter_add(target, 0, list, list); }, words);
  });
}

TEST(IndexTest, PositionsThatAreNoneAreNamedOnEveryLayout) {
  const Tensor whole = randn({4, 3}, {1}, kDoubles);
  const auto expect_named = [](const Tensor& x) {
    const auto at = [&](const Tensor& index) { return placed(x, index, Replicate()); };
    expect_refused(
        [&] {
          index_select(x, 0, at(tensor({1, 4})));
        },
        "index_select: position 1 of dim 0 is 4");
    expect_refused([&] { index_select(x, 0, at(tensor({-1}))); }, "is -1");
    expect_refused(
        [&] {
          gather(x, 1, at(tensor({{0}, {3}})));
        },
        "gather: position 1 of dim 1 is 3");
    expect_refused([&] { index(x, at(tensor({-5}))); }, "index: position 0 of dim 0 is -5");
    expect_refused(
        [&] {
          index(x, {at(tensor({0, 1})), at(tensor({0, 3}))});
        },
        "index: position 1 of dim 1 is 3");
    expect_refused(
        [&] {
          index_put(x, {at(tensor({0})), at(tensor({-4}))}, at(ones({1}, kDoubles)));
        },
        "index_put: position 0 of dim 1 is -4");
    expect_refused([&] { index(x, Tensors(3, at(tensor({0})))); }, "3 lists of positions");
    expect_refused([&] { index_select(x, 0, at(tensor({1.0}))); }, "positions are int64");
    expect_refused([&] { gather(x, 0, at(tensor({1}))); }, "as many dims");
    expect_refused([&] { flip(x, {0, 2}); }, "dim 2");
    expect_refused([&] { pad(x, {1}); }, "two for each dim");
    expect_refused([&] { pad(x, {-2, -2}); }, "fewer than none");
    expect_refused([&] { topk(x, 5, 0); }, "the dim has 4");
    expect_refused([&] { embedding(at(tensor({0})), x.select(0, 0)); }, "two dims");
    for (const std::int64_t padding : {4, -5}) {
      expect_refused([&] { embedding(at(tensor({0})), x, padding); }, "the table has 4 rows");
    }
    expect_refused([&] { tril(x.select(0, 0)); }, "two dims at least");
  };
  expect_named(whole);
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    for (const int dim : {0, 1}) {
      expect_named(distribute_tensor(whole, mesh, {Shard(dim)}, {.source_rank = -1}));
    }
  });
}

TEST(IndexTest, PositionsWithAFractionAreRefusedBeforeAnythingIsSent) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const Tensor table = distribute_tensor(zeros({4, 3}), mesh, {Shard(0)}, {.source_rank = -1});
    const Tensor at = distribute_tensor(zeros({2}), mesh, {Shard(0)}, {.source_rank = -1});
    const CommCounter counter;
    expect_refused([&] { index(table, at); }, "index with float32 positions");
    expect_refused([&] { embedding(at, table); }, "index with float32 positions");
    EXPECT_EQ(counter.get_total_counts(), 0);
  });
}

TEST(IndexTest, AListOfU8IsAMask) {
  // PyTorch 2.15.0's: x[torch.uint8] is a mask, whatever its numbers are.
  const Tensor x = tensor({0., 1., 2., 3.}), mask = tensor({0, 1, 0, 2}).to(DType::u8);
  EXPECT_EQ(index(x, mask).to_vector(), (std::vector<double>{1, 3}));
  EXPECT_EQ(index_put(x, mask, tensor(9.)).to_vector(), (std::vector<double>{0, 9, 2, 9}));
  expect_refused([&] { index(x, tensor({0, 1}).to(DType::u8)); }, "with a mask of shape [2]");
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const Tensor cut = distribute_tensor(x, mesh, {Shard(0)}, {.source_rank = -1});
    const Tensor cut_mask = distribute_tensor(mask, mesh, {Shard(0)}, {.source_rank = -1});
    EXPECT_EQ(index(cut, cut_mask).to_vector(), (std::vector<double>{1, 3}));
  });
}

TEST(IndexTest, IndexAddTakesASourceOfAsManyDims) {
  // PyTorch 2.15.0's.
  const Tensor line = tensor({0., 1., 2., 3.}), three = tensor(3.), five = tensor(5.);
  const Tensor at = tensor({1}), first = tensor({0});
  EXPECT_EQ(index_add(three, 0, first, five).item(), 8);
  EXPECT_EQ(index_add(three, 0, first.reshape({}), five).item(), 8);
  EXPECT_EQ(index_add(line, 0, at.reshape({}), tensor({5.})).to_vector(),
            (std::vector<double>{0, 6, 2, 3}));
  const auto refuse = [](const Tensor& a, const Tensor& list, const Tensor& source) {
    expect_refused([&] { index_add(a, 0, list, source); }, "another number of dims");
  };
  refuse(line, at, five);
  refuse(line, at.reshape({}), five);
  refuse(three, first, tensor({5.}));
  refuse(three, tensor({0, 0}), tensor({5., 6.}));
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const Tensor cut = distribute_tensor(line, mesh, {Shard(0)}, {.source_rank = -1});
    refuse(cut, at, five);
  });
}

TEST(IndexTest, PositionsMayBeOfI32) {
  const Tensor x = tensor({{1., 2., 3.}, {4., 5., 6.}}), at = tensor({1, 0});
  const Tensor narrow = at.to(DType::i32);
  const Tensor column = at.view({2, 1}), narrow_column = narrow.view({2, 1});
  EXPECT_TRUE(equal(index(x, narrow), index(x, at)));
  EXPECT_TRUE(equal(index_put(x, narrow, tensor(9.)), index_put(x, at, tensor(9.))));
  EXPECT_TRUE(equal(index_select(x, 1, narrow), index_select(x, 1, at)));
  EXPECT_TRUE(equal(index_add(x, 0, narrow, x), index_add(x, 0, at, x)));
  EXPECT_TRUE(equal(embedding(narrow, x), embedding(at, x)));
  EXPECT_TRUE(equal(gather(x, 1, narrow_column), gather(x, 1, column)));
  EXPECT_TRUE(equal(scatter(x, 1, narrow_column, x), scatter(x, 1, column, x)));
  EXPECT_TRUE(equal(scatter(x, 1, narrow_column, 7), scatter(x, 1, column, 7)));
  EXPECT_TRUE(equal(scatter_add(x, 1, narrow_column, x), scatter_add(x, 1, column, x)));
  expect_refused([&] { index_select(x, 0, at.to(DType::u8)); }, "with uint8 positions");
  expect_refused([&] { one_hot(narrow); }, "one_hot with int32");
}

TEST(IndexTest, OneRowOfACutDimIsGivenByWhoHasIt) {
  for (const int row : {0, 3, -1}) {
    expect_right([&](const Tensor& x) { return x.select(0, row); }, {5, 4});
    expect_right([&](const Tensor& x) { return x.select(1, row) * x.select(0, 0).sum(); }, {5, 4});
  }
  test::run_ranks(3, [](const collectives::ProcessGroup& group) {
    const DeviceMesh mesh(group, {3});
    const Tensor x = ones({4, 2}, mesh, {Shard(0)});
    const CommCounter counter;
    EXPECT_EQ(x[3].placements(), Placements{Partial()});
    EXPECT_EQ(pad(x.t(), {0, 0, 1, 1}).placements(), Placements{Shard(1)});
    EXPECT_EQ(counter.get_total_counts(), 0);
    EXPECT_EQ(x[3].to_vector(), (std::vector<double>{1, 1}));
    EXPECT_TRUE(std::signbit((x * -0.0)[3].to_vector()[0]));
  });
}

TEST(IndexTest, WhereNothingIsToRollTheOperandStaysALeaf) {
  test::run_ranks(2, [](const collectives::ProcessGroup& group) {
    const Tensor x = zeros({0, 3}, DeviceMesh(group, {2}), {Shard(0)}).requires_grad_();
    sum(roll(x, {1}, {0})).backward();
    EXPECT_TRUE(x.grad().defined());
  });
}

TEST(IndexTest, EdgesAreThoseOfPyTorch) {
  const Tensor x = tensor({{1., 2., 3.}, {4., 5., 6.}});
  EXPECT_TRUE(equal(triu(x, INT64_MAX), zeros_like(x)));
  EXPECT_TRUE(equal(tril(x, INT64_MAX), x));
  EXPECT_TRUE(equal(triu(x, INT64_MIN), x));
  const Tensor line = tensor({1., 2., 3.});
  expect_refused(
      [&] {
        pad(line, {-4, 2});
      },
      "pad of a tensor of shape [3]: 3 elements by -4 and 2");
  expect_refused(
      [&] {
        pad(line, {5, -6});
      },
      "pad of a tensor of shape [3]: 3 elements by 5 and -6");
  expect_refused([&] { pad(line, {INT64_MAX, 1}); }, "more elements than 63 bits count");
  EXPECT_TRUE(equal(pad(line, {4, -3}), zeros({4})));
  EXPECT_TRUE(equal(one_hot(tensor({1}), -1), tensor({{0, 1}})));
  EXPECT_EQ(flip(tensor(5.), {0}).item(), 5);
  EXPECT_EQ(flip(tensor(5.), {}).item(), 5);
  for (const int again : {0, -1}) {
    expect_refused(
        [&] {
          flip(tensor(5.), {0, again});
        },
        "flip of a tensor of shape [] was given dim 0 twice");
  }
  EXPECT_EQ(movedim(tensor(5.), 0, -1).item(), 5);
  EXPECT_EQ(cat({zeros({0}), tensor({1, 2})}).dtype(), DType::f32);
  const Tensor none = zeros({0}, {.dtype = DType::i64});
  EXPECT_EQ(gather(x, 1, none).shape(), Shape{0});
  EXPECT_TRUE(equal(scatter(x, 1, none, x), x));
  EXPECT_TRUE(equal(scatter_add(x, 1, none, x), x));
  expect_refused([] { index_select(tensor(5.), 0, tensor({0, 0})); }, "a single number");
  const Extremes most = max(tensor({{false, true, true}}), 1);
  EXPECT_EQ(most.values.dtype(), DType::boolean);
  EXPECT_EQ(most.indices.item(), 1);
}

}  // namespace
}  // namespace dtrun::dtensor
