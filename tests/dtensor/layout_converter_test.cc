// ColossalAI's notation, distances, neighbours and paths, beside what follows from its definitions
// (tests/vectors/colossal.jsonl).
#include "dtrun/dtensor/plan/layout_converter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "dtensor/refusal.h"
#include "dtrun/dtensor/layout/box.h"
#include "dtrun/dtensor/layout/notation.h"
#include "support/vector_file.h"

namespace dtrun::dtensor {
namespace {

using test::VectorCase;

std::vector<VectorCase> cases_of(const std::string& op) {
  std::vector<VectorCase> cases;
  for (VectorCase& each : test::read_vector_file("colossal")) {
    if (test::text_of(each.at("op")) == op) cases.push_back(std::move(each));
  }
  return cases;
}

std::string compact(const ShardingSpec& spec) {
  std::string text = spec.to_string();
  std::erase(text, ' ');
  return text;
}

ShardingSpec spec_at(const VectorCase& each, const char* key) {
  return ShardingSpec::parse(test::text_of(each.at(key)));
}

tensors::Shape shape_of(const VectorCase& each) {
  tensors::Shape shape;
  for (const std::int64_t size : test::sizes_of(each.at("shape"))) shape.push_back(size);
  return shape;
}

TEST(LayoutConverterTest, EverySequenceIsReadAndGivesEachRankItsBox) {
  const std::vector<VectorCase> cases = cases_of("parse");
  test::expect_cases(cases.size(), 71);
  for (const VectorCase& each : cases) {
    const std::string text = test::text_of(each.at("text"));
    const std::vector<int> mesh = test::ints_of(each.at("mesh"));
    const tensors::Shape shape = shape_of(each);
    const ShardingSpec spec = ShardingSpec::parse(text);
    EXPECT_EQ(compact(spec), text);
    ShardingSpec::DimPartition partition;
    for (const auto& [dim, axes] : each.at("dim_partition").as_object()) {
      partition[std::stoi(std::string(dim))] = test::ints_of(axes);
    }
    EXPECT_EQ(spec.dim_partition_dict(), partition);
    EXPECT_EQ(ShardingSpec(static_cast<int>(shape.size()), partition), spec);
    const Layout layout = spec.layout(shape, mesh);
    EXPECT_EQ(ShardingSpec::of(layout, shape.size()), spec);
    Placements placements;
    for (const std::string& placement : test::texts_of(each.at("placements"))) {
      placements.push_back(Placement::parse(placement));
    }
    EXPECT_EQ(layout.placements(), placements) << text;
    const auto& ranks = each.at("ranks").as_object();
    for (int rank = 0; rank < mesh[0] * mesh[1]; ++rank) {
      const Box box = local_box(shape, mesh, {rank / mesh[1], rank % mesh[1]}, layout);
      const auto place = static_cast<std::size_t>(rank);
      const auto sizes = test::sizes_of(ranks.at("shapes").as_array()[place]);
      const auto offsets = test::sizes_of(ranks.at("offsets").as_array()[place]);
      EXPECT_TRUE(std::ranges::equal(box.shape, sizes)) << text << " of rank " << rank;
      EXPECT_TRUE(std::ranges::equal(box.offsets, offsets)) << text << " of rank " << rank;
    }
  }
}

TEST(LayoutConverterTest, EveryDistanceIsThatOfTheTable) {
  const std::vector<VectorCase> cases = cases_of("distance");
  test::expect_cases(cases.size(), 115);
  for (const VectorCase& each : cases) {
    EXPECT_EQ(spec_at(each, "from").spec_diff(spec_at(each, "to")),
              each.at("difference").to_number<int>())
        << test::text_of(each.at("id"));
  }
}

TEST(LayoutConverterTest, EveryNeighbourIsFound) {
  const std::vector<VectorCase> cases = cases_of("neighbours");
  test::expect_cases(cases.size(), 16);
  for (const VectorCase& each : cases) {
    std::map<StepKind, std::vector<std::string>> found;
    for (const ConversionStep& step : one_step_conversions(spec_at(each, "from"), 2)) {
      found[step.kind].push_back(compact(step.after));
    }
    const std::pair<StepKind, const char*> kinds[] = {{StepKind::all_gather, "all_gather"},
                                                      {StepKind::all_to_all, "all_to_all"},
                                                      {StepKind::local_chunk, "shard"}};
    for (const auto& [kind, key] : kinds) {
      std::ranges::sort(found[kind]);
      EXPECT_EQ(found[kind], test::texts_of(each.at(key))) << test::text_of(each.at("from"));
    }
  }
}

TEST(LayoutConverterTest, ThePathIsThatOfColossalAIWithItsCosts) {
  const std::vector<VectorCase> cases = cases_of("path");
  ASSERT_EQ(cases.size(), 1U);
  const LayoutConversion way =
      convert_layout(spec_at(cases[0], "from"), spec_at(cases[0], "to"), shape_of(cases[0]),
                     test::ints_of(cases[0].at("mesh")));
  EXPECT_EQ(way.path(), "[R, S01, R]->[R, S0, R]->[S0, R, R]->[S01, R, R]");
  ASSERT_EQ(way.steps.size(), 3U);
  EXPECT_EQ(way.steps[0].to_string(), "all_gather(gather_dim 1, axis 1)");
  EXPECT_EQ(way.steps[1].to_string(), "all_to_all(gather_dim 1, shard_dim 0, axis 0)");
  EXPECT_EQ(way.steps[2].to_string(), "local_chunk(shard_dim 0, axis 1)");
  EXPECT_GT(way.forward_seconds, 0);
  EXPECT_DOUBLE_EQ(way.forward_seconds, way.backward_seconds);
  EXPECT_NE(way.to_string().find("\n  forward "), std::string::npos);
}

TEST(LayoutConverterTest, WhatColossalAIRefusesIsRefused) {
  const std::vector<VectorCase> cases = cases_of("refuse");
  test::expect_cases(cases.size(), 14);
  for (const VectorCase& each : cases) {
    const std::string text = test::text_of(each.at("text"));
    const std::vector<int> mesh = test::ints_of(each.at("mesh"));
    const bool is_uneven = test::text_of(each.at("reason")) == "not_divisible";
    EXPECT_THROW(ShardingSpec::parse(text).require_even(shape_of(each), mesh), base::Error) << text;
    // dtrun's own layouts may be uneven, and its own reader of layouts refuses all else alike.
    if (is_uneven) {
      EXPECT_NO_THROW(parse_layout(text, shape_of(each), mesh)) << text;
    } else {
      EXPECT_THROW(parse_layout(text, shape_of(each), mesh), base::Error) << text;
    }
  }
}

// What ColossalAI's table has no entry for: meshes of three and four axes, and any order of axes.
TEST(LayoutConverterTest, MeshesOfThreeAndFourAxesHaveAWayBetweenAnyLayouts) {
  std::mt19937 random(7);
  const auto some_spec = [&](int dims, int axes) {
    std::vector<DimSpec> sequence(static_cast<std::size_t>(dims));
    std::vector<int> order(static_cast<std::size_t>(axes));
    for (int axis = 0; axis < axes; ++axis) order[static_cast<std::size_t>(axis)] = axis;
    std::shuffle(order.begin(), order.end(), random);
    for (const int axis : order) {
      const std::size_t dim = random() % (sequence.size() + 1);
      if (dim < sequence.size()) sequence[dim].shard_list.push_back(axis);
    }
    return ShardingSpec::from_sequence(sequence);
  };
  for (int round = 0; round < 2000; ++round) {
    const int axes = 3 + round % 2, dims = 1 + round % 4;
    const ShardingSpec from = some_spec(dims, axes), to = some_spec(dims, axes);
    const tensors::Shape shape(static_cast<std::size_t>(dims), 16);
    const std::vector<int> mesh(static_cast<std::size_t>(axes), 2);
    const LayoutConversion way = convert_layout(from, to, shape, mesh);
    const ShardingSpec& end = way.steps.empty() ? from : way.steps.back().after;
    EXPECT_EQ(end, to) << way.path();
    EXPECT_EQ(way.steps.empty(), from == to);
  }
  const ShardingSpec from = ShardingSpec::parse("[S210, R]"), to = ShardingSpec::parse("[R, S012]");
  EXPECT_EQ(from.spec_diff(to), 3 * 20 + 2 * 6 + 3 * 5 + 2 * 6);
}

TEST(ShardingSpecTest, NegativeDimsAreMergedAndNonsenseIsNamed) {
  EXPECT_EQ(ShardingSpec(2, {{-1, {1}}, {0, {0}}}).to_string(), "[S0, S1]");
  EXPECT_EQ(ShardingSpec(3).to_string(), "[R, R, R]");
  EXPECT_EQ(ShardingSpec::from_sequence({{{0, 1}}, {}}).to_string(), "[S01, R]");
  expect_refused([] { ShardingSpec(2, {{2, {0}}}); }, "sharding dimension mismatch: dim 2");
  expect_refused([] { ShardingSpec(2, {{0, {0}}, {1, {0}}}); }, "axis 0 cuts twice");
  expect_refused([] { ShardingSpec(2, {{0, {-1}}}); }, "no mesh axis -1");
  expect_refused([] { ShardingSpec(2, {{0, {0}}}).layout({4, 4, 4}, {2}); },
                 "sharding dimension mismatch: [S0, R]");
  expect_refused([] { ShardingSpec(2, {{0, {3}}}).layout({4, 4}, {2, 2}); }, "no axis 3");
  expect_refused([] { ShardingSpec(1).spec_diff(ShardingSpec(2)); }, "1 and 2 dims");
  expect_refused([] { ShardingSpec(1, {{0, {0}}}).require_even({5}, {2}); }, "5 elements");
}

}  // namespace
}  // namespace dtrun::dtensor
