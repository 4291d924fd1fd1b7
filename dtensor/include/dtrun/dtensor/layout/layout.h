// Layout: a placement for each mesh axis, and for each dim the order of the axes that shard it. A
// packed value of four bytes an axis. Pure; box.h computes the parts that ranks hold. A layout does
// not own the sizes of ragged shards: keep its placements, or its Spec, beside it.
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

/// For each sharded dim the mesh axes that shard it, outermost first.
using ShardOrder = std::map<int, std::vector<int>>;

class Layout {
 public:
  static constexpr std::size_t kMaxAxes = 8;
  /// Only dims below this one can be sharded.
  static constexpr int kMostDims = 1 << 7;

  /// Of no axes.
  Layout() = default;
  /// With ascending shard order. @param placements at most kMaxAxes, dims >= 0 (DT_CHECK)
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
  /// For a sharded axis: part `index` over `parts` ranks of the n elements that the outer axes
  /// leave of the dim.
  Chunk chunk(std::size_t axis, std::int64_t n, int parts, int index) const {
    return is_ragged(axis) ? ragged_chunk(axis, n, parts, index) : chunk_of(n, parts, index);
  }
  /// Of a Partial axis.
  ReduceOp reduce_op(std::size_t axis) const { return static_cast<ReduceOp>(slots_[axis].value); }
  /// For a sharded axis: the number of axes further out on its dim.
  int depth(std::size_t axis) const { return static_cast<int>(slots_[axis].depth); }
  /// A bit for each axis that is not Replicate and that differs from the other layout, in placement
  /// or in shard order.
  unsigned strays_from(const Layout& other) const {
    unsigned strays = 0;
    for (std::size_t axis = 0; axis < kMaxAxes; ++axis) {
      const auto own = std::bit_cast<std::uint32_t>(slots_[axis]);
      const auto wanted = std::bit_cast<std::uint32_t>(other.slots_[axis]);
      strays |= (static_cast<unsigned>(own != wanted) & static_cast<unsigned>(own != 0)) << axis;
    }
    return strays;
  }
  /// Whether the axis differs there, in placement or in shard order.
  bool differs_on(std::size_t axis, const Layout& other) const {
    return std::bit_cast<std::uint32_t>(slots_[axis]) !=
           std::bit_cast<std::uint32_t>(other.slots_[axis]);
  }
  /// The number of axes that shard the dim.
  int cuts(int dim) const {
    int count = 0;
    for (const Slot& slot : slots_) {
      count += static_cast<int>(slot.kind == kShard) &
               static_cast<int>(static_cast<int>(slot.value) == dim);
    }
    return count;
  }
  /// For a sharded axis: it is the innermost one of its dim.
  bool is_innermost(std::size_t axis) const { return depth(axis) + 1 == cuts(dim(axis)); }

  /// Replaces the axis' placement. A shard becomes the innermost one of its dim, and the axes that
  /// were inside of the old one move outwards.
  void set(std::size_t axis, const Placement& placement) { put(axis, slot_of(placement)); }
  /// Takes the axis over from the other layout.
  void set(std::size_t axis, const Layout& other) { put(axis, other.slots_[axis]); }
  /// @param axes those that cut the dim (DT_CHECK), outermost first
  void set_order(int dim, const std::vector<int>& axes);

  /// The whole layout except the number of axes.
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

/// Whether two axes may be Partial with these ops: the value must not depend on which is reduced
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
/// Whether each ragged axis is the outermost one of its dim: its sizes are those of the whole dim.
bool has_ragged_outermost(const Layout& layout);
/// Moves the ragged axis of each dim outwards; the others keep their order. Two ragged axes of one
/// dim remain wrong.
void put_ragged_outermost(Layout& layout);
/// Both lists joined: they own the sizes of their ragged shards.
Placements placements_of(std::initializer_list<Layout> layouts);
/// Replicate for Partial.
Layout without_partials(Layout layout);

}  // namespace dtrun::dtensor
