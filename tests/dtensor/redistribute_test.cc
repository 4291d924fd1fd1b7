// All pairs of layouts on ranks that are threads, against the global tensor.
#include "move/redistribute.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <random>
#include <thread>
#include <vector>

#include "dtensor/catalogue.h"
#include "dtensor/refusal.h"
#include "dtensor/simulated_staging.h"
#include "dtensor/unequal_terms.h"
#include "dtensor/vector_tensor.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/autograd/pending_tensor.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/explain.h"
#include "dtrun/dtensor/ops/reduction.h"
#include "dtrun/tensor/cuda.h"
#include "support/one_in.h"
#include "support/rank_threads.h"
#include "tensor/all_dtypes.h"
#include "tensor/simulated_devices.h"

namespace dtrun::dtensor {
namespace {

using collectives::ProcessGroup;
using tensors::DType;
using tensors::Shape;

bool has_partial(const Layout& layout) {
  return std::ranges::any_of(layout.placements(),
                             [](const Placement& placement) { return placement.is_partial(); });
}

/// The local tensor is its box of the global one; a Partial one combines to it. Collective.
void expect_holds(const DTensor& tensor, const LocalTensor& global) {
  if (has_partial(tensor.spec().layout())) {
    EXPECT_EQ(difference(tensor.full_tensor(), global, {0, 0}), "");
  } else {
    EXPECT_EQ(difference(tensor.to_local(), cut(global, tensor.spec().local_box()), {0, 0}), "");
  }
}

enum class RoundTrip { no, yes };

void expect_all_pairs_right(const std::vector<int>& mesh_shape, const std::vector<Shape>& shapes,
                            const std::vector<ReduceOp>& ops, RoundTrip round_trip) {
  int world = 1;
  for (const int size : mesh_shape) world *= size;
  std::vector<Catalogue> catalogues;
  for (const Shape& shape : shapes) catalogues.push_back(catalogue_of(shape, mesh_shape, ops));
  test::run_ranks(world, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, mesh_shape);
    for (const Catalogue& catalogue : catalogues) {
      const LocalTensor global = global_tensor(catalogue.shape);
      std::size_t pairs = 0;
      for (std::size_t i = 0; i < catalogue.layouts.size(); ++i) {
        const DTensor from = placed(catalogue, i, mesh);
        for (const Layout& to : catalogue.layouts) {
          if (pairs++ % testing_support::one_in(7) != 0) continue;
          SCOPED_TRACE(from.spec().to_string() + " -> " + to.to_string());
          const DTensor there = from.redistribute(to.placements(), to.order());
          EXPECT_EQ(there.spec().layout(), to);
          expect_holds(there, global);
          if (round_trip == RoundTrip::no) continue;
          const Layout& back = catalogue.layouts[i];
          const DTensor again = there.redistribute(back.placements(), back.order());
          EXPECT_EQ(again.spec().layout(), back);
          expect_holds(again, global);
        }
      }
    }
  });
}

const std::vector<ReduceOp> kOps = {ReduceOp::sum, ReduceOp::avg, ReduceOp::max, ReduceOp::min,
                                    ReduceOp::product};

TEST(RedistributeTest, EveryPairAndItsReturnOnOneAxisKeepsTheValue) {
  const std::vector<Shape> shapes = {{},     {0},    {1},    {2},    {3},    {5},      {7},
                                     {8},    {1, 1}, {2, 3}, {7, 5}, {8, 2}, {0, 3},   {5, 0},
                                     {3, 8}, {5, 7}, {1, 8}, {8, 8}, {2, 7}, {3, 2, 5}};
  for (int size = 1; size <= 5; ++size) {
    expect_all_pairs_right({size}, shapes, kOps, RoundTrip::yes);
  }
}

TEST(RedistributeTest, EveryPairOfLayoutsAndOrdersOnATwoByTwoMeshKeepsTheValue) {
  expect_all_pairs_right({2, 2}, {{}, {5}, {7, 3}, {1, 8}, {3, 0}},
                         {ReduceOp::sum, ReduceOp::avg, ReduceOp::max, ReduceOp::min},
                         RoundTrip::yes);
}

TEST(RedistributeTest, EveryPairOfLayoutsAndOrdersOnAThreeByTwoMeshKeepsTheValue) {
  expect_all_pairs_right({3, 2}, {{8}, {5, 7}}, {ReduceOp::sum, ReduceOp::avg, ReduceOp::max},
                         RoundTrip::yes);
}

TEST(RedistributeTest, EveryPairOfLayoutsAndOrdersOnATwoByFourMeshKeepsTheValue) {
  expect_all_pairs_right({2, 4}, {{7}, {5, 3}}, {ReduceOp::sum, ReduceOp::min}, RoundTrip::yes);
}

TEST(RedistributeTest, EveryPairOfPlacementsOnThreeAxesKeepsTheValue) {
  // Of one dim with every shard order, of two in the order of the axes.
  expect_all_pairs_right({2, 2, 2}, {{5}}, {ReduceOp::sum}, RoundTrip::no);
  const std::vector<int> mesh_shape = {2, 2, 2};
  const Shape shape = {7, 3};
  const std::vector<Placements> all = all_placements(2, 3, {ReduceOp::sum});
  test::run_ranks(8, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, mesh_shape);
    const Tensor global(global_tensor(shape));
    for (std::size_t i = 0; i < all.size(); ++i) {
      const Tensor from = placed_in_terms(global, mesh, all[i]);
      for (std::size_t j = 0; j < all.size(); ++j) {
        if ((i * all.size() + j) % testing_support::one_in(7) != 0) continue;
        SCOPED_TRACE(from.spec().to_string() + " -> " + placements_to_string(all[j]));
        expect_holds(from.redistribute(all[j]), global);
      }
    }
  });
}

/// Each i64 of many bits.
LocalTensor bits_of(const Shape& shape) {
  std::vector<std::int64_t> values;
  for (std::int64_t i = 0; i < tensors::numel(shape); ++i) values.push_back(i * 7 % 64);
  return tensors::tensor_from(values, shape, DType::i64);
}

/// One of so many pairs; @return how many there were
std::size_t expect_bits_kept(const std::vector<int>& mesh_shape, const Shape& shape,
                             std::size_t one_pair_in) {
  const std::vector<Layout> layouts =
      all_layouts(shape, mesh_shape, {ReduceOp::band, ReduceOp::bor, ReduceOp::bxor});
  int world = 1;
  for (const int size : mesh_shape) world *= size;
  std::atomic<std::size_t> pairs_of_first = 0;
  test::run_ranks(world, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, mesh_shape);
    const Tensor global(bits_of(shape));
    for (std::size_t pair = 0; pair < layouts.size() * layouts.size(); pair += one_pair_in) {
      const Layout &before = layouts[pair / layouts.size()], &to = layouts[pair % layouts.size()];
      const Tensor from = placed_in_terms(global, mesh, before.placements(), before.order());
      SCOPED_TRACE(from.spec().to_string() + " -> " + to.to_string());
      expect_holds(from.redistribute(to.placements(), to.order()), global);
      if (group.rank() == 0) ++pairs_of_first;
    }
  });
  return pairs_of_first;
}

TEST(RedistributeTest, EveryPairOfBitwisePartialsKeepsTheBits) {
  std::size_t pairs = 0;
  for (const std::vector<int>& mesh_shape : {std::vector<int>{2}, {3}, {2, 2}, {2, 3}}) {
    for (const Shape& shape : {Shape{5}, Shape{7, 3}})
      pairs += expect_bits_kept(mesh_shape, shape, 1);
  }
  std::printf("%zu pairs\n", pairs);
  EXPECT_GT(pairs, 2000U);
}

TEST(RedistributeTest, BitwisePartialsOnThreeAndFourAxesKeepTheBits) {
  const std::size_t one_in = testing_support::one_in(7);
  const std::size_t on_three = expect_bits_kept({2, 1, 2}, {7, 3}, 23 * one_in),
                    on_four = expect_bits_kept({2, 1, 2, 2}, {5}, 197 * one_in);
  std::printf("%zu and %zu pairs\n", on_three, on_four);
  EXPECT_GT(std::min(on_three, on_four), 600 / one_in);
}

/// From every layout to one of so many, and back; of rows from none to twice the ranks and one.
/// Each number of rows takes other pairs.
/// @return how many pairs there were
std::size_t expect_every_size_right(const std::vector<int>& mesh_shape, const Shape& columns,
                                    std::size_t one_pair_in) {
  std::int64_t world = 1;
  for (const int size : mesh_shape) world *= size;
  std::vector<Catalogue> catalogues;
  for (std::int64_t rows = 0; rows <= 2 * world + 1; ++rows) {
    Shape shape = {rows};
    shape.insert(shape.end(), columns.begin(), columns.end());
    catalogues.push_back(catalogue_of(shape, mesh_shape, {ReduceOp::sum}));
  }
  std::atomic<std::size_t> pairs_of_first = 0;
  test::run_ranks(static_cast<int>(world), [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, mesh_shape);
    for (std::size_t rows = 0; rows < catalogues.size(); ++rows) {
      const std::vector<Layout>& layouts = catalogues[rows].layouts;
      const LocalTensor global = global_tensor(catalogues[rows].shape);
      for (std::size_t pair = rows * 37 % one_pair_in; pair < layouts.size() * layouts.size();
           pair += one_pair_in) {
        const std::size_t i = pair / layouts.size();
        const Layout &back = layouts[i], &to = layouts[pair % layouts.size()];
        const DTensor from = placed(catalogues[rows], i, mesh);
        SCOPED_TRACE(from.spec().to_string() + " -> " + to.to_string());
        const DTensor there = from.redistribute(to.placements(), to.order());
        EXPECT_EQ(there.spec().layout(), to);
        expect_holds(there, global);
        const DTensor again = there.redistribute(back.placements(), back.order());
        EXPECT_EQ(again.spec().layout(), back);
        expect_holds(again, global);
        if (group.rank() == 0) ++pairs_of_first;
      }
    }
  });
  return pairs_of_first;
}

TEST(RedistributeTest, EverySizeUpToTwiceTheRanksGoesThereAndBack) {
  struct Sample {
    std::vector<int> mesh_shape;
    Shape columns;
    std::size_t one_pair_in;
    std::size_t least_pairs = 1000;
  };
  const Sample samples[] = {{{4}, {}, 1, 90},    {{4}, {3}, 1, 160},   {{2, 2}, {}, 1},
                            {{2, 2}, {3}, 1},    {{3, 2}, {}, 1},      {{3, 2}, {3}, 2},
                            {{2, 2, 2}, {}, 11}, {{2, 2, 2}, {3}, 101}};
  for (const Sample& sample : samples) {
    const std::size_t one_in = sample.one_pair_in * testing_support::one_in(7);
    const std::size_t pairs = expect_every_size_right(sample.mesh_shape, sample.columns, one_in);
    std::printf("%zu axes, %zu dims: %zu pairs, one of %zu\n", sample.mesh_shape.size(),
                1 + sample.columns.size(), pairs, one_in);
    EXPECT_GE(pairs, sample.least_pairs / testing_support::one_in(7));
  }
}

/// Pairs by chance: on four axes there are millions.
void expect_random_pairs_right(const std::vector<int>& mesh_shape, const Shape& shape,
                               const std::vector<ReduceOp>& ops, unsigned count) {
  int world = 1;
  for (const int size : mesh_shape) world *= size;
  const Catalogue catalogue = catalogue_of(shape, mesh_shape, ops);
  test::run_ranks(world, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, mesh_shape);
    const LocalTensor global = global_tensor(shape);
    std::mt19937 random(4);
    for (unsigned i = 0; i < count; ++i) {
      const DTensor from = placed(catalogue, random() % catalogue.layouts.size(), mesh);
      const Layout& to = catalogue.layouts[random() % catalogue.layouts.size()];
      SCOPED_TRACE(from.spec().to_string() + " -> " + to.to_string());
      const DTensor there = from.redistribute(to.placements(), to.order());
      EXPECT_EQ(there.spec().layout(), to);
      expect_holds(there, global);
    }
  });
}

TEST(RedistributeTest, ThousandsOfPairsOnFourAxesKeepTheValue) {
  const unsigned count = 2000 / testing_support::one_in(20);
  expect_random_pairs_right({2, 2, 2, 2}, {7, 5}, {ReduceOp::sum}, count);
  expect_random_pairs_right({2, 1, 3, 2}, {5, 4, 3}, {ReduceOp::sum, ReduceOp::avg}, count);
  expect_random_pairs_right({1, 2, 2, 2}, {60, 34}, {ReduceOp::max}, count);
}

TEST(RedistributeTest, MinimaAndProductsOnThreeAndFourAxesKeepTheValue) {
  const unsigned count = 1000 / testing_support::one_in(20);
  expect_random_pairs_right({2, 2, 2}, {7, 3}, {ReduceOp::min, ReduceOp::product}, count);
  expect_random_pairs_right({2, 1, 3, 2}, {5, 4}, {ReduceOp::min, ReduceOp::product}, count);
}

TEST(RedistributeTest, SomeKilobytesOnTwoAndThreeAxesTakeExchangesAndKeepTheValue) {
  expect_all_pairs_right({3, 2}, {{70, 51}, {4, 1025}}, {}, RoundTrip::no);
  expect_all_pairs_right({2, 2, 2}, {{51, 35}}, {}, RoundTrip::no);
}

/// While one is on its way, others are, and the program goes on. The way back is right, too.
/// @param pairs so many by chance; 0: all
void expect_right_on_its_way(const std::vector<int>& mesh_shape, const Shape& shape,
                             unsigned pairs) {
  const Catalogue catalogue = catalogue_of(shape, mesh_shape, {ReduceOp::sum});
  const std::size_t count = catalogue.layouts.size();
  int world = 1;
  for (const int size : mesh_shape) world *= size;
  test::run_ranks(world, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, mesh_shape), line(group, {world}, {"line"});
    const Placements whole(mesh_shape.size(), Replicate());
    const LocalTensor global = global_tensor(catalogue.shape);
    const Tensor weights = distribute_tensor(Tensor(global), mesh, whole, {.source_rank = -1});
    const Tensor on_line =
        distribute_tensor(Tensor(global), line, {Replicate()}, {.source_rank = -1});
    std::mt19937 random(5);
    for (std::size_t i = 0; i < (pairs == 0 ? count * count : pairs); ++i) {
      const std::size_t pair = pairs == 0 ? i : random() % (count * count);
      const DTensor from = placed(catalogue, pair / count, mesh).requires_grad_();
      const Layout& to = catalogue.layouts[pair % count];
      SCOPED_TRACE(from.spec().to_string() + " -> " + to.to_string());
      PendingTensor there = from.redistribute_async(to.placements(), to.order());
      PendingTensor elsewhere = from.redistribute_async(line, {Shard(1)});
      const DTensor meanwhile = (from * 2).redistribute(whole);
      expect_holds(elsewhere.wait(), global);
      expect_holds(there.wait(), global);
      EXPECT_TRUE(there.is_completed());
      EXPECT_EQ(there.wait().spec().layout(), to);
      EXPECT_EQ(meanwhile.to_vector()[0], -6);
      sum(there.wait() * weights).backward();
      expect_holds(from.grad(), global);
      sum(elsewhere.wait() * on_line).backward();
      expect_holds(from.grad(), tensors::mul(global, 2));
    }
  });
}

TEST(RedistributeTest, WhileOneIsOnItsWayOthersAreAndTheProgramGoesOn) {
  expect_right_on_its_way({3, 2}, {7, 5}, 0);
  expect_right_on_its_way({4}, {5, 7}, 0);
}

TEST(RedistributeTest, OnThreeAndFourAxesTheyAreOnTheirWayAlike) {
  const unsigned pairs = 100 / testing_support::one_in(5);
  expect_right_on_its_way({2, 2, 2}, {7, 5}, pairs);
  expect_right_on_its_way({2, 1, 2, 2}, {7, 5}, pairs);
}

TEST(RedistributeTest, WhatIsOnItsWayArrivesByItselfAndTakesPartInGradients) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const DTensor x = ones({4, 3}, mesh, {Shard(0)}).requires_grad_();
    PendingTensor pending = x.redistribute_async({Replicate()});
    while (!pending.is_completed()) std::this_thread::yield();
    sum(pending.wait() * 3).backward();
    EXPECT_EQ(x.grad().to_vector(), std::vector<double>(12, 3));
    EXPECT_EQ(x.grad().placements(), Placements{Shard(0)});
    // Nobody waits for it.
    x.redistribute_async({Replicate()});
    expect_refused([&] { x.redistribute_async({Shard(5)}); },
                   "redistribute_async at redistribute_test.cc");
  });
}

TEST(RedistributeTest, WhatIsOnItsWayIsInTheGraphWhereTheCallWas) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}), line(group, {2}, {"line"});
    const DTensor w = ones({4}, mesh, {Shard(0)}).requires_grad_();
    for (const DeviceMesh& to : {mesh, line}) {
      const DTensor x = w * 2;
      PendingTensor pending = x.redistribute_async(to, {Replicate()});
      while (!pending.is_completed()) std::this_thread::yield();
      x.mul_(3);
      const DTensor y = pending.wait();
      EXPECT_EQ(y.to_vector(), std::vector<double>(4, 2));
      EXPECT_EQ(grad({sum(y)}, {w})[0].to_vector(), std::vector<double>(4, 2));

      const auto started = [&] {
        const NoGrad no_grad;
        return w.redistribute_async(to, {Replicate()});
      };
      EXPECT_FALSE(started().wait().requires_grad());
      PendingTensor later = w.redistribute_async(to, {Replicate()});
      const NoGrad no_grad;
      EXPECT_TRUE(later.wait().requires_grad());
    }
    // Nothing is sent: what arrives is a view of what was written to.
    const DeviceMesh flat(group, {2, 1});
    const DTensor x = ones({4}, flat, {Shard(0), Replicate()}).requires_grad_() * 2;
    PendingTensor same = x.redistribute_async({Shard(0), Shard(0)});
    x.mul_(3);
    expect_refused([&] { same.wait(); }, "changed in place");
  });
}

TEST(RedistributeTest, EveryDtypeGoesThroughEveryPartialThatItSupports) {
  test::run_ranks(3, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {3});
    for (const DType dtype : tensors::kAllDTypes) {
      const std::vector<double> values = dtype == DType::boolean ? std::vector<double>{0, 1, 1, 0}
                                         : dtype == DType::u8    ? std::vector<double>{0, 1, 7, 85}
                                                              : std::vector<double>{-5, 0, 3, -1};
      const LocalTensor global = tensors::tensor_from(values, {4}, dtype);
      for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg, ReduceOp::product, ReduceOp::min,
                                ReduceOp::max, ReduceOp::band, ReduceOp::bor, ReduceOp::bxor}) {
        if (!collectives::reduce_op_supports(op, dtype)) continue;
        for (const Placement& start : {Replicate(), Shard(0)}) {
          SCOPED_TRACE(std::string(tensors::dtype_name(dtype)) + " " + Partial(op).to_string());
          const DTensor from = distribute_tensor(global, mesh, {start}, {.source_rank = -1});
          const DTensor partial = from.redistribute({Partial(op)});
          EXPECT_EQ(difference(partial.full_tensor(), global, tolerance_of(dtype)), "");
        }
      }
    }
  });
}

TEST(RedistributeTest, TheExtremesOfI64SurviveMinAndMax) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const std::vector<std::int64_t> values = {INT64_MAX, INT64_MIN, 1};
    const DTensor from = distribute_tensor(tensors::tensor_from(values, {3}, DType::i64), mesh,
                                           {Replicate()}, {.source_rank = -1});
    for (const ReduceOp op : {ReduceOp::min, ReduceOp::max, ReduceOp::band}) {
      EXPECT_EQ(from.redistribute({Partial(op)}).full_tensor().to_vector_i64(), values);
    }
  });
}

TEST(RedistributeTest, ToPartialKeepsTheValueOnTheFirstRankOnly) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const DTensor from =
        distribute_tensor(tensors::tensor_from(std::vector<double>{4, 5}, {2}, DType::f32), mesh,
                          {Replicate()}, {.source_rank = -1});
    const auto local = [&](ReduceOp op) {
      return from.redistribute({Partial(op)}).to_local().to_vector();
    };
    const bool first = group.rank() == 0;
    const std::vector<double> value = {4, 5};
    EXPECT_EQ(local(ReduceOp::sum), first ? value : (std::vector<double>{0, 0}));
    EXPECT_EQ(local(ReduceOp::product), first ? value : (std::vector<double>{1, 1}));
    EXPECT_EQ(local(ReduceOp::max), first ? value : (std::vector<double>{-INFINITY, -INFINITY}));
    EXPECT_EQ(local(ReduceOp::avg), value);
  });
}

std::uint64_t bytes_sent(const DeviceMesh& mesh) {
  std::uint64_t bytes = 0;
  for (int axis = 0; axis < mesh.ndim(); ++axis) {
    const collectives::TransportCounters counters = mesh.group(axis).counters();
    bytes += counters.shared_memory_bytes_sent + counters.tcp_bytes_sent;
  }
  return bytes;
}

TEST(RedistributeTest, LocalStepsSendNothing) {
  test::run_ranks(4, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2, 2});
    const DTensor whole = ones({8, 8}, mesh, {Replicate(), Replicate()});
    const std::uint64_t before = bytes_sent(mesh);
    const DTensor cut_twice = whole.redistribute({Shard(0), Shard(1)});
    whole.redistribute({Partial(), Shard(0)});
    cut_twice.redistribute({Partial(), Partial()});
    EXPECT_EQ(bytes_sent(mesh), before);
    cut_twice.full_tensor();
    EXPECT_GT(bytes_sent(mesh), before);
  });
}

TEST(RedistributeTest, TheSourceIsLeftAsItIs) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const LocalTensor mine = tensors::full({2, 2}, group.rank() + 1, {.dtype = DType::f64});
    const DTensor partial = DTensor::from_local(mine, mesh, {Partial()});
    EXPECT_EQ(partial.full_tensor().to_vector(), (std::vector<double>{3, 3, 3, 3}));
    EXPECT_EQ(mine.to_vector(), std::vector<double>(4, group.rank() + 1));
    const DTensor whole = partial.redistribute({Replicate()});
    whole.redistribute({Shard(0)}).to_local().fill_(-1);
    EXPECT_EQ(whole.to_local().to_vector(), (std::vector<double>{3, 3, 3, 3}));
  });
}

TEST(RedistributeTest, ATensorMovedAgainAndAgainKeepsItsValueAndItsGradient) {
  test::run_ranks(4, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2, 2});
    const Tensor x = ones({4, 4}, mesh, {Shard(0), Shard(1)});
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(x.redistribute({Replicate(), Replicate()}).to_local().shape(), (Shape{4, 4}));
      EXPECT_EQ(x.redistribute({Shard(1), Replicate()}).to_local().shape(), (Shape{4, 2}));
    }
    Tensor w = ones({4, 4}, mesh, {Shard(0), Shard(1)});
    w.requires_grad_();
    for (int i = 0; i < 4; ++i) w.redistribute({Replicate(), Replicate()}).sum().backward();
    EXPECT_EQ(w.grad().full_tensor().to_vector(), std::vector<double>(16, 4));
    // Another write to it is seen.
    x.to_local().fill_(3);
    EXPECT_EQ(x.redistribute({Replicate(), Replicate()}).to_local().to_vector(),
              std::vector<double>(16, 3));
  });
}

// From the third time on the collective is called directly, where the parts allow it.
TEST(RedistributeTest, ARepeatedMoveOfOneStepIsTheFirstOne) {
  for (const std::int64_t rows : {6, 7}) {
    const Catalogue catalogue =
        catalogue_of({rows, 6}, {3}, {ReduceOp::sum, ReduceOp::avg, ReduceOp::max});
    test::run_ranks(3, [&](const ProcessGroup& group) {
      const DeviceMesh mesh(group, {3});
      const LocalTensor global = global_tensor(catalogue.shape);
      for (std::size_t i = 0; i < catalogue.layouts.size(); ++i) {
        const DTensor from = placed(catalogue, i, mesh);
        for (const Placement& to : {Replicate(), Shard(0), Shard(1)}) {
          SCOPED_TRACE(from.spec().to_string() + " -> " + to.to_string());
          const DTensor other(from.spec(), from.local());  // which remembers nothing yet
          for (int time = 0; time < 4; ++time) expect_holds(other.redistribute({to}), global);
          const DTensor there = other.redistribute({to});
          if (to != from.placements()[0]) there.local().fill_(-7);
          expect_holds(other, global);
        }
      }
    });
  }
}

TEST(RedistributeTest, RanksThatDisagreeInARepeatedMoveAreToldWhatEachMoved) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const Tensor x = ones({4, 4}, mesh, {Shard(0)}), terms = ones({4, 4}, mesh, {Partial()});
    for (int time = 0; time < 3; ++time) {
      x.redistribute({Replicate()});
      terms.redistribute({Replicate()});
    }
    expect_refused([&] { (group.rank() == 0 ? x : terms).redistribute({Replicate()}); },
                   group.rank() == 0 ? "f32[4, 4] from [S(0)] to [R]" : "from [P(sum)] to [R]",
                   base::ErrorCode::kDisagreement);
  });
}

TEST(RedistributeTest, OtherLinksGiveATensorThatWasMovedBeforeAnotherPlan) {
  test::run_ranks(4, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2, 2});
    const LinkRate slow{1e-3, 1e6}, fast{1e-6, 1e10};
    const Tensor x = ones({64, 64}, mesh, {Shard(0), Shard(1)});
    // While a tensor is a quarter, the slow axis costs least.
    const auto begins_along = [&](const std::string& axis) {
      const std::string text = explain([&] {
                                 x.redistribute({Replicate(), Replicate()});
                               }).to_string();
      return text.find("axis " + axis) < text.find("axis " + std::string(axis == "0" ? "1" : "0"));
    };
    for (const bool first_is_slow : {true, false, true}) {
      mesh.set_links(first_is_slow ? std::vector{slow, fast} : std::vector{fast, slow});
      for (int i = 0; i < 3; ++i) EXPECT_TRUE(begins_along(first_is_slow ? "0" : "1")) << i;
    }
  });
}

// What is queued on them runs when somebody waits for it: a collective that does not wait for the
// step before it, or a copy that nobody waits for, gives other elements.
/// One in so many of the pairs of layouts. @return how many there were
std::size_t expect_kept_on_devices(
    const std::vector<int>& mesh_shape, std::size_t one_in,
    const std::function<DTensor(const DTensor&, const Layout&)>& move) {
  const tensors::cuda::SimulatedDevices devices;
  register_simulated_staging();
  const Shape shape = {7, 5};
  const Catalogue catalogue = catalogue_of(shape, mesh_shape, {ReduceOp::sum, ReduceOp::max});
  int world = 1;
  for (const int size : mesh_shape) world *= size;
  std::atomic<std::size_t> pairs = 0;
  test::run_ranks(world, {.backend = "cpu:cpu,cuda:simulated"}, [&](const ProcessGroup& group) {
    const tensors::Device own{tensors::DeviceType::cuda, group.rank() % 2};
    tensors::cuda::set_device(own.index);
    const DeviceMesh mesh(group, mesh_shape, {}, tensors::DeviceType::cuda);
    const LocalTensor global = global_tensor(shape);
    for (std::size_t i = 0; i < catalogue.layouts.size(); ++i) {
      const DTensor on_host = placed(catalogue, i, mesh);
      const DTensor from(on_host.spec(), on_host.local().to(own));
      for (std::size_t j = i % one_in; j < catalogue.layouts.size(); j += one_in) {
        const Layout& to = catalogue.layouts[j];
        SCOPED_TRACE(from.spec().to_string() + " -> " + to.to_string());
        const DTensor there = move(from, to);
        EXPECT_EQ(there.spec().layout(), to);
        EXPECT_EQ(there.local().device(), own);
        const LocalTensor whole = there.full_tensor().local();
        EXPECT_EQ(whole.device(), own);
        EXPECT_EQ(whole.to(tensors::kCpu).to_vector(), global.to_vector());
        if (group.rank() == 0) ++pairs;
        if (has_partial(to)) continue;
        EXPECT_EQ(there.local().to(tensors::kCpu).to_vector(),
                  cut(global, there.spec().local_box()).to_vector());
      }
    }
  });
  return pairs;
}

TEST(RedistributeTest, OnDevicesOfSeveralRanksEveryPairKeepsTheValue) {
  if (!tensors::cuda::is_built()) GTEST_SKIP() << "built without CUDA: there are no kernels";
  const auto at_once = [](const DTensor& x, const Layout& to) {
    return x.redistribute(to.placements(), to.order());
  };
  EXPECT_GT(expect_kept_on_devices({2, 2}, 3, at_once), 200U);
  EXPECT_GT(expect_kept_on_devices({2, 1, 2}, 71, at_once), 200U);
}

TEST(RedistributeTest, OnDevicesTheyAreOnTheirWayWhileTheProgramComputes) {
  if (!tensors::cuda::is_built()) GTEST_SKIP() << "built without CUDA: there are no kernels";
  const auto meanwhile = [](const DTensor& x, const Layout& to) {
    PendingTensor pending = x.redistribute_async(to.placements(), to.order());
    const Tensor more = ones({64, 64}, {.device = x.local().device()}) * 3;
    const DTensor there = pending.wait();
    EXPECT_EQ(more.sum().item(), 3 * 64 * 64);
    return there;
  };
  EXPECT_GT(expect_kept_on_devices({2}, 1, meanwhile), 10U);
  EXPECT_GT(expect_kept_on_devices({2, 2}, 3, meanwhile), 200U);
  EXPECT_GT(expect_kept_on_devices({2, 1, 2}, 71, meanwhile), 200U);
}

}  // namespace
}  // namespace dtrun::dtensor
