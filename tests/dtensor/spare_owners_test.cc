// Owners of a spec that a thread keeps for the next tensors of a repeated move.
#include "mesh/spare_owners.h"

#include <gtest/gtest.h>

#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "autograd/node.h"
#include "dtrun/dtensor/ops/creation.h"
#include "mesh/spec_table.h"
#include "support/rank_threads.h"

namespace dtrun::dtensor {
namespace {

using collectives::ProcessGroup;

TEST(SpareOwnersTest, ASpecThatIsTakenAgainHasAsManyOwnersAsHandlesAndSpares) {
  test::run_ranks(1, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {1});
    const Spec spec = make_spec(mesh, {Replicate()}, {3}, DType::f32);
    const auto owners = [&] { return spec.body()->owners(); };
    const std::uint32_t at_first = owners();
    {
      const Spec one = SpareOwners::take(spec);
      EXPECT_EQ(one.body(), spec.body());
      EXPECT_EQ(owners(), at_first + 1);
    }
    EXPECT_EQ(owners(), at_first + 1) << "a spare";
    {
      const Spec again = SpareOwners::take(spec), more = SpareOwners::take(spec);
      EXPECT_EQ(owners(), at_first + 2);
    }
    EXPECT_EQ(owners(), at_first + 2) << "two spares";
    SpareOwners::release(spec);
    EXPECT_EQ(owners(), at_first);
  });
}

TEST(SpareOwnersTest, AFewAreKeptAndOfOneSpec) {
  test::run_ranks(1, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {1});
    const Spec spec = make_spec(mesh, {Replicate()}, {3}, DType::f32);
    const Spec other = make_spec(mesh, {Replicate()}, {4}, DType::f32);
    const std::uint32_t at_first = spec.body()->owners();
    std::vector<Spec> many;
    for (int i = 0; i < 20; ++i) many.push_back(SpareOwners::take(spec));
    EXPECT_EQ(spec.body()->owners(), at_first + 20);
    many.clear();
    EXPECT_GT(spec.body()->owners(), at_first);
    EXPECT_LT(spec.body()->owners(), at_first + 20);
    { const Spec next = SpareOwners::take(other); }
    EXPECT_EQ(spec.body()->owners(), at_first);
    SpareOwners::release(other);
  });
}

TEST(SpareOwnersTest, AThreadThatEndsLetsThemGo) {
  test::run_ranks(1, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {1});
    const Spec spec = make_spec(mesh, {Replicate()}, {3}, DType::f32);
    const std::uint32_t at_first = spec.body()->owners();
    std::thread([&] {
      { const Spec one = SpareOwners::take(spec); }
      EXPECT_EQ(spec.body()->owners(), at_first + 1);
    }).join();
    EXPECT_EQ(spec.body()->owners(), at_first);
  });
}

TEST(SpareOwnersTest, NoSpareOutlivesTheTensorWhoseMoveIsRepeated) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    std::optional<Spec> arrived;
    {
      const Tensor x = ones({4, 3}, mesh, {Shard(0)});
      for (int i = 0; i < 6; ++i) {
        const Tensor y = x.redistribute({Replicate()});
        if (!arrived) arrived = y.spec();
      }
      const Placements whole = {Replicate()};
      EXPECT_NE(Graph::repeated_move(x, whole), nullptr);
      EXPECT_GT(arrived->body()->owners(), 1U);
    }
    EXPECT_EQ(arrived->body()->owners(), 1U);
  });
}

}  // namespace
}  // namespace dtrun::dtensor
