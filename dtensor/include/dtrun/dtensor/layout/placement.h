// Placement: how a tensor lies along one mesh axis. Values: Shard(dim), Shard(dim, sizes),
// Replicate(), Partial(op).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dtrun/base/counted.h"
#include "dtrun/collectives/reduce_op.h"
#include "dtrun/dtensor/layout/cut.h"

namespace dtrun::dtensor {

using collectives::ReduceOp;

class Placement {
 public:
  enum class Kind : unsigned char { replicate, shard, partial };

  Kind kind() const { return kind_; }
  bool is_replicate() const { return kind_ == Kind::replicate; }
  bool is_shard() const { return kind_ == Kind::shard; }
  bool is_shard(int dim) const { return kind_ == Kind::shard && dim_ == dim; }
  bool is_partial() const { return kind_ == Kind::partial; }
  /// The sharded tensor dim; negative ones count from the end until normalized against a rank.
  int dim() const { return dim_; }
  /// A ragged shard: its sizes are given.
  bool is_ragged() const { return static_cast<bool>(cut_); }
  /// The sizes of a ragged shard, one per rank.
  const std::vector<std::int64_t>& sizes() const { return cut_->sizes(); }
  /// A shard with the same sizes along another dim.
  Placement along(int dim) const { return {kind_, dim, op_, cut_}; }
  /// The same kind and dim with torch.chunk's sizes.
  Placement even() const { return {kind_, dim_, op_}; }
  /// Null unless it is ragged.
  const Cut* cut() const { return cut_.get(); }
  ReduceOp reduce_op() const { return op_; }

  /// "S(0)", "S(0: 3,0,5)", "R", "P(sum)".
  std::string to_string() const;
  /// As PyTorch's repr: "Shard(dim=0)", "Replicate()", "Partial(sum)"; of a ragged one
  /// "Shard(dim=0, sizes=[3, 0, 5])".
  std::string repr() const;
  /// Parses to_string()'s form. @throws Error kInvalidArgument
  static Placement parse(std::string_view text);
  friend bool operator==(const Placement&, const Placement&) = default;

 private:
  friend class Layout;
  friend Placement Shard(int dim);
  friend Placement Shard(int dim, std::vector<std::int64_t> sizes);
  friend Placement Replicate();
  friend Placement Partial(ReduceOp op);
  Placement(Kind kind, int dim, ReduceOp op, base::Counted<Cut> cut = {})
      : cut_(std::move(cut)), dim_(dim), kind_(kind), op_(op) {}
  base::Counted<Cut> cut_;  ///< equal ones are one
  int dim_;
  Kind kind_;
  ReduceOp op_;
};

inline Placement Shard(int dim) {
  return {Placement::Kind::shard, dim, ReduceOp::sum};
}
/// Ragged: rank i along the axis has sizes[i] elements of the dim. The sizes add up to the dim, and
/// the axis is the outermost one that shards it. @throws Error kInvalidArgument for no sizes or a
/// negative one
Placement Shard(int dim, std::vector<std::int64_t> sizes);
inline Placement Replicate() {
  return {Placement::Kind::replicate, 0, ReduceOp::sum};
}
[[noreturn]] void refuse_partial_products();
/// @throws Error kInvalidArgument for premul_sum, whose factor is a call's and not a tensor's
inline Placement Partial(ReduceOp op = ReduceOp::sum) {
  if (op == ReduceOp::premul_sum) [[unlikely]]
    refuse_partial_products();
  return {Placement::Kind::partial, 0, op};
}

/// One per mesh axis.
using Placements = std::vector<Placement>;
std::string placements_to_string(const Placements& placements);
/// Replicate in place of Partial: the placement of a gradient for a tensor's placement.
Placements without_partials(Placements placements);

}  // namespace dtrun::dtensor
