// The tensors' memory that a move needs at once is what explain() tells.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <random>

#include "dtensor/ragged_catalogue.h"
#include "dtensor/rank_world.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/explain.h"
#include "dtrun/tensor/host_allocator.h"
#include "support/one_in.h"
#include "support/rank_threads.h"

namespace dtrun::dtensor {
namespace {

using collectives::ProcessGroup;

/// What this thread's tensors have, at the most since reset().
class MeasuredMemory : public tensors::HostAllocator {
 public:
  tensors::StoragePointer allocate(std::size_t bytes) override {
    void* const data = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    now_ += static_cast<std::int64_t>(bytes);
    peak_ = std::max(peak_, now_.load());
    return tensors::Storage::wrap(data, bytes, tensors::kCpu, [this, data, bytes] {
      std::free(data);
      now_ -= static_cast<std::int64_t>(bytes);
    });
  }
  void reset() { peak_ = now_.load(); }
  std::int64_t now() const { return now_; }
  std::int64_t peak() const { return peak_; }

 private:
  std::atomic<std::int64_t> now_ = 0;
  std::int64_t peak_ = 0;
};

/// Of one pair of layouts.
void expect_peak_as_told(MeasuredMemory& measured, const DeviceMesh& mesh, const Shape& shape,
                         DType dtype, const Layout& from, const Layout& to) {
  const Spec spec = make_spec(mesh, from, shape, dtype);
  const Tensor x(spec, tensors::zeros(spec.local_box().shape, {.dtype = dtype}));
  const PlanExplanation told = explain(x, to.placements(), to.order());
  EXPECT_EQ(measured.now(), told.memory.before);
  measured.reset();
  const Tensor y = x.redistribute(to.placements(), to.order());
  EXPECT_EQ(measured.peak(), told.memory.peak) << told;
  EXPECT_EQ(static_cast<std::int64_t>(y.local().bytes()), told.memory.after) << told;
}

/// @return how many pairs there were
std::size_t expect_peak_as_told(const ProcessGroup& group, const std::vector<int>& mesh_shape,
                                const Shape& shape, std::size_t one_pair_in) {
  MeasuredMemory measured;
  const tensors::HostAllocatorScope scope(measured);
  const DeviceMesh mesh(group, mesh_shape);
  const std::vector<Layout> layouts = all_layouts(shape, mesh_shape, {ReduceOp::sum});
  std::size_t pairs = 0;
  for (std::size_t pair = 0; pair < layouts.size() * layouts.size(); pair += one_pair_in) {
    const Layout &from = layouts[pair / layouts.size()], &to = layouts[pair % layouts.size()];
    if (from == to) continue;
    expect_peak_as_told(measured, mesh, shape, DType::f64, from, to);
    ++pairs;
  }
  return pairs;
}

// All pieces have the 16 KiB from which on an allocator is asked, or are empty.
TEST(PeakMemoryTest, APlanNeedsJustTheMemoryThatIsTold) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    EXPECT_GT(expect_peak_as_told(group, {2}, {130, 137}, 1), 10U);
    EXPECT_GT(expect_peak_as_told(group, {2}, {1, 8193}, 1), 10U);
  });
  test::run_ranks(3, [](const ProcessGroup& group) {
    EXPECT_GT(expect_peak_as_told(group, {3}, {4, 96, 150}, 1), 10U);
    EXPECT_GT(expect_peak_as_told(group, {1, 3}, {255, 255}, 1), 10U);
  });
  const std::size_t one_in = testing_support::one_in(7);
  test::run_ranks(4, [&](const ProcessGroup& group) {
    EXPECT_GT(expect_peak_as_told(group, {2, 2}, {259, 515}, one_in), 200U / one_in);
  });
  test::run_ranks(6, [&](const ProcessGroup& group) {
    EXPECT_GT(expect_peak_as_told(group, {3, 2}, {384, 408}, one_in), 200U / one_in);
  });
}

/// Of ragged layouts, too, and of some dtypes and reductions; so many pairs by chance.
void expect_some_peaks_as_told(const std::vector<int>& mesh_shape, const Shape& shape,
                               std::size_t pairs) {
  const std::pair<DType, ReduceOp> kinds[] = {{DType::f64, ReduceOp::sum},
                                              {DType::f64, ReduceOp::avg},
                                              {DType::f32, ReduceOp::max},
                                              {DType::i64, ReduceOp::bxor}};
  int world = 1;
  for (const int size : mesh_shape) world *= size;
  for (const auto& [dtype, op] : kinds) {
    const RaggedLayouts all = ragged_layouts(shape, mesh_shape, 1, {Replicate(), Partial(op)});
    test::run_ranks(world, [&, dtype = dtype](const ProcessGroup& group) {
      MeasuredMemory measured;
      const tensors::HostAllocatorScope scope(measured);
      const DeviceMesh mesh(group, mesh_shape);
      std::mt19937 random(3);
      for (std::size_t i = 0; i < pairs; ++i) {
        const Layout &from = all.layouts[random() % all.layouts.size()],
                     &to = all.layouts[random() % all.layouts.size()];
        SCOPED_TRACE(std::string(tensors::dtype_name(dtype)) + " " + from.to_string() + " -> " +
                     to.to_string());
        if (!(from == to)) expect_peak_as_told(measured, mesh, shape, dtype, from, to);
      }
    });
  }
}

// A ragged cut has all of its dim on one rank, so that here, too, a piece is empty or has 16 KiB.
TEST(PeakMemoryTest, ThreeAndFourAxesRaggedCutsAndAveragesNeedJustTheMemoryThatIsTold) {
  const std::size_t one_in = testing_support::one_in(7);
  expect_some_peaks_as_told({2}, {8, 4096}, 70 / one_in);
  expect_some_peaks_as_told({3, 2}, {9, 24576}, 70 / one_in);
  expect_some_peaks_as_told({2, 2, 2}, {4, 65536}, 70 / one_in);
  expect_some_peaks_as_told({2, 1, 2, 2}, {1 << 18}, 70 / one_in);
}

/// @return how many pairs of layouts there were
std::size_t expect_peak_of_crossing_as_told(const DeviceMesh& from, const DeviceMesh& to,
                                            const Shape& shape, std::size_t one_pair_in) {
  MeasuredMemory measured;
  const tensors::HostAllocatorScope scope(measured);
  const std::vector<Layout> befores = all_layouts(shape, from.shape(), {ReduceOp::sum}),
                            afters = all_layouts(shape, to.shape(), {ReduceOp::sum});
  std::size_t pairs = 0;
  for (std::size_t pair = 0; pair < befores.size() * afters.size(); pair += one_pair_in) {
    const Layout &before = befores[pair / afters.size()], &after = afters[pair % afters.size()];
    const Spec spec = make_spec(from, before, shape, DType::f64);
    const Tensor x(spec, tensors::zeros(spec.local_box().shape, {.dtype = DType::f64}));
    const auto move = [&] { return x.redistribute(to, after.placements(), after.order()); };
    const CallsExplanation told = explain([&] { move(); });
    // A rank of neither mesh has nothing to do.
    const bool is_outside = !from.has_this_rank() && !to.has_this_rank();
    EXPECT_EQ(told.calls.empty(), is_outside) << told;
    const PlanMemory memory =
        is_outside ? PlanMemory() : told.calls.front().arguments.front().crossing->memory;
    EXPECT_EQ(measured.now(), memory.before) << told;
    measured.reset();
    const Tensor y = move();
    EXPECT_EQ(measured.peak(), memory.peak) << told;
    EXPECT_EQ(static_cast<std::int64_t>(y.local().bytes()), memory.after) << told;
    ++pairs;
  }
  return pairs;
}

TEST(PeakMemoryTest, AMoveToAnotherMeshNeedsJustTheMemoryThatIsTold) {
  const std::size_t one_in = testing_support::one_in(5);
  run_world(6, [&](int) {
    const DeviceMesh pair("cpu", {0, 1}), square("cpu", {{2, 3}, {4, 5}}),
        all("cpu", {{5, 4, 3}, {2, 1, 0}}), crossed("cpu", {{1, 2}, {3, 0}});
    for (const auto& [from, to] :
         {std::pair(pair, square), std::pair(square, pair), std::pair(square, all),
          std::pair(all, pair), std::pair(crossed, square), std::pair(all, crossed)}) {
      EXPECT_GT(expect_peak_of_crossing_as_told(from, to, {384, 408}, one_in), 5U);
    }
  });
}

}  // namespace
}  // namespace dtrun::dtensor
