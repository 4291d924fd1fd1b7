#include "dtrun/dtensor/layout/layout.h"

#include <algorithm>
#include <optional>

#include "dtrun/base/check.h"
#include "dtrun/base/error.h"

namespace dtrun::dtensor {
namespace {

using base::Error;
using base::ErrorCode;
using tensors::Shape;

Error invalid(std::string what, std::string why, std::string remedy) {
  return Error(ErrorCode::kInvalidArgument, std::move(what), std::move(why), std::move(remedy));
}

bool is_linear(ReduceOp op) {
  return op == ReduceOp::sum || op == ReduceOp::avg;
}

std::string shape_text(const std::vector<int>& sizes) {
  std::string text = "(";
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(sizes[i]);
  }
  return text + (sizes.size() == 1 ? ",)" : ")");
}

std::string order_text(const ShardOrder& order) {
  std::string text = "{";
  for (const auto& [dim, axes] : order) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(dim) + ": [";
    for (std::size_t i = 0; i < axes.size(); ++i) {
      text += (i == 0 ? "" : ", ") + std::to_string(axes[i]);
    }
    text += "]";
  }
  return text + "}";
}

Placement normalized(const Placement& placement, const Shape& shape) {
  if (!placement.is_shard()) return placement;
  const int rank = static_cast<int>(shape.size());
  const int dim = placement.dim() < 0 ? placement.dim() + rank : placement.dim();
  if (rank == 0) {
    throw invalid("cannot shard a 0-dim tensor as " + placement.to_string(), "it has no dim to cut",
                  "use Replicate() or Partial()");
  }
  if (dim < 0 || dim >= rank) {
    throw invalid("cannot shard a tensor of shape " + tensors::shape_to_string(shape) + " as " +
                      placement.to_string(),
                  "its dims are " + std::to_string(-rank) + " to " + std::to_string(rank - 1), "");
  }
  return Shard(dim);
}

void check_partials(const Placements& placements) {
  std::optional<ReduceOp> first;
  for (const Placement& placement : placements) {
    if (!placement.is_partial()) continue;
    const ReduceOp op = placement.reduce_op();
    if (!first) first = op;
    if (op == *first || (is_linear(op) && is_linear(*first))) continue;
    throw invalid("cannot mix partial ops in " + placements_to_string(placements),
                  "the value would depend on which axis is reduced first",
                  "use one op on all axes; only sum and avg mix");
  }
}

/// The order given for one dim, or the default one where none is.
void check_order(const ShardOrder& given, const ShardOrder& axes_by_dim) {
  for (const auto& [dim, axes] : given) {
    const auto found = axes_by_dim.find(dim);
    std::vector<int> sorted = axes;
    std::ranges::sort(sorted);
    if (found != axes_by_dim.end() && sorted == found->second) continue;
    throw invalid("the shard order " + order_text(given) + " does not fit the placements",
                  "it must list, for a dim, just the axes that shard it: " +
                      order_text(axes_by_dim) + " in any order",
                  "");
  }
}

}  // namespace

Chunk chunk_of(std::int64_t n, int parts, int index) {
  DT_CHECK(n >= 0 && parts > 0 && index >= 0 && index < parts);
  const std::int64_t size = n / parts + (n % parts != 0 ? 1 : 0);
  if (size == 0 || index > n / size) return {n, 0};
  const std::int64_t start = index * size;
  return {start, std::min(size, n - start)};
}

ShardOrder default_shard_order(const Placements& placements) {
  ShardOrder order;
  for (std::size_t axis = 0; axis < placements.size(); ++axis) {
    if (placements[axis].is_shard()) {
      order[placements[axis].dim()].push_back(static_cast<int>(axis));
    }
  }
  return order;
}

std::string Layout::to_string() const {
  std::string text = placements_to_string(placements);
  if (order != default_shard_order(placements)) text += " order " + order_text(order);
  return text;
}

Layout make_layout(const Shape& global_shape, const std::vector<int>& mesh_shape,
                   Placements placements, ShardOrder order) {
  if (placements.size() != mesh_shape.size()) {
    throw invalid("placements " + placements_to_string(placements) + " do not fit the mesh " +
                      shape_text(mesh_shape),
                  "there are " + std::to_string(placements.size()) + " placements and " +
                      std::to_string(mesh_shape.size()) + " axes",
                  "give one placement per mesh axis");
  }
  for (Placement& placement : placements) placement = normalized(placement, global_shape);
  check_partials(placements);
  ShardOrder filled = default_shard_order(placements);
  check_order(order, filled);
  for (auto& [dim, axes] : order) filled[dim] = std::move(axes);
  return {std::move(placements), std::move(filled)};
}

Box local_box(const Shape& global_shape, const std::vector<int>& mesh_shape,
              const std::vector<int>& coordinate, const Layout& layout) {
  DT_CHECK(coordinate.size() == mesh_shape.size());
  Box box{Shape(global_shape.size(), 0), global_shape};
  for (const auto& [dim, axes] : layout.order) {
    const std::size_t d = static_cast<std::size_t>(dim);
    for (const int axis : axes) {
      const std::size_t a = static_cast<std::size_t>(axis);
      const Chunk chunk = chunk_of(box.shape[d], mesh_shape[a], coordinate[a]);
      box.offsets[d] += chunk.offset;
      box.shape[d] = chunk.size;
    }
    if (box.shape[d] == 0) box.offsets[d] = global_shape[d];
  }
  return box;
}

Box local_box(const Shape& global_shape, const std::vector<int>& mesh_shape,
              const std::vector<int>& coordinate, const Placements& placements,
              const ShardOrder& order) {
  return local_box(global_shape, mesh_shape, coordinate,
                   make_layout(global_shape, mesh_shape, placements, order));
}

Box local_box(const Shape& global_shape, const std::vector<int>& mesh_shape,
              const std::vector<int>& coordinate, const Placements& placements) {
  return local_box(global_shape, mesh_shape, coordinate, placements, {});
}

}  // namespace dtrun::dtensor
