// Rows of which ranks hold stretches: a few numbers of each row travel, not the rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "dtensor/carried_bytes.h"
#include "dtensor/gradient_check.h"
#include "dtrun/dtensor/move/comm_counter.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/index.h"
#include "dtrun/dtensor/ops/reduction.h"
#include "dtrun/dtensor/ops/rows.h"

namespace dtrun::dtensor {
namespace {

constexpr std::int64_t kRows = 4;

/// A mesh on which dim 1 of f64[4, columns] is cut.
struct CutMesh {
  std::vector<int> shape;
  std::int64_t columns;
  Placements placements;
  ShardOrder order = {};

  int ranks() const { return shape.size() == 1 ? shape[0] : shape[0] * shape[1]; }
  std::int64_t cutting_axes() const { return std::ranges::count(placements, Placement(Shard(1))); }
  std::string text() const {
    return std::to_string(columns) + " columns on " + std::to_string(shape.size()) + " axes, " +
           Layout(placements).to_string();
  }
};
/// Even and uneven parts, one axis and both, in either order; and rows that are cut, too.
const std::vector<CutMesh> kCutMeshes = {{{3}, 6000, {Shard(1)}},
                                         {{3}, 6001, {Shard(1)}},
                                         {{2, 2}, 6000, {Replicate(), Shard(1)}},
                                         {{2, 2}, 6001, {Shard(1), Shard(0)}},
                                         {{2, 2}, 6003, {Shard(1), Shard(1)}},
                                         {{2, 2}, 6003, {Shard(1), Shard(1)}, {{1, {1, 0}}}}};

/// The rows on a mesh, wanting a gradient.
Tensor rows_on(const DeviceMesh& mesh, const CutMesh& cut, const Tensor& whole) {
  return distribute_tensor(whole, mesh, cut.placements,
                           {.source_rank = -1, .shard_order = cut.order})
      .requires_grad_();
}

/// What a call sends at the most: so many numbers of 8 bytes of each row to each other rank, in so
/// many collectives for each axis that cuts the rows.
struct Most {
  std::int64_t numbers, collectives;
};

/// The call communicates no more, and transports carry no more for this rank.
Tensor expect_sends_at_most(const Most& most, const CutMesh& cut, const DeviceMesh& mesh,
                            const std::function<Tensor()>& call) {
  const std::int64_t before = bytes_carried(mesh);
  const CommCounter counter;
  const Tensor result = call();
  const std::int64_t bytes = bytes_carried(mesh) - before;
  EXPECT_LE(bytes, most.numbers * 8 * kRows * (cut.ranks() - 1)) << counter;
  EXPECT_LE(counter.get_total_counts(), most.collectives * cut.cutting_axes()) << counter;
  return result;
}

void expect_sends_at_most_back(const Most& most, const CutMesh& cut, const DeviceMesh& mesh,
                               const Tensor& result) {
  const Tensor loss = weighed(result);
  expect_sends_at_most(most, cut, mesh, [&] {
    loss.backward();
    return loss;
  });
}

TEST(CutRowsTest, OfALongRowTheLargestOfEachPartAreCandidates) {
  for (const CutMesh& cut : kCutMeshes) {
    SCOPED_TRACE(cut.text());
    const Tensor whole = randn({kRows, cut.columns}, {1}, kDoubles);
    test::run_ranks(cut.ranks(), [&](const ProcessGroup& group) {
      const DeviceMesh mesh(group, cut.shape);
      for (const SortOrder order : {SortOrder::descending, SortOrder::ascending}) {
        const auto five = [order](const Tensor& x) { return topk(x, 5, 1, order); };
        const auto values = [&](const Tensor& x) { return five(x).values; };
        const Tensor x = rows_on(mesh, cut, whole);
        Sorted found;
        // Values and positions.
        expect_sends_at_most({10, 2}, cut, mesh, [&] { return (found = five(x)).values; });
        expect_sends_at_most_back({0, 0}, cut, mesh, found.values);
        EXPECT_TRUE(equal(found.indices.full_tensor(), five(whole).indices));
        EXPECT_TRUE(equal(found.values.full_tensor(), values(whole)));
        EXPECT_TRUE(equal(x.grad().full_tensor(), gradient_of(values, whole)));
      }
    });
  }
}

/// An operator along dim 1.
struct RowOperator {
  const char* name;
  Function function;
  Most forward, backward;
};

Tensor losses_of_classes(const Tensor& scores) {
  const Tensor classes = tensor({17, 5999, 0, 3000});
  const LossOptions each{.reduction = Reduction::none};
  if (!scores.is_distributed()) return cross_entropy(scores, classes, each);
  const Placements whole(scores.placements().size(), Replicate());
  return cross_entropy(
      scores, distribute_tensor(classes, scores.device_mesh(), whole, {.source_rank = -1}), each);
}

const std::vector<RowOperator> kRowOperators = {
    {"softmax", [](const Tensor& x) { return softmax(x, 1); }, {2, 1}, {1, 1}},
    {"log_softmax", [](const Tensor& x) { return log_softmax(x, 1); }, {2, 1}, {1, 1}},
    {"var", [](const Tensor& x) { return var(x, {1}); }, {3, 1}, {0, 0}},
    {"std", [](const Tensor& x) { return stddev(x, {1}); }, {3, 1}, {0, 0}},
    {"norm", [](const Tensor& x) { return norm(x, 2, {1}); }, {1, 1}, {0, 0}},
    {"norm of power 3", [](const Tensor& x) { return norm(x, 3, {1}); }, {1, 1}, {0, 0}},
    {"logsumexp", [](const Tensor& x) { return logsumexp(x, {1}); }, {1, 1}, {0, 0}},
    {"max", [](const Tensor& x) { return max(x, 1).values; }, {2, 2}, {0, 0}},
    // Its maxima are left as they are, one term of each rank; who has the greatest is asked later.
    {"amax", [](const Tensor& x) { return amax(x, {1}); }, {0, 0}, {2, 2}},
    {"cross_entropy", losses_of_classes, {1, 1}, {0, 0}}};

TEST(CutRowsTest, OfEachRowAFewNumbersTravel) {
  for (const CutMesh& cut : kCutMeshes) {
    SCOPED_TRACE(cut.text());
    const Tensor whole = randn({kRows, cut.columns}, {1}, kDoubles);
    test::run_ranks(cut.ranks(), [&](const ProcessGroup& group) {
      const DeviceMesh mesh(group, cut.shape);
      for (const RowOperator& op : kRowOperators) {
        SCOPED_TRACE(op.name);
        const Tensor x = rows_on(mesh, cut, whole);
        const Tensor y =
            expect_sends_at_most(op.forward, cut, mesh, [&] { return op.function(x); });
        expect_sends_at_most_back(op.backward, cut, mesh, y);
        EXPECT_EQ(x.grad().placements(), cut.placements);
        EXPECT_EQ(difference(y.full_tensor(), op.function(whole), {1e-12, 1e-12}), "");
        EXPECT_EQ(
            difference(x.grad().full_tensor(), gradient_of(op.function, whole), {1e-12, 1e-12}),
            "");
      }
      const Tensor x = rows_on(mesh, cut, whole);
      const Tensor at = expect_sends_at_most({2, 2}, cut, mesh, [&] { return argmax(x, 1); });
      EXPECT_TRUE(equal(at.full_tensor(), argmax(whole, 1)));
      EXPECT_TRUE(equal(max(x, 1).indices.full_tensor(), max(whole, 1).indices));
    });
  }
}

}  // namespace
}  // namespace dtrun::dtensor
