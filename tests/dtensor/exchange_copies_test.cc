// Dim by dim it counts what a walk over all ranks counts.
#include "plan/exchange_copies.h"

#include <gtest/gtest.h>

#include "dtensor/layout_catalogue.h"
#include "plan/exchange.h"

namespace dtrun::dtensor {
namespace {

using tensors::Shape;

/// The same, rank by rank.
std::int64_t copies_by_ranks(const Shape& shape, const std::vector<int>& mesh,
                             const std::vector<int>& axes, std::vector<int> coordinate,
                             const Box& own, const Layout& layout, std::size_t depth = 0) {
  if (depth < axes.size()) {
    std::int64_t elements = 0;
    const auto axis = static_cast<std::size_t>(axes[depth]);
    for (coordinate[axis] = 0; coordinate[axis] < mesh[axis]; ++coordinate[axis])
      elements += copies_by_ranks(shape, mesh, axes, coordinate, own, layout, depth + 1);
    return elements;
  }
  const Box common = intersection(own, local_box(shape, mesh, coordinate, layout));
  return lies_together(common.shape, own.shape) ? 0 : tensors::numel(common.shape);
}

/// @return how many of them there are
std::int64_t expect_copies_as_by_ranks(const Shape& shape, const std::vector<int>& mesh,
                                       const Layout& before, const Layout& after) {
  const Step step{StepKind::exchange, 0, before, after};
  const std::vector<int> axes = step.axes();
  std::vector<int> first(mesh.size(), 0), last;
  for (const int size : mesh) last.push_back(size - 1);
  std::int64_t all = 0;
  for (const std::vector<int>& coordinate : {first, last}) {
    const Box own = local_box(shape, mesh, coordinate, before);
    const std::int64_t copies = exchange_copies(shape, mesh, axes, coordinate, own, after);
    EXPECT_EQ(copies, copies_by_ranks(shape, mesh, axes, coordinate, own, after))
        << before.to_string() << " " << after.to_string() << " " << tensors::shape_to_string(shape);
    all += copies;
  }
  return all;
}

TEST(ExchangeCopiesTest, TheyAreThoseOfAWalkOverAllRanks) {
  std::int64_t all = 0;
  for (const std::vector<int>& mesh : std::vector<std::vector<int>>{{3, 2}, {2, 2, 2}}) {
    for (const Shape& shape : {Shape{7, 5, 3}, Shape{1, 12}, Shape{4, 0}, Shape{13}}) {
      const std::vector<Layout> layouts = all_layouts(shape, mesh, {});
      for (std::size_t pair = 0; pair < layouts.size() * layouts.size(); pair += 3) {
        all += expect_copies_as_by_ranks(shape, mesh, layouts[pair / layouts.size()],
                                         layouts[pair % layouts.size()]);
      }
    }
  }
  EXPECT_GT(all, 1000);
}

TEST(ExchangeCopiesTest, RaggedPartsAmongThem) {
  const Shape shape = {7, 5};
  const std::vector<int> mesh = {3, 2};
  std::int64_t all = 0;
  for (const Placements& before : {Placements{Shard(0, {1, 6, 0}), Shard(0)},
                                   Placements{Shard(1, {0, 2, 3}), Shard(0, {3, 4})}}) {
    for (const Placements& after :
         {Placements{Shard(1), Shard(0, {6, 1})}, Placements{Shard(1), Shard(1)}}) {
      all += expect_copies_as_by_ranks(shape, mesh, make_layout(shape, mesh, before),
                                       make_layout(shape, mesh, after));
    }
  }
  EXPECT_GT(all, 0);
}

}  // namespace
}  // namespace dtrun::dtensor
