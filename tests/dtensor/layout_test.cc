#include "dtrun/dtensor/layout/box.h"

#include <gtest/gtest.h>

#include "dtensor/layout_catalogue.h"
#include "dtensor/vector_layout.h"
#include "dtrun/base/error.h"

namespace dtrun::dtensor {
namespace {

using tensors::Shape;

std::vector<int> coordinate_of(int rank, const std::vector<int>& mesh) {
  std::vector<int> at(mesh.size());
  for (std::size_t a = at.size(); a-- > 0;) {
    at[a] = rank % mesh[a];
    rank /= mesh[a];
  }
  return at;
}

std::vector<std::int64_t> chunk_sizes(std::int64_t n, int parts) {
  std::vector<std::int64_t> sizes;
  for (int i = 0; i < parts; ++i) sizes.push_back(chunk_of(n, parts, i).size);
  return sizes;
}

TEST(LayoutTest, ChunksAreThoseOfTorchChunk) {
  EXPECT_EQ(chunk_sizes(7, 4), (std::vector<std::int64_t>{2, 2, 2, 1}));
  EXPECT_EQ(chunk_sizes(5, 4), (std::vector<std::int64_t>{2, 2, 1, 0}));
  EXPECT_EQ(chunk_sizes(6, 4), (std::vector<std::int64_t>{2, 2, 2, 0}));
  EXPECT_EQ(chunk_sizes(0, 3), (std::vector<std::int64_t>{0, 0, 0}));
}

TEST(LayoutTest, AnEmptyChunkBeginsAtTheEnd) {
  EXPECT_EQ(chunk_of(5, 4, 3).offset, 5);
  EXPECT_EQ(chunk_of(1, 8, 7).offset, 1);
  EXPECT_EQ(chunk_of(0, 2, 0).offset, 0);
}

TEST(LayoutTest, AHugeDimDoesNotOverflow) {
  const std::int64_t n = INT64_MAX;
  const Chunk last = chunk_of(n, 8, 7);
  EXPECT_EQ(last.offset + last.size, n);
}

TEST(LayoutTest, ChunksOfEverySizeTileTheDim) {
  for (int parts = 1; parts <= 8; ++parts) {
    for (std::int64_t n = 0; n <= 2 * parts + 1; ++n) {
      std::int64_t next = 0;
      for (int i = 0; i < parts; ++i) {
        const Chunk chunk = chunk_of(n, parts, i);
        EXPECT_EQ(chunk.offset, chunk.size > 0 ? next : n);
        next += chunk.size;
      }
      EXPECT_EQ(next, n);
    }
  }
}

TEST(LayoutTest, BoxesAreThoseOfTheVectors) {
  std::size_t boxes = 0;
  const std::vector<test::VectorCase> cases = test::read_vector_file("layout");
  test::expect_cases(cases.size(), 1084);
  for (const test::VectorCase& item : cases) {
    SCOPED_TRACE(test::text_of(item.at("id")));
    const std::vector<int> mesh = test::ints_of(item.at("mesh"));
    const Placements placements = placements_of(item.at("placements"));
    const ShardOrder order = order_of(item.if_contains("shard_order"));
    const auto& shapes = item.at("ranks").at("shapes").as_array();
    const auto& offsets = item.at("ranks").at("offsets").as_array();
    for (std::size_t rank = 0; rank < shapes.size(); ++rank) {
      const Box box = local_box(test::sizes_of(item.at("shape")), mesh,
                                coordinate_of(static_cast<int>(rank), mesh), placements, order);
      EXPECT_EQ(box.shape, test::sizes_of(shapes[rank])) << "rank " << rank;
      EXPECT_EQ(box.offsets, test::sizes_of(offsets[rank])) << "rank " << rank;
      ++boxes;
    }
  }
  EXPECT_GT(boxes, 6000U);
}

/// How often each element of a tensor of two dims stands in the boxes of all ranks.
std::vector<int> times_held(const Shape& shape, const std::vector<int>& mesh,
                            const Layout& layout) {
  std::vector<int> times(static_cast<std::size_t>(shape[0] * shape[1]));
  int ranks = 1;
  for (const int size : mesh) ranks *= size;
  for (int rank = 0; rank < ranks; ++rank) {
    const Box box = local_box(shape, mesh, coordinate_of(rank, mesh), layout);
    for (std::int64_t row = 0; row < box.shape[0]; ++row) {
      for (std::int64_t column = 0; column < box.shape[1]; ++column)
        ++times.at(
            static_cast<std::size_t>((box.offsets[0] + row) * shape[1] + box.offsets[1] + column));
    }
  }
  return times;
}

TEST(LayoutTest, BoxesOfEveryOrderTileTheTensor) {
  std::size_t layouts = 0;
  for (const std::vector<int>& mesh :
       {std::vector<int>{2, 3}, {2, 2, 2}, {3, 1, 2}, {2, 1, 2, 2}}) {
    for (std::int64_t rows = 0; rows <= 9; ++rows) {
      for (const std::int64_t columns : {0, 1, 3, 5, 8}) {
        const Shape shape = {rows, columns};
        for (const Layout& layout : all_layouts(shape, mesh, {})) {
          int copies = 1;
          for (std::size_t axis = 0; axis < mesh.size(); ++axis)
            if (layout.is_replicate(axis)) copies *= mesh[axis];
          ASSERT_EQ(times_held(shape, mesh, layout),
                    std::vector<int>(static_cast<std::size_t>(rows * columns), copies))
              << tensors::shape_to_string(shape) << " " << layout.to_string();
          ++layouts;
        }
      }
    }
  }
  EXPECT_GT(layouts, 10000U);
}

void expect_refused(const Shape& shape, const std::vector<int>& mesh, const Placements& placements,
                    const ShardOrder& order, const std::string& what) {
  try {
    make_layout(shape, mesh, placements, order);
    FAIL() << "no error: " << what;
  } catch (const base::Error& error) {
    EXPECT_EQ(error.code(), base::ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find(what), std::string::npos) << error.what();
  }
}

TEST(LayoutTest, WhatDoesNotFitIsRefusedWithTheReason) {
  expect_refused({4}, {2}, {Replicate(), Replicate()}, {}, "2 placements and 1 axes");
  expect_refused({4, 4}, {2}, {Shard(2)}, {}, "its dims are -2 to 1");
  expect_refused({4, 4}, {2}, {Shard(-3)}, {}, "S(-3)");
  expect_refused({}, {2}, {Shard(0)}, {}, "cannot shard a 0-dim tensor");
  expect_refused({4}, {2, 2}, {Partial(), Partial(ReduceOp::max)}, {}, "cannot mix partial ops");
  expect_refused({4}, {2, 2}, {Shard(0), Shard(0)}, {{0, {1}}}, "shard order {0: [1]}");
  expect_refused({4}, {2, 2}, {Shard(0), Replicate()}, {{0, {0, 1}}}, "{0: [0]} in any order");
  expect_refused({4, 4}, {2, 2}, {Shard(0), Shard(0)}, {{1, {0, 1}}}, "does not fit");
}

TEST(LayoutTest, TakesFourBytesAnAxis) {
  static_assert(sizeof(Layout) <= 4 * Layout::kMaxAxes + 4);
  static_assert(std::is_trivially_copyable_v<Layout>);
}

TEST(LayoutTest, AnAxisThatLeavesADimLetsTheOthersMoveUp) {
  Layout layout = make_layout({8, 8}, {2, 2, 2}, {Shard(0), Shard(0), Shard(0)}, {{0, {2, 0, 1}}});
  EXPECT_EQ(layout.to_string(), "[S(0), S(0), S(0)] order {0: [2, 0, 1]}");
  EXPECT_TRUE(layout.is_innermost(1));
  layout.set(2, Replicate());
  EXPECT_EQ(layout, Layout({Shard(0), Shard(0), Replicate()}));
  layout.set(0, Shard(1));
  layout.set(0, Shard(0));
  EXPECT_EQ(layout.order(), (ShardOrder{{0, {1, 0}}}));
  EXPECT_EQ(layout.cuts(0), 2);
  EXPECT_EQ(layout.cuts(1), 0);
}

TEST(LayoutTest, MoreAxesThanALayoutHoldsAreRefused) {
  EXPECT_THROW(make_layout({4}, std::vector<int>(9, 1), Placements(9, Replicate())), base::Error);
}

TEST(LayoutTest, SumMixesWithAvgOnly) {
  const Placements mixed = {Partial(), Partial(ReduceOp::avg)};
  EXPECT_EQ(make_layout({4}, {2, 2}, mixed).placements(), mixed);
}

TEST(LayoutTest, DimsAreNormalizedAndTheOrderIsFilled) {
  const Layout layout = make_layout({4, 4}, {2, 2, 2}, {Shard(-1), Shard(0), Shard(1)});
  EXPECT_EQ(layout.placements(), (Placements{Shard(1), Shard(0), Shard(1)}));
  EXPECT_EQ(layout.order(), (ShardOrder{{0, {1}}, {1, {0, 2}}}));
  EXPECT_EQ(layout.to_string(), "[S(1), S(0), S(1)]");
  EXPECT_EQ(make_layout({4}, {2, 2}, {Shard(0), Shard(0)}, {{0, {1, 0}}}).to_string(),
            "[S(0), S(0)] order {0: [1, 0]}");
}

}  // namespace
}  // namespace dtrun::dtensor
