// Every operator, with its operands cut raggedly, against the result of one rank; and its gradient.
#include <gtest/gtest.h>

#include <cstdio>
#include <mutex>

#include "dtensor/operator_results.h"
#include "dtrun/base/error.h"
#include "support/one_in.h"

namespace dtrun::dtensor {
namespace {

using collectives::ProcessGroup;
using Sizes = std::vector<std::int64_t>;

/// Nothing on the first rank, most on the second.
Sizes uneven_sizes(std::int64_t n, int ranks) {
  Sizes sizes(static_cast<std::size_t>(ranks), 0);
  sizes[1] = n;
  for (std::size_t i = 2; i < sizes.size() && sizes[1] > 1; ++i) {
    --sizes[1];
    ++sizes[i];
  }
  return sizes;
}

/// Along one axis of as many ranks, what the samples' operands are: each one by itself cut along
/// each of its dims, and all that have a dim cut along it.
std::vector<Placements> ragged_cases(const Tensors& inputs, int ranks) {
  std::vector<Placements> cases;
  std::size_t most = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Shape shape = inputs[i].shape();
    most = std::max(most, shape.size());
    for (std::size_t dim = 0; dim < shape.size(); ++dim) {
      Placements one(inputs.size(), Replicate());
      one[i] = Shard(static_cast<int>(dim), uneven_sizes(shape[dim], ranks));
      cases.push_back(one);
    }
  }
  for (std::size_t dim = 0; inputs.size() > 1 && dim < most; ++dim) {
    Placements all(inputs.size(), Replicate());
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const Shape shape = inputs[i].shape();
      if (dim < shape.size())
        all[i] = Shard(static_cast<int>(dim), uneven_sizes(shape[dim], ranks));
    }
    cases.push_back(all);
  }
  return cases;
}

/// The second axis cuts each operand raggedly, the first one evenly along its first dim, or not at
/// all where it has none.
Tensors on_grid(const Tensors& inputs, const Placements& ragged, const DeviceMesh& grid) {
  Tensors placed;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Placement rows = inputs[i].dim() > 0 ? Shard(0) : Replicate();
    const bool is_inside = rows.is_shard() && ragged[i].is_shard(0);
    placed.push_back(distribute_tensor(
        inputs[i], grid, {rows, ragged[i]},
        {.source_rank = -1, .shard_order = is_inside ? ShardOrder{{0, {1, 0}}} : ShardOrder{}}));
  }
  return placed;
}

Tensors on_line(const Tensors& inputs, const Placements& ragged, const DeviceMesh& line) {
  Tensors placed;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    placed.push_back(distribute_tensor(inputs[i], line, {ragged[i]}, {.source_rank = -1}));
  return placed;
}

/// @return how many calls were looked at
std::size_t expect_all_right(
    const std::vector<int>& mesh_shape, std::int64_t rows, std::int64_t columns,
    const std::function<Tensors(const Tensors&, const Placements&, const DeviceMesh&)>& place) {
  const int ranks = mesh_shape.back();
  const std::vector<OperatorSample> samples = operator_samples(rows, columns);
  constexpr std::size_t one_in = testing_support::one_in(8);
  std::mutex mutex;
  std::size_t checked = 0;
  test::run_ranks(
      ranks * (mesh_shape.size() > 1 ? mesh_shape[0] : 1), [&](const ProcessGroup& group) {
        const DeviceMesh mesh(group, mesh_shape);
        // Under a sanitizer each mesh and size has others.
        const std::size_t first =
            static_cast<std::size_t>(group.size() + rows + 2 * columns) % one_in;
        for (std::size_t i = first; i < samples.size(); i += one_in) {
          const OperatorSample& sample = samples[i];
          const Tensors right = results_of(sample, sample.inputs);
          for (const Placements& ragged : ragged_cases(sample.inputs, ranks)) {
            std::string wrong;
            try {
              const Tensors inputs = place(sample.inputs, ragged, mesh);
              wrong = first_difference(results_of(sample, inputs), right);
            } catch (const base::Error& error) {
              wrong = error.what();
            }
            const std::lock_guard lock(mutex);
            ++checked;
            EXPECT_EQ(wrong, "") << sample.name << " of " << placements_to_string(ragged)
                                 << " on rank " << group.rank() << " of " << mesh.to_string()
                                 << ", " << rows << " x " << columns;
          }
        }
      });
  return checked;
}

TEST(RaggedOperatorsTest, EveryOperatorOfRaggedOperandsIsThatOfOneRank) {
  std::size_t checked = 0;
  for (const int ranks : {2, 3}) {
    for (const auto& [rows, columns] : {std::pair{6, 4}, {5, 3}, {4, 4}})
      checked += expect_all_right({ranks}, rows, columns, on_line);
  }
  std::printf("%zu calls\n", checked);
  EXPECT_GT(checked, 5000U / testing_support::one_in(8));
}

TEST(RaggedOperatorsTest, EveryOperatorIsRightWhereAnotherAxisCutsEvenly) {
  const std::size_t checked = expect_all_right({2, 3}, 5, 4, on_grid);
  std::printf("%zu calls\n", checked);
  EXPECT_GT(checked, 2000U / testing_support::one_in(8));
}

}  // namespace
}  // namespace dtrun::dtensor
