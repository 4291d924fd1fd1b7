// planned_mesh(): what operators would do on ranks that do not exist.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "dtrun/base/error.h"
#include "dtrun/dtensor/mesh/planned_mesh.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/explain.h"
#include "dtrun/dtensor/ops/rows.h"
#include "dtrun/tensor/shapes_only.h"
#include "support/rank_threads.h"
#include "support/thrown_error.h"

namespace dtrun::dtensor {
namespace {

using collectives::ProcessGroup;
using testing_support::contains;

/// A small model's calls.
CallsExplanation explain_on(const DeviceMesh& mesh) {
  const Tensor x = zeros({12, 8}, mesh, {Shard(0), Replicate()});
  const Tensor first = zeros({8, 16}, mesh, {Replicate(), Shard(1)});
  const Tensor second = zeros({16, 8}, mesh, {Replicate(), Shard(0)});
  return explain([&] {
    const Tensor y = softmax(matmul(matmul(x, first), second), -1);
    y.redistribute({Replicate(), Shard(0)}).sum();
  });
}

TEST(PlannedMeshTest, TellsWhatAMeshOfRanksTells) {
  std::string told[4];
  test::run_ranks(4, [&](const ProcessGroup& group) {
    told[group.rank()] = explain_on(DeviceMesh(group, {2, 2}, {"dp", "tp"})).to_json();
  });
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_EQ(explain_on(planned_mesh({2, 2}, {"dp", "tp"}, rank)).to_json(), told[rank]);
}

TEST(PlannedMeshTest, OfThousandsOfRanksIsAModelToldAtOnce) {
  const DeviceMesh mesh = planned_mesh({64, 64}, {"dp", "tp"}, 4095);
  EXPECT_EQ(mesh.size(), 4096);
  EXPECT_EQ(mesh.coordinate(), (std::vector<int>{63, 63}));
  const tensors::ShapesOnly without_numbers;
  const Tensor x = zeros({1 << 16, 8192}, mesh, {Shard(0), Replicate()});
  const Tensor weight = zeros({8192, 8192}, mesh, {Replicate(), Shard(0)});
  const CallsExplanation told = explain([&] { matmul(x, weight); });
  ASSERT_EQ(told.calls.size(), 1U);
  EXPECT_TRUE(contains(told.calls[0].output, "on (64, 64): [S(0), S(1)]")) << told.to_string();
  // The weight's rows become columns along tp.
  EXPECT_EQ(told.collectives(), 1);
  EXPECT_EQ(told.bytes_sent(), std::int64_t{8192} * 8192 / 64 * 63 / 64 * 4);
}

TEST(PlannedMeshTest, DoesNotCommunicate) {
  const DeviceMesh mesh = planned_mesh({2, 2}, {"dp", "tp"});
  const Tensor x = zeros({4}, mesh, {Shard(0), Replicate()});
  EXPECT_EQ(x.add(x).local().shape(), (Shape{2}));
  const Tensor on_slice = zeros({4}, mesh["tp"], {Shard(0)});
  EXPECT_EQ(mesh.group("dp").size(), 2);
  for (const Tensor& cut : {x, on_slice})
    EXPECT_TRUE(testing_support::error_of([&] { cut.sum().item(); }).has_value());
  const auto refusal = testing_support::error_of([&] { x.full_tensor(); });
  ASSERT_TRUE(refusal.has_value());
  EXPECT_EQ(refusal->code(), base::ErrorCode::kUsage);
  EXPECT_TRUE(contains(refusal->what(), "ranks that do not exist")) << refusal->what();
}

TEST(PlannedMeshTest, IsNoOtherMesh) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh real(group, {2}), planned = planned_mesh({2});
    EXPECT_FALSE(real == planned);
    EXPECT_FALSE(planned == planned_mesh({2}, {}, 1));
    EXPECT_TRUE(planned == DeviceMesh(planned));
    const Tensor x = zeros({4}, real, {Shard(0)}), y = zeros({4}, planned, {Shard(0)});
    for (const auto& mixed : {std::function<void()>([&] { x.add(y); }), std::function<void()>([&] {
                                x.redistribute(planned, {Replicate()});
                              }),
                              std::function<void()>([&] {
                                y.redistribute(planned_mesh({2}, {}, 1), {Replicate()});
                              })}) {
      const auto error = testing_support::error_of(mixed);
      ASSERT_TRUE(error.has_value());
      EXPECT_EQ(error->code(), base::ErrorCode::kInvalidArgument) << error->what();
    }
  });
}

TEST(PlannedMeshTest, AMeshThatCannotBeIsRefused) {
  const auto refuses = [](auto... arguments) {
    const auto error = testing_support::error_of([&] { planned_mesh(arguments...); });
    return error.has_value() && error->code() == base::ErrorCode::kInvalidArgument;
  };
  using MeshSizes = std::vector<int>;
  using AxisNames = std::vector<std::string>;
  EXPECT_TRUE(refuses(MeshSizes{}));
  EXPECT_TRUE(refuses(MeshSizes{2, 0}));
  EXPECT_TRUE(refuses(MeshSizes{1 << 13, 1 << 12}));
  EXPECT_TRUE(refuses(MeshSizes(9, 1)));
  EXPECT_TRUE(refuses(MeshSizes{2, 2}, AxisNames{"dp"}));
  EXPECT_TRUE(refuses(MeshSizes{2}, AxisNames{}, 2));
  EXPECT_TRUE(refuses(MeshSizes{2}, AxisNames{}, -1));
}

}  // namespace
}  // namespace dtrun::dtensor
