// Plans of saves and loads: each element once, spread by bytes, and the bytes that two boxes share.
#include "dtrun/dtensor/checkpoint/plan.h"

#include <gtest/gtest.h>

#include <map>

#include "dtensor/layout_catalogue.h"
#include "dtensor/refusal.h"

namespace dtrun::dtensor::dcp {
namespace {

using tensors::DType;
using tensors::Shape;

/// What each rank of a mesh has.
std::vector<std::vector<TensorPart>> parts_on(const std::string& name, const Shape& shape,
                                              const std::vector<int>& mesh, const Layout& layout,
                                              DType dtype = DType::f32) {
  std::vector<std::vector<TensorPart>> parts;
  std::vector<int> coordinate(mesh.size(), 0);
  for (bool is_over = false; !is_over;) {
    parts.push_back({{name, dtype, shape, local_box(shape, mesh, coordinate, layout), mesh,
                      layout.to_string()}});
    std::size_t axis = mesh.size();
    while (axis > 0 && ++coordinate[axis - 1] == mesh[axis - 1]) coordinate[--axis] = 0;
    is_over = axis == 0;
  }
  return parts;
}

bool is_within(const Box& inner, const Box& outer) {
  return intersection(inner, outer) == inner;
}

TEST(SavePlanTest, EveryElementOfEveryLayoutIsWrittenOnceByARankThatHasIt) {
  for (const std::vector<int>& mesh :
       std::vector<std::vector<int>>{{1}, {3}, {2, 2}, {2, 3}, {2, 2, 2}}) {
    for (const Shape& shape : std::vector<Shape>{{}, {1}, {5}, {0, 3}, {4, 5}, {2, 3, 2}}) {
      for (const Layout& layout : all_layouts(shape, mesh, {})) {
        const auto parts = parts_on("x", shape, mesh, layout);
        const SavePlan plan = plan_save(parts, 8);
        std::vector<Box> boxes;
        for (const PlannedChunk& chunk : plan.chunks) {
          boxes.push_back(chunk.box);
          EXPECT_TRUE(is_within(chunk.box, *parts[static_cast<std::size_t>(chunk.writer)][0].box));
        }
        EXPECT_EQ(tiling_fault(shape, boxes), "") << layout.to_string();
      }
    }
  }
}

TEST(SavePlanTest, ReplicasAreSpreadOverTheRanksByBytes) {
  std::vector<std::vector<TensorPart>> parts(4);
  for (auto& rank : parts) {
    for (int i = 0; i < 40; ++i) {
      const Shape shape{1 + i % 7, 1000};
      rank.push_back({"t" + std::to_string(i), DType::f32, shape, Box{{0, 0}, shape}});
    }
  }
  const SavePlan plan = plan_save(parts);
  std::map<int, std::uint64_t> bytes;
  std::uint64_t total = 0;
  for (const PlannedChunk& chunk : plan.chunks) {
    bytes[chunk.writer] += plan.bytes_of(chunk);
    total += plan.bytes_of(chunk);
  }
  ASSERT_EQ(bytes.size(), 4U);
  for (const auto& [rank, written] : bytes)
    EXPECT_NEAR(static_cast<double>(written), static_cast<double>(total) / 4, 7000) << rank;
}

TEST(SavePlanTest, OneLargeReplicaIsCutSoThatAllRanksWrite) {
  const Shape shape{1, 103, 64};
  std::vector<std::vector<TensorPart>> parts(4, {{"x", DType::f32, shape, Box{{0, 0, 0}, shape}}});
  const SavePlan plan = plan_save(parts, 1024);
  ASSERT_EQ(plan.chunks.size(), 4U);
  std::set<int> writers;
  for (const PlannedChunk& chunk : plan.chunks) {
    writers.insert(chunk.writer);
    EXPECT_LE(plan.bytes_of(chunk), 26U * 64 * 4);
  }
  EXPECT_EQ(writers.size(), 4U);
  EXPECT_EQ(plan_save(parts, 1 << 20).chunks.size(), 1U);
}

TEST(SavePlanTest, WhatIsNoWholeTensorIsRefused) {
  const auto part = [](Shape shape, Box box, DType dtype = DType::f32) {
    return TensorPart{"x", dtype, std::move(shape), std::move(box)};
  };
  expect_refused([&] { plan_save({{part({4}, {{0}, {2}})}, {}}); }, "lack 2 of its elements");
  expect_refused(
      [&] {
        plan_save({{part({4}, {{0}, {3}})}, {part({4}, {{2}, {2}})}});
      },
      "overlap: [0:3] and [2:4]");
  expect_refused(
      [&] {
        plan_save({{part({4}, {{0}, {4}})}, {part({5}, {{0}, {5}})}});
      },
      "f32[5] on rank 1 and f32[4]", base::ErrorCode::kDisagreement);
  expect_refused(
      [&] {
        plan_save({{part({4}, {{0}, {4}})}, {part({4}, {{0}, {4}}, DType::f64)}});
      },
      "f64[4] on rank 1", base::ErrorCode::kDisagreement);
}

TEST(SavePlanTest, FaultsOfATilingAreTold) {
  EXPECT_EQ(tiling_fault({}, {Box{{}, {}}}), "");
  EXPECT_NE(tiling_fault({}, {}), "");
  EXPECT_NE(tiling_fault({}, {Box{{}, {}}, Box{{}, {}}}).find("overlap"), std::string::npos);
  EXPECT_EQ(tiling_fault({0, 4}, {}), "");
  EXPECT_NE(tiling_fault({4}, {Box{{3}, {2}}}).find("outside"), std::string::npos);
  EXPECT_NE(tiling_fault({4}, {Box{{-1}, {2}}}).find("outside"), std::string::npos);
  EXPECT_NE(tiling_fault({4}, {Box{{4}, {0}}}).find("without elements"), std::string::npos);
  EXPECT_NE(tiling_fault({2, 2}, {Box{{0, 0}, {2, 1}}, Box{{0, 0}, {1, 2}}}).find("overlap"),
            std::string::npos);
  EXPECT_NE(tiling_fault({2, 2}, {Box{{0, 0}, {1, 2}}, Box{{1, 1}, {1, 1}}}).find("lack 1"),
            std::string::npos);
}

/// The bytes of a box of a tensor whose element at flat index i is the bytes of i.
std::vector<std::uint16_t> elements_of(const Shape& shape, const Box& box) {
  std::vector<std::uint16_t> elements;
  const tensors::Strides strides = tensors::contiguous_strides(shape);
  const std::int64_t count = tensors::numel(box.shape);
  const tensors::Strides own = tensors::contiguous_strides(box.shape);
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t at = 0;
    for (std::size_t dim = 0; dim < shape.size(); ++dim)
      at += (box.offsets[dim] + i / own[dim] % box.shape[dim]) * strides[dim];
    elements.push_back(static_cast<std::uint16_t>(at));
  }
  return elements;
}

TEST(ByteRunsTest, CarryWhatTwoBoxesShare) {
  const Shape shape{4, 3, 5};
  std::vector<Box> boxes;
  for (std::int64_t a : {0, 1, 3})
    for (std::int64_t b : {0, 1})
      for (std::int64_t c : {0, 2})
        for (const Shape& size : std::vector<Shape>{{1, 1, 1}, {1, 2, 3}, {4, 3, 5}, {2, 3, 3}}) {
          const Box box = intersection(Box{{a, b, c}, size}, Box{{0, 0, 0}, shape});
          boxes.push_back(box);
        }
  for (const Box& from : boxes) {
    const std::vector<std::uint16_t> source = elements_of(shape, from);
    for (const Box& to : boxes) {
      std::vector<std::uint16_t> target(static_cast<std::size_t>(tensors::numel(to.shape)), 0xffff);
      ByteRuns runs(from, to, 2);
      std::uint64_t last = 0, elements = 0;
      while (const auto run = runs.next()) {
        EXPECT_GE(run->from, last);
        last = run->from + run->bytes;
        elements += run->bytes / 2;
        ASSERT_LE(last, source.size() * 2);
        ASSERT_LE(run->to + run->bytes, target.size() * 2);
        std::memcpy(reinterpret_cast<char*>(target.data()) + run->to,
                    reinterpret_cast<const char*>(source.data()) + run->from, run->bytes);
      }
      const Box common = intersection(from, to);
      EXPECT_EQ(elements, static_cast<std::uint64_t>(tensors::numel(common.shape)));
      const std::vector<std::uint16_t> wanted = elements_of(shape, to);
      const std::vector<std::uint16_t> shared = elements_of(shape, common);
      for (std::size_t i = 0; i < target.size(); ++i) {
        const bool is_shared = std::ranges::find(shared, wanted[i]) != shared.end();
        EXPECT_EQ(target[i], is_shared ? wanted[i] : 0xffff);
      }
    }
  }
}

TEST(ByteRunsTest, ThoseWithinAPlaceAreTheRestOfThem) {
  const std::vector<Box> boxes = {{{0, 0, 0}, {4, 3, 5}},
                                  {{1, 0, 2}, {3, 2, 3}},
                                  {{0, 1, 0}, {2, 2, 5}},
                                  {{3, 2, 4}, {1, 1, 1}},
                                  {{1, 1, 1}, {2, 1, 3}}};
  const auto bytes_of = [](ByteRuns runs) {
    std::map<std::uint64_t, std::uint64_t> bytes;  // to where each goes
    while (const auto run = runs.next())
      for (std::uint64_t i = 0; i < run->bytes; ++i) bytes[run->from + i] = run->to + i;
    return bytes;
  };
  for (const Box& from : boxes) {
    for (const Box& to : boxes) {
      const ByteRuns runs(from, to, 2);
      const auto all = bytes_of(runs);
      const auto size = static_cast<std::uint64_t>(tensors::numel(from.shape)) * 2;
      for (std::uint64_t begin = 0; begin <= size; ++begin) {
        for (std::uint64_t end = begin; end <= size + 1; end += 3) {
          auto wanted = all;
          std::erase_if(wanted,
                        [&](const auto& one) { return one.first < begin || one.first >= end; });
          ASSERT_EQ(bytes_of(runs.within(begin, end)), wanted) << begin << " to " << end;
        }
      }
    }
  }
}

TEST(ByteRunsTest, WholeRowsAreOneRun) {
  ByteRuns whole({{0, 0}, {4, 6}}, {{0, 0}, {4, 6}}, 4);
  EXPECT_EQ(whole.next()->bytes, 96U);
  EXPECT_FALSE(whole.next().has_value());
  ByteRuns rows({{0, 0}, {4, 6}}, {{2, 0}, {2, 6}}, 4);
  EXPECT_EQ(rows.next()->bytes, 48U);
  EXPECT_FALSE(rows.next().has_value());
  ByteRuns number({{}, {}}, {{}, {}}, 8);
  EXPECT_EQ(number.next()->bytes, 8U);
  EXPECT_FALSE(number.next().has_value());
}

}  // namespace
}  // namespace dtrun::dtensor::dcp
