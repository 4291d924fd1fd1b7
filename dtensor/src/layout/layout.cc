#include "dtrun/dtensor/layout/layout.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

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
                  "its dims are " + std::to_string(-rank) + " to " + std::to_string(rank - 1),
                  "one of these dims, or Replicate()");
  }
  if (dim >= Layout::kMostDims) {
    throw invalid("cannot shard dim " + std::to_string(dim) + " of a tensor",
                  "a layout knows the first " + std::to_string(Layout::kMostDims) + " dims",
                  "permute() it so that the dim stands before");
  }
  if (!placement.is_ragged() || !placement.cut()->is_even()) return placement.along(dim);
  return Shard(dim);
}

/// Of the dim that it cuts, along an axis of `ranks`.
void check_sizes(const Placement& placement, std::int64_t extent, int ranks) {
  const Cut& cut = *placement.cut();
  if (cut.sizes().size() != static_cast<std::size_t>(ranks)) {
    throw invalid(placement.to_string() + " does not fit the mesh",
                  "it has " + std::to_string(cut.sizes().size()) + " sizes for an axis of " +
                      std::to_string(ranks) + " ranks",
                  "give a size per rank, 0 for one that has nothing");
  }
  if (cut.total() == extent) return;
  throw invalid(placement.to_string() + " does not fit the tensor",
                "its sizes add up to " + std::to_string(cut.total()) + ", and the dim has " +
                    std::to_string(extent) + " elements",
                "give sizes that add up to the dim's");
}

/// Where it cuts the pieces of other axes, its sizes are not those of all of them.
void check_ragged_are_outermost(const Layout& layout) {
  for (std::size_t axis = 0; axis < layout.axes(); ++axis) {
    if (!layout.is_ragged(axis) || layout.depth(axis) == 0) continue;
    const auto order = layout.order();
    const std::vector<int>& axes = order.at(layout.dim(axis));
    throw invalid("axis " + std::to_string(axis) + " cannot be " + layout[axis].to_string() +
                      " where axis " + std::to_string(axes.front()) + " cuts that dim before it",
                  "its sizes are of the whole dim",
                  "of the axes that cut a dim one has sizes, and is the first in the shard order");
  }
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
                  "these, or no shard order");
  }
}

}  // namespace

Layout::Layout(const Placements& placements) {
  DT_CHECK(placements.size() <= kMaxAxes);
  count_ = static_cast<std::uint8_t>(placements.size());
  for (std::size_t axis = 0; axis < placements.size(); ++axis) set(axis, placements[axis]);
}

Layout Layout::whole(std::size_t axes) {
  DT_CHECK(axes <= kMaxAxes);
  Layout layout;
  layout.count_ = static_cast<std::uint8_t>(axes);
  return layout;
}

Layout::Slot Layout::slot_of(const Placement& placement) {
  Slot slot;
  // The masks change nothing: they tell the compiler that the values fit their bit fields.
  slot.kind = static_cast<std::uint32_t>(placement.kind()) & 3U;
  if (placement.is_partial()) slot.value = static_cast<std::uint32_t>(placement.reduce_op()) & 127U;
  if (placement.is_shard()) {
    DT_CHECK(placement.dim() >= 0 && placement.dim() < kMostDims);
    slot.value = static_cast<std::uint32_t>(placement.dim()) & 127U;
  }
  if (placement.is_ragged()) slot.cut = placement.cut()->number() & ((1U << Cut::kNumberBits) - 1);
  return slot;
}

Placement Layout::operator[](std::size_t axis) const {
  const Slot& slot = slots_[axis];
  switch (kind(axis)) {
    case Placement::Kind::shard:
      if (slot.cut == 0) return Shard(dim(axis));
      return {Placement::Kind::shard, dim(axis), ReduceOp::sum, Cut::share(slot.cut)};
    case Placement::Kind::partial:
      return Partial(static_cast<ReduceOp>(slot.value));
    case Placement::Kind::replicate:
      break;
  }
  return Replicate();
}

Chunk Layout::ragged_chunk(std::size_t axis, std::int64_t n, int parts, int index) const {
  const Cut& cut = this->cut(axis);
  DT_CHECK(cut.total() == n && cut.sizes().size() == static_cast<std::size_t>(parts));
  return cut.chunk(index);
}

void Layout::put(std::size_t axis, Slot next) {
  Slot& slot = slots_[axis];
  if (is_shard(axis)) {
    const Slot left = slot;
    // Without branches: the search for a plan changes axes thousands of times, and whether one is
    // inside of another cannot be predicted (docs/benchmarks.md, "The library around the work").
    for (Slot& other : slots_) {
      const auto is_inside = static_cast<unsigned>(other.kind == kShard) &
                             static_cast<unsigned>(other.value == left.value) &
                             static_cast<unsigned>(other.depth > left.depth);
      other.depth = (other.depth - is_inside) & 7U;
    }
    slot = {};
  }
  if (next.kind == kShard)
    next.depth = static_cast<unsigned>(cuts(static_cast<int>(next.value))) & 7U;
  slot = next;
}

void Layout::set_order(int dim, const std::vector<int>& axes) {
  DT_CHECK(static_cast<int>(axes.size()) == cuts(dim));
  for (std::size_t depth = 0; depth < axes.size(); ++depth) {
    const auto axis = static_cast<std::size_t>(axes[depth]);
    DT_CHECK(is_shard(axis) && this->dim(axis) == dim);
    slots_[axis].depth = static_cast<unsigned>(depth) & 7U;
  }
}

Placements Layout::placements() const {
  Placements placements;
  placements.reserve(count_);
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
                  "it has at most " + std::to_string(Layout::kMaxAxes),
                  "one axis for what goes together");
  }
  for (std::size_t axis = 0; axis < placements.size(); ++axis) {
    const Placement given =
        std::exchange(placements[axis], normalized(placements[axis], global_shape));
    if (given.is_ragged())
      check_sizes(given, global_shape[static_cast<std::size_t>(placements[axis].dim())],
                  mesh_shape[axis]);
  }
  check_partials(placements);
  Layout layout(placements);
  // The layout's order still ascends, which check_order() relies on.
  if (!order.empty()) check_order(order, layout.order());
  // Before the given orders: a dim that they do not name gets its ragged axis outermost, and a
  // given order that has it further in is refused.
  put_ragged_outermost(layout);
  for (const auto& [dim, axes] : order) layout.set_order(dim, axes);
  check_ragged_are_outermost(layout);
  return layout;
}

bool has_ragged_outermost(const Layout& layout) {
  bool outermost = true;
  for (std::size_t axis = 0; axis < layout.axes(); ++axis)
    outermost = outermost && (!layout.is_ragged(axis) || layout.depth(axis) == 0);
  return outermost;
}

void put_ragged_outermost(Layout& layout) {
  if (has_ragged_outermost(layout)) return;
  for (auto& [dim, axes] : layout.order()) {
    std::vector<int> order = axes;
    std::stable_partition(order.begin(), order.end(), [&](int axis) {
      return layout.is_ragged(static_cast<std::size_t>(axis));
    });
    layout.set_order(dim, order);
  }
}

Placements placements_of(std::initializer_list<Layout> layouts) {
  Placements all;
  for (const Layout& layout : layouts)
    std::ranges::move(layout.placements(), std::back_inserter(all));
  return all;
}

Layout without_partials(Layout layout) {
  for (std::size_t axis = 0; axis < layout.axes(); ++axis) {
    if (layout.is_partial(axis)) layout.set(axis, Replicate());
  }
  return layout;
}

}  // namespace dtrun::dtensor
