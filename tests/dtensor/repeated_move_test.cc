// Tensors that are redistributed again and again: what they remember, and that nothing else differs
// from the first time.
#include "move/repeated_move.h"

#include <gtest/gtest.h>

#include <vector>

#include "dtensor/plan_simulator.h"
#include "dtensor/vector_tensor.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/explain.h"
#include "support/rank_threads.h"

namespace dtrun::dtensor {
namespace {

using collectives::ProcessGroup;
using tensors::DType;
using tensors::Shape;

/// Whose axes have no groups before these are used.
DeviceMesh two_by_two_without_groups(const ProcessGroup& group) {
  return DeviceMesh(group, {4}, {"world"}).unflatten("world", {2, 2}, {"node", "gpu"});
}

std::vector<double> values_of(const Shape& shape) {
  return arange(tensors::numel(shape), {.dtype = DType::f64}).to_vector();
}

/// Of values_of(shape), made without communication.
Tensor tensor_on(const DeviceMesh& mesh, const Shape& shape, const Placements& placements) {
  const Spec spec = make_spec(mesh, placements, shape, DType::f64);
  PlanSimulator simulator(shape, mesh.shape());
  simulator.fill(values_of(shape), spec.layout());
  const std::vector<double> local = simulator.local_of(mesh.rank());
  return Tensor(spec, tensors::tensor_from(local, spec.local_box().shape, DType::f64));
}

void expect_values(const Tensor& tensor, const Shape& shape) {
  const LocalTensor whole = tensors::tensor_from(values_of(shape), shape, DType::f64);
  EXPECT_EQ(difference(tensor.to_local(), cut(whole, tensor.spec().local_box()), {0, 0}), "");
}

TEST(RepeatedMoveTest, OneRankAloneExplainsMovesOnAMeshWhoseGroupsAreNotMade) {
  test::run_ranks(4, {.timeout = std::chrono::seconds(10)}, [](const ProcessGroup& group) {
    const DeviceMesh mesh = two_by_two_without_groups(group);
    const Tensor x = tensor_on(mesh, {4, 4}, {Shard(0), Replicate()});
    const Placements whole = {Replicate(), Replicate()};
    if (group.rank() == 0) {
      const CallsExplanation told = explain([&] {
        for (int time = 0; time < 3; ++time) x.redistribute(whole);
      });
      EXPECT_EQ(told.collectives(), 3);
    }
    for (int time = 0; time < 3; ++time) expect_values(x.redistribute(whole), {4, 4});
  });
}

TEST(RepeatedMoveTest, AMoveThatOneRankHasExplainedIsRunByAllAlike) {
  test::run_ranks(4, {.timeout = std::chrono::seconds(10)}, [](const ProcessGroup& group) {
    const DeviceMesh mesh = two_by_two_without_groups(group);
    const Tensor x = tensor_on(mesh, {4, 4}, {Shard(0), Shard(1)});
    const auto move = [&] { return x.redistribute({Shard(1), Shard(0)}); };
    if (group.rank() == 0) explain([&] { move(); });
    for (int time = 0; time < 3; ++time) expect_values(move(), {4, 4});
  });
}

}  // namespace
}  // namespace dtrun::dtensor
