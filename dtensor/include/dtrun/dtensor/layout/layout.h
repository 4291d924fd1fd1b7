// Layout: how a tensor lies on a mesh: a placement for each axis, and the order in which the axes
// that cut one dim do so. A packed value of four bytes an axis. Pure; the parts that ranks hold
// stand in box.h. A ragged shard's sizes are not in it: who keeps such a layout keeps its
// placements, or its Spec, too.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <vector>

#include "dtrun/dtensor/layout/placement.h"
#include "dtrun/tensor/shape.h"

namespace dtrun::dtensor {

/// For every tensor dim the mesh axes that cut it, outermost first. Only dims that are sharded.
using ShardOrder = std::map<int, std::vector<int>>;

class Layout {
 public:
  static constexpr std::size_t kMaxAxes = 8;
  /// That an axis can cut.
  static constexpr int kMostDims = 1 << 7;

  /// Of no axes.
  Layout() = default;
  /// Axes cut a dim in ascending order. @param placements at most kMaxAxes, dims >= 0 (DT_CHECK)
  explicit Layout(const Placements& placements);
  /// All axes Replicate.
  static Layout whole(std::size_t axes);

  std::size_t axes() const { return count_; }
  Placement operator[](std::size_t axis) const;
  bool is_replicate(std::size_t axis) const { return kind(axis) == Placement::Kind::replicate; }
  bool is_shard(std::size_t axis) const { return kind(axis) == Placement::Kind::shard; }
  bool is_partial(std::size_t axis) const { return kind(axis) == Placement::Kind::partial; }
  /// Of a sharded axis.
  int dim(std::size_t axis) const { return static_cast<int>(slots_[axis].value); }
  /// A shard whose sizes its placement tells.
  bool is_ragged(std::size_t axis) const { return slots_[axis].cut != 0; }
  /// Any axis.
  bool is_ragged() const {
    unsigned cuts = 0;
    for (const Slot& slot : slots_) cuts |= slot.cut;
    return cuts != 0;
  }
  /// Of a ragged axis.
  const Cut& cut(std::size_t axis) const { return Cut::at(slots_[axis].cut); }
  /// Of a sharded axis: part `index` of the n elements that the axes before it left of its dim,
  /// over `parts` ranks.
  Chunk chunk(std::size_t axis, std::int64_t n, int parts, int index) const {
    return is_ragged(axis) ? ragged_chunk(axis, n, parts, index) : chunk_of(n, parts, index);
  }
  /// Of a Partial axis.
  ReduceOp reduce_op(std::size_t axis) const { return static_cast<ReduceOp>(slots_[axis].value); }
  /// Of a sharded axis: how many others cut its dim before it does.
  int depth(std::size_t axis) const { return static_cast<int>(slots_[axis].depth); }
  /// A bit for each axis that is not whole, nor as in the other layout of as many axes: another
  /// placement, or elsewhere in its dim's order.
  unsigned strays_from(const Layout& other) const {
    unsigned strays = 0;
    for (std::size_t axis = 0; axis < kMaxAxes; ++axis) {
      const auto own = std::bit_cast<std::uint32_t>(slots_[axis]);
      const auto wanted = std::bit_cast<std::uint32_t>(other.slots_[axis]);
      strays |= (static_cast<unsigned>(own != wanted) & static_cast<unsigned>(own != 0)) << axis;
    }
    return strays;
  }
  /// Whether the axis is placed in another way there, or elsewhere in its dim's order.
  bool differs_on(std::size_t axis, const Layout& other) const {
    return std::bit_cast<std::uint32_t>(slots_[axis]) !=
           std::bit_cast<std::uint32_t>(other.slots_[axis]);
  }
  /// How many axes cut the dim.
  int cuts(int dim) const {
    int count = 0;
    for (const Slot& slot : slots_) {
      count += static_cast<int>(slot.kind == kShard) &
               static_cast<int>(static_cast<int>(slot.value) == dim);
    }
    return count;
  }
  /// Of a sharded axis: none cuts its dim after it.
  bool is_innermost(std::size_t axis) const { return depth(axis) + 1 == cuts(dim(axis)); }

  /// The axis becomes that; a shard is the innermost one of its dim, and the axes that were inside
  /// of the one before move up.
  void set(std::size_t axis, const Placement& placement) { put(axis, slot_of(placement)); }
  /// As it is in the other layout.
  void set(std::size_t axis, const Layout& other) { put(axis, other.slots_[axis]); }
  /// @param axes those that cut the dim (DT_CHECK), outermost first
  void set_order(int dim, const std::vector<int>& axes);

  /// All there is but the number of axes.
  std::array<std::int64_t, 4> packed() const {
    return std::bit_cast<std::array<std::int64_t, 4>>(slots_);
  }
  Placements placements() const;
  ShardOrder order() const;
  /// "[S(0), R]", and " order {0: [1, 0]}" after it where the order is not ascending.
  std::string to_string() const;
  friend bool operator==(const Layout& a, const Layout& b) {
    return a.count_ == b.count_ && a.packed() == b.packed();
  }

 private:
  struct Slot {
    std::uint32_t kind : 2 = 0;  ///< Placement::Kind
    std::uint32_t depth : 3 = 0;
    std::uint32_t value : 7 = 0;               ///< the dim, or the reduction
    std::uint32_t cut : Cut::kNumberBits = 0;  ///< its number; 0: as torch.chunk cuts
  };
  static constexpr auto kShard = static_cast<std::uint32_t>(Placement::Kind::shard);
  static Slot slot_of(const Placement& placement);
  /// Whatever its depth is: a shard becomes the innermost one.
  void put(std::size_t axis, Slot next);
  Chunk ragged_chunk(std::size_t axis, std::int64_t n, int parts, int index) const;
  Placement::Kind kind(std::size_t axis) const {
    return static_cast<Placement::Kind>(slots_[axis].kind);
  }

  std::array<Slot, kMaxAxes> slots_;
  std::uint8_t count_ = 0;
};

/// Whether axes may be Partial of both at once: the value must not depend on which is reduced
/// first.
bool partials_mix(ReduceOp a, ReduceOp b);

/// Normalizes dims and fills the order; dims that `order` does not name get the ascending one, but
/// a ragged axis is the outermost of its dim.
/// @throws Error kInvalidArgument: as many placements as axes, dims in range, partial ops on
/// different axes that do not mix (only sum with avg does), an order that does not list just the
/// axes that shard its dim; of a ragged shard, a size per rank of the axis, which add up to the
/// dim's, and no axis that cuts the dim before it. Sizes as torch.chunk's become a plain Shard.
Layout make_layout(const tensors::Shape& global_shape, const std::vector<int>& mesh_shape,
                   Placements placements, const ShardOrder& order = {});
/// Whether no axis cuts a dim before a ragged one does: its sizes are of the whole dim.
bool has_ragged_outermost(const Layout& layout);
/// The ragged axis of each dim before the others of that dim, which stay in their order. Of two
/// ragged ones of a dim, one is still not the outermost.
void put_ragged_outermost(Layout& layout);
/// One after the other: what keeps the sizes of their ragged shards.
Placements placements_of(std::initializer_list<Layout> layouts);
/// Replicate for Partial.
Layout without_partials(Layout layout);

}  // namespace dtrun::dtensor
