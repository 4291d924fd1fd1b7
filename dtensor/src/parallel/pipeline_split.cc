#include "parallel/pipeline_split.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "dtrun/base/error.h"

namespace dtrun::dtensor {
namespace {

using base::Error;
using base::ErrorCode;

/// The heaviest stage, then the sum over stages of the squared number of children.
using Cost = std::pair<std::int64_t, std::int64_t>;

}  // namespace

std::vector<std::int64_t> child_weights(const nn::SequentialModule& model) {
  std::vector<std::int64_t> weights;
  for (const auto& [name, child] : model.named_children()) {
    std::int64_t elements = 0;
    for (const Tensor& parameter : child->parameters()) elements += parameter.numel();
    weights.push_back(elements);
  }
  return weights;
}

std::vector<std::int64_t> balanced_cuts(const std::vector<std::int64_t>& weights, int stages) {
  const std::size_t children = weights.size(), parts = static_cast<std::size_t>(stages);
  if (children < parts) {
    throw Error(ErrorCode::kInvalidArgument,
                "a pipeline of " + std::to_string(stages) + " stages of a model of " +
                    std::to_string(children) + " children",
                "each stage has at least one", "fewer stages, or a Sequential of smaller parts");
  }
  constexpr Cost kNone{std::numeric_limits<std::int64_t>::max(), 0};
  // best[s][n]: of the first n children in s stages; from[s][n]: where the last of them begins.
  std::vector<std::vector<Cost>> best(parts + 1, std::vector<Cost>(children + 1, kNone));
  std::vector<std::vector<std::size_t>> from(parts + 1, std::vector<std::size_t>(children + 1));
  best[0][0] = {0, 0};
  for (std::size_t stage = 1; stage <= parts; ++stage) {
    for (std::size_t end = stage; end <= children; ++end) {
      std::int64_t weight = 0;
      for (std::size_t begin = end; begin-- > stage - 1;) {
        weight += weights[begin];
        const Cost& before = best[stage - 1][begin];
        if (before == kNone) continue;
        const auto count = static_cast<std::int64_t>(end - begin);
        const Cost cost{std::max(before.first, weight), before.second + count * count};
        if (cost < best[stage][end]) {
          best[stage][end] = cost;
          from[stage][end] = begin;
        }
      }
    }
  }
  std::vector<std::int64_t> cuts;
  std::size_t end = children;
  for (std::size_t stage = parts; stage > 1; --stage) {
    end = from[stage][end];
    cuts.insert(cuts.begin(), static_cast<std::int64_t>(end));
  }
  return cuts;
}

std::vector<std::shared_ptr<nn::SequentialModule>> stages_of(const nn::SequentialModule& model,
                                                             const std::vector<std::int64_t>& cuts,
                                                             int stages) {
  const auto& children = model.named_children();
  const auto count = static_cast<std::int64_t>(children.size());
  bool fits = static_cast<int>(cuts.size()) == stages - 1;
  for (std::size_t i = 0; i < cuts.size(); ++i)
    fits = fits && cuts[i] > (i == 0 ? 0 : cuts[i - 1]) && cuts[i] < count;
  if (!fits) {
    throw Error(
        ErrorCode::kInvalidArgument,
        "split_before " + tensors::shape_to_string(cuts) + " for " + std::to_string(stages) +
            " stages of a model of " + std::to_string(count) + " children",
        "", "rising numbers from 1 to " + std::to_string(count - 1) + ", one less than stages");
  }
  std::vector<std::shared_ptr<nn::SequentialModule>> parts;
  for (int stage = 0; stage < stages; ++stage) {
    const auto at = static_cast<std::size_t>(stage);
    const std::int64_t begin = stage == 0 ? 0 : cuts[at - 1];
    const std::int64_t end = stage + 1 == stages ? count : cuts[at];
    parts.push_back(std::make_shared<nn::SequentialModule>());
    for (std::int64_t i = begin; i < end; ++i) {
      const auto& [name, child] = children[static_cast<std::size_t>(i)];
      parts.back()->register_module(name, child);
    }
  }
  return parts;
}

}  // namespace dtrun::dtensor
