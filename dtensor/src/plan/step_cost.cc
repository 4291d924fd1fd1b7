#include "plan/step_cost.h"

#include <algorithm>
#include <array>

namespace dtrun::dtensor {
namespace {

constexpr double kCopyBytesPerSecond = 1e10;

PlanCost collective(double elements, std::int64_t item_bytes, const LinkRate& link) {
  return {link.latency + elements * static_cast<double>(item_bytes) / link.bytes_per_second, 1};
}

}  // namespace

tensors::Shape fullest_shape(const tensors::Shape& global_shape, const std::vector<int>& mesh_shape,
                             const Layout& layout) {
  tensors::Shape shape = global_shape;
  for (std::size_t dim = 0; dim < global_shape.size(); ++dim) {
    std::int64_t cuts = 1;
    for (std::size_t axis = 0; axis < layout.axes(); ++axis) {
      if (!layout.is_shard(axis) || layout.dim(axis) != static_cast<int>(dim)) continue;
      if (layout.is_ragged(axis))
        shape[dim] = layout.cut(axis).largest();
      else
        cuts *= mesh_shape[axis];
    }
    shape[dim] = (shape[dim] + cuts - 1) / cuts;
  }
  return shape;
}

// A chunk of a chunk, each rounded up, is as long as one chunk of as many parts as both together.
// Without branches, which nobody could foretell: a search asks thousands of times.
double fullest_elements(const tensors::Shape& global_shape, const std::vector<int>& mesh_shape,
                        const Layout& layout) {
  if (layout.is_ragged())
    return static_cast<double>(tensors::numel(fullest_shape(global_shape, mesh_shape, layout)));
  std::array<std::int64_t, Layout::kMaxAxes> parts;
  for (std::size_t axis = 0; axis < layout.axes(); ++axis) {
    parts[axis] = layout.is_shard(axis) ? mesh_shape[axis] : 1;
  }
  double product = 1;
  for (std::size_t dim = 0; dim < global_shape.size(); ++dim) {
    std::int64_t cuts = 1;
    for (std::size_t axis = 0; axis < layout.axes(); ++axis) {
      cuts *= layout.dim(axis) == static_cast<int>(dim) ? parts[axis] : 1;
    }
    product *= static_cast<double>((global_shape[dim] + cuts - 1) / cuts);
  }
  return product;
}

PlanCost step_cost(StepKind kind, int axis_size, double before, double after,
                   std::int64_t item_bytes, const LinkRate& link) {
  const double others = static_cast<double>(axis_size - 1) / axis_size;
  switch (kind) {
    // Where a dim has fewer elements than ranks, the first ones have all and the others get it, or
    // the other way round: the busiest rank is one that receives.
    case StepKind::all_gather:
      return collective(after * others, item_bytes, link);
    case StepKind::all_to_all:
      return collective(std::max(before, after) * others, item_bytes, link);
    case StepKind::reduce_scatter:
      return collective(std::max(before * others, after * (axis_size - 1)), item_bytes, link);
    case StepKind::all_reduce:
      return collective(2 * before * others, item_bytes, link);
    case StepKind::local_chunk:
    case StepKind::to_partial:
      return {kLocalStep + after * static_cast<double>(item_bytes) / kCopyBytesPerSecond, 0};
    case StepKind::exchange:
    case StepKind::relabel:
      break;
  }
  return {kLocalStep, 0};
}

}  // namespace dtrun::dtensor
