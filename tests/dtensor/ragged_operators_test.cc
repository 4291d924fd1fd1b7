// Every operator, with its operands cut raggedly, against the result of one rank; and its gradient.
#include <gtest/gtest.h>

#include <cstdio>
#include <mutex>

#include "dtensor/gradient_check.h"
#include "dtensor/operator_samples.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/autograd/grad.h"

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

/// The result, then the gradients of what has one.
Tensors results_of(const OperatorSample& sample, const Tensors& inputs) {
  Tensors leaves, wanted;
  for (const Tensor& input : inputs) {
    const bool has_gradient = input.dtype() == DType::f64;
    leaves.push_back(has_gradient ? input.detach().clone().requires_grad_() : input);
    if (has_gradient) wanted.push_back(leaves.back());
  }
  const Tensor result = sample.run(leaves);
  Tensors all = {result};
  if (result.dtype() != DType::f64 || !result.requires_grad()) return all;
  for (const Tensor& gradient : grad({weighed(result)}, wanted)) {
    if (gradient.defined()) all.push_back(gradient);
  }
  return all;
}

std::string first_difference(const Tensors& found, const Tensors& right) {
  if (found.size() != right.size()) return "another number of gradients";
  for (std::size_t i = 0; i < right.size(); ++i) {
    const Tensor whole = found[i].is_distributed() ? found[i].full_tensor() : found[i];
    const std::string wrong = difference(whole.plain_local(), right[i].plain_local(), {1e-9, 1e-9});
    if (!wrong.empty()) return (i == 0 ? "result: " : "gradient: ") + wrong;
  }
  return "";
}

TEST(RaggedOperatorsTest, EveryOperatorOfRaggedOperandsIsThatOfOneRank) {
  std::mutex mutex;
  std::size_t checked = 0;
  for (const int ranks : {2, 3}) {
    for (const auto& [rows, columns] : {std::pair{6, 4}, {5, 3}}) {
      const std::vector<OperatorSample> samples = operator_samples(rows, columns);
      test::run_ranks(ranks, [&](const ProcessGroup& group) {
        const DeviceMesh mesh(group, {ranks});
        for (const OperatorSample& sample : samples) {
          const Tensors right = results_of(sample, sample.inputs);
          for (const Placements& placements : ragged_cases(sample.inputs, ranks)) {
            Tensors inputs;
            for (std::size_t i = 0; i < placements.size(); ++i) {
              inputs.push_back(
                  distribute_tensor(sample.inputs[i], mesh, {placements[i]}, {.source_rank = -1}));
            }
            std::string wrong;
            try {
              wrong = first_difference(results_of(sample, inputs), right);
            } catch (const base::Error& error) {
              wrong = error.what();
            }
            const std::lock_guard lock(mutex);
            ++checked;
            EXPECT_EQ(wrong, "") << sample.name << " of " << placements_to_string(placements)
                                 << " on rank " << group.rank() << " of " << ranks << ", " << rows
                                 << " x " << columns;
          }
        }
      });
    }
  }
  std::printf("%zu calls\n", checked);
  EXPECT_GT(checked, 1000U);
}

}  // namespace
}  // namespace dtrun::dtensor
