// A program may make tensors of ever new shapes. What a mesh remembers of them, specs, plans and
// the choices of operators, must not grow with their number.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "dtrun/dtensor/mesh/spec.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "support/heap_bytes.h"
#include "support/one_in.h"
#include "support/rank_threads.h"

namespace dtrun::dtensor {
namespace {

using collectives::ProcessGroup;
using tensors::DType;
using tensors::Shape;

/// While no rank's thread does anything else.
std::int64_t heap_bytes_between_calls(const ProcessGroup& ranks) {
  ranks.barrier();
  const std::int64_t bytes = testing_support::heap_bytes();
  ranks.barrier();
  return bytes;
}

/// Calls it for as many shapes as there are, each another one. Tables fill and are cleared.
/// @return bytes that the heap has more at the most than at the most in the first tenth of them
template <typename Use>
std::int64_t growth_over(const ProcessGroup& ranks, std::int64_t shapes, Use use) {
  std::int64_t first = 0, later = 0;
  for (std::int64_t i = 0; i < shapes; ++i) {
    use(Shape{1 + i % 1000, 1 + i / 1000});
    if (i % 250 != 0) continue;
    std::int64_t& most = i < shapes / 10 ? first : later;
    most = std::max(most, heap_bytes_between_calls(ranks));
  }
  return later - first;
}

constexpr std::int64_t kMillion = 1'000'000 / testing_support::one_in(50);
/// Ten bytes a shape would be more.
constexpr std::int64_t kRoom = std::int64_t{1} << 20;

TEST(SpecMemoryTest, AMillionShapesLeaveItAsItIsAndWhatIsInUseStays) {
  test::run_ranks(1, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {1, 1});
    const Layout layout = make_layout({8, 8}, mesh.shape(), {Shard(1), Shard(0)});
    std::vector<Spec> held;
    for (int i = 0; i < 300; ++i)
      held.push_back(make_spec(mesh, layout, {5000 + i, 3}, DType::f32));
    const std::int64_t growth = growth_over(group, kMillion, [&](const Shape& shape) {
      const Spec one = make_spec(mesh, {Shard(0), Replicate()}, shape, DType::f32);
      const Spec other = make_spec(mesh, layout, shape, DType::bf16);
      // Interned: an equal one that is asked for meanwhile is the same.
      ASSERT_EQ(make_spec(mesh, layout, shape, DType::bf16).body(), other.body());
      ASSERT_NE(one.body(), other.body());
    });
    EXPECT_LT(growth, kRoom);
    for (int i = 0; i < 300; ++i) {
      const Spec again = make_spec(mesh, layout, {5000 + i, 3}, DType::f32);
      EXPECT_EQ(again.body(), held[static_cast<std::size_t>(i)].body());
      EXPECT_EQ(again.shape(), (Shape{5000 + i, 3}));
    }
  });
}

TEST(SpecMemoryTest, OperatorsAndMovesOfEverNewShapesLeaveItAsItIs) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    // Without elements, whose memory a thread keeps for its next tensors.
    const std::int64_t growth = growth_over(group, kMillion / 10, [&](const Shape& shape) {
      const Tensor x = zeros({shape[0], shape[1], 0}, mesh, {Shard(0)});
      const Tensor y = (x + x).redistribute({Replicate()});
      ASSERT_EQ(y.shape(), (Shape{shape[0], shape[1], 0}));
    });
    EXPECT_LT(growth, kRoom);
  });
}

}  // namespace
}  // namespace dtrun::dtensor
