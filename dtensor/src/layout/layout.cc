#include "dtrun/dtensor/layout/layout.h"

#include <algorithm>
#include <limits>
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
    throw invalid("sharding dimension mismatch: " + placement.to_string() +
                      " of a tensor of shape " + tensors::shape_to_string(shape),
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
    if (partials_mix(op, *first)) continue;
    throw invalid("cannot mix partial ops in " + placements_to_string(placements),
                  "the value would depend on which axis is reduced first",
                  "use one op on all axes; only sum and avg mix");
  }
}

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

Layout::Layout(const Placements& placements) {
  DT_CHECK(placements.size() <= kMaxAxes);
  count_ = static_cast<std::uint8_t>(placements.size());
  for (std::size_t axis = 0; axis < placements.size(); ++axis) set(axis, placements[axis]);
}

Layout Layout::whole(std::size_t axes) {
  return Layout(Placements(axes, Replicate()));
}

Layout::Slot Layout::slot_of(const Placement& placement) {
  Slot slot{.kind = placement.kind(), .depth = 0, .value = 0};
  if (placement.is_partial()) slot.value = static_cast<std::int16_t>(placement.reduce_op());
  if (placement.is_shard()) {
    DT_CHECK(placement.dim() >= 0 && placement.dim() <= std::numeric_limits<std::int16_t>::max());
    slot.value = static_cast<std::int16_t>(placement.dim());
  }
  return slot;
}

Placement Layout::operator[](std::size_t axis) const {
  const Slot& slot = slots_[axis];
  switch (slot.kind) {
    case Placement::Kind::shard:
      return Shard(slot.value);
    case Placement::Kind::partial:
      return Partial(static_cast<ReduceOp>(slot.value));
    case Placement::Kind::replicate:
      break;
  }
  return Replicate();
}

void Layout::set(std::size_t axis, const Placement& placement) {
  Slot& slot = slots_[axis];
  if (is_shard(axis)) {
    const Slot left = slot;
    for (Slot& other : slots_) {
      const auto is_inside = static_cast<unsigned>(other.kind == Placement::Kind::shard) &
                             static_cast<unsigned>(other.value == left.value) &
                             static_cast<unsigned>(other.depth > left.depth);
      other.depth = static_cast<std::uint8_t>(other.depth - is_inside);
    }
    slot = {};
  }
  Slot next = slot_of(placement);
  if (placement.is_shard()) next.depth = static_cast<std::uint8_t>(cuts(placement.dim()));
  slot = next;
}

void Layout::set_order(int dim, const std::vector<int>& axes) {
  DT_CHECK(static_cast<int>(axes.size()) == cuts(dim));
  for (std::size_t depth = 0; depth < axes.size(); ++depth) {
    const auto axis = static_cast<std::size_t>(axes[depth]);
    DT_CHECK(is_shard(axis) && this->dim(axis) == dim);
    slots_[axis].depth = static_cast<std::uint8_t>(depth);
  }
}

Placements Layout::placements() const {
  Placements placements;
  for (std::size_t axis = 0; axis < count_; ++axis) placements.push_back((*this)[axis]);
  return placements;
}

ShardOrder Layout::order() const {
  ShardOrder order;
  for (std::size_t axis = 0; axis < count_; ++axis) {
    if (!is_shard(axis)) continue;
    std::vector<int>& axes = order[dim(axis)];
    axes.resize(static_cast<std::size_t>(cuts(dim(axis))));
    axes[static_cast<std::size_t>(depth(axis))] = static_cast<int>(axis);
  }
  return order;
}

std::string Layout::to_string() const {
  std::string text = placements_to_string(placements());
  if (*this != Layout(placements())) text += " order " + order_text(order());
  return text;
}

bool partials_mix(ReduceOp a, ReduceOp b) {
  const auto is_linear = [](ReduceOp op) { return op == ReduceOp::sum || op == ReduceOp::avg; };
  return a == b || (is_linear(a) && is_linear(b));
}

Layout make_layout(const Shape& global_shape, const std::vector<int>& mesh_shape,
                   Placements placements, const ShardOrder& order) {
  if (placements.size() != mesh_shape.size()) {
    throw invalid("placements " + placements_to_string(placements) + " do not fit the mesh " +
                      shape_text(mesh_shape),
                  "there are " + std::to_string(placements.size()) + " placements and " +
                      std::to_string(mesh_shape.size()) + " axes",
                  "give one placement per mesh axis");
  }
  if (placements.size() > Layout::kMaxAxes) {
    throw invalid("a layout cannot have " + std::to_string(placements.size()) + " axes",
                  "it has at most " + std::to_string(Layout::kMaxAxes), "");
  }
  for (Placement& placement : placements) placement = normalized(placement, global_shape);
  check_partials(placements);
  Layout layout(placements);
  if (!order.empty()) check_order(order, layout.order());
  for (const auto& [dim, axes] : order) layout.set_order(dim, axes);
  return layout;
}

Layout without_partials(Layout layout) {
  for (std::size_t axis = 0; axis < layout.axes(); ++axis) {
    if (layout.is_partial(axis)) layout.set(axis, Replicate());
  }
  return layout;
}

}  // namespace dtrun::dtensor
