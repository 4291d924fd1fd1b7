// Ragged shards as layouts: no ranks.
#include "dtrun/dtensor/layout/cut.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "dtensor/plan_simulator.h"
#include "dtensor/ragged_catalogue.h"
#include "dtensor/refusal.h"
#include "dtrun/dtensor/layout/notation.h"
#include "dtrun/dtensor/layout/sharding_picture.h"

namespace dtrun::dtensor {
namespace {

using tensors::Shape;
using Sizes = Cut::Sizes;

TEST(CutTest, EqualSizesAreOneCutAndSizesOfTorchChunkAreNone) {
  EXPECT_EQ(Shard(0, {3, 0, 5}), Shard(0, {3, 0, 5}));
  EXPECT_NE(Shard(0, {3, 0, 5}), Shard(0, {3, 5, 0}));
  EXPECT_NE(Shard(0, {3, 0, 5}), Shard(1, {3, 0, 5}));
  EXPECT_NE(Shard(0, {3, 0, 5}), Shard(0));
  EXPECT_TRUE(Shard(0, {3, 0, 5}).is_shard(0));
  EXPECT_EQ(Shard(0, {3, 0, 5}).sizes(), (Sizes{3, 0, 5}));
  const Layout chunked = make_layout({8}, {3}, {Shard(0, {3, 3, 2})});
  EXPECT_EQ(chunked, make_layout({8}, {3}, {Shard(0)}));
  EXPECT_FALSE(chunked.is_ragged());
  const Placements ragged = {Shard(-1, {3, 0, 5})};
  const Layout layout = make_layout({2, 8}, {3}, ragged);
  EXPECT_TRUE(layout.is_ragged(0));
  EXPECT_EQ(layout[0], Shard(1, {3, 0, 5}));
  EXPECT_EQ(layout.to_string(), "[S(1: 3,0,5)]");
}

TEST(CutTest, IsReadAsItIsWritten) {
  EXPECT_EQ(Shard(0, {3, 0, 5}).to_string(), "S(0: 3,0,5)");
  EXPECT_EQ(Shard(0, {3, 0, 5}).repr(), "Shard(dim=0, sizes=[3, 0, 5])");
  EXPECT_EQ(Placement::parse("S(0: 3,0,5)"), Shard(0, {3, 0, 5}));
  EXPECT_EQ(Placement::parse("S(-1:3, 0, 5)"), Shard(-1, {3, 0, 5}));
  for (const char* bad : {"S(0:)", "S(0: 3,,5)", "S(0: 3,x)", "S(0: 3,5,)", "S(:3)"})
    EXPECT_THROW(Placement::parse(bad), base::Error) << bad;
  const Placements held = {Shard(0, {3, 0, 5}), Shard(0)};
  const Layout layout = make_layout({8, 4}, {3, 2}, held);
  for (const char* text : {"[S(0: 3,0,5), S(0)]", "Shard(0, {3, 0, 5}), Shard(0)",
                           "[Shard(dim=0, sizes=[3, 0, 5]), Shard(dim=0)]"}) {
    EXPECT_EQ(parse_layout(text, {8, 4}, {3, 2}), layout) << text;
  }
  EXPECT_THROW(sharding_sequence(layout, 2), base::Error);
}

TEST(CutTest, WhatDoesNotFitIsNamed) {
  expect_refused([] { Shard(0, {3, -1}); }, {"-1", "{3, -1}"});
  expect_refused([] { Shard(0, Sizes{}); }, {"a size for each rank"});
  expect_refused([] { Shard(0, {INT64_MAX, 1}); }, {"1 of the elements"});
  expect_refused(
      [] {
        make_layout({8}, {3}, {Shard(0, {3, 5})});
      },
      {"S(0: 3,5)", "2 sizes", "3 ranks"});
  expect_refused([] { make_layout({8}, {2}, {Shard(0, {3, 4})}); }, {"add up to 7", "8 elements"});
  expect_refused([] { make_layout({8}, {2}, {Shard(0, {4, 3})}); }, {"add up to 7"});
  expect_refused([] { make_layout({8}, {2}, {Shard(1, {3, 5})}); }, {"dim"});
  expect_refused(
      [] {
        make_layout({8}, {2, 2}, {Shard(0), Shard(0, {3, 5})}, {{0, {0, 1}}});
      },
      {"axis 1", "axis 0", "first in the shard order"});
  const Placements held = {Shard(0), Shard(0, {3, 5})};
  EXPECT_EQ(make_layout({8}, {2, 2}, held), make_layout({8}, {2, 2}, held, {{0, {1, 0}}}));
  expect_refused(
      [] {
        make_layout({8}, {2, 2}, {Shard(0, {1, 7}), Shard(0, {3, 5})});
      },
      {"one has sizes"});
}

TEST(CutTest, AMillionCutsOneAfterAnotherLeaveMemoryFlat) {
  const std::size_t before = Cut::kept();
  for (std::int64_t i = 0; i < 1'000'000; ++i) Shard(0, {i, 3, 1});
  EXPECT_LE(Cut::kept(), before + 5000);
  const Placement kept = Shard(0, {5, 0, 1});
  for (std::int64_t i = 0; i < 20'000; ++i) Shard(0, {i, 4, 1});
  EXPECT_EQ(kept, Shard(0, {5, 0, 1}));
  EXPECT_EQ(kept.sizes(), (Sizes{5, 0, 1}));
}

TEST(CutTest, ThreadsThatMakeAndDropTheSameCutsReadTheRightSizes) {
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (std::int64_t i = 0; i < 30'000; ++i) {
        const Placement mine = Shard(0, {i % 9000, 7, 1});
        const Layout layout({mine});
        const Placement again = layout[0];
        if (again.sizes()[0] != i % 9000 || again != mine) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(CutTest, PartsAreDisjointAndCover) {
  const std::vector<int> mesh = {3, 2};
  for (const Shape& shape : std::vector<Shape>{{8, 5}, {1, 7}, {0, 2}}) {
    const RaggedLayouts all = ragged_layouts(shape, mesh, 3, {Replicate()});
    for (const Layout& layout : all.layouts) {
      PlanSimulator simulator(shape, mesh);
      std::vector<int> owners(static_cast<std::size_t>(tensors::numel(shape)), 0);
      int copies = 1;
      for (std::size_t a = 0; a < mesh.size(); ++a) copies *= layout.is_shard(a) ? 1 : mesh[a];
      for (int rank = 0; rank < 6; ++rank) {
        PlanSimulator::for_each_index(simulator.box_of(rank, layout),
                                      [&](const Shape& index) { ++owners[simulator.flat(index)]; });
      }
      EXPECT_TRUE(std::ranges::all_of(owners, [&](int n) { return n == copies; }))
          << layout.to_string();
    }
  }
}

TEST(CutTest, PicturesShowTheSizes) {
  const Placements held = {Shard(0, {3, 0, 5})};
  const std::string picture = sharding_text({{8, 4}, {3}, make_layout({8, 4}, {3}, held)});
  for (const char* text : {"S(0: 3,0,5)", "0:3", "3:8"})
    EXPECT_NE(picture.find(text), std::string::npos) << picture;
}

}  // namespace
}  // namespace dtrun::dtensor
