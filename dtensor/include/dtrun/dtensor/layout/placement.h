// Placement: how a tensor lies along one mesh axis. Values: Shard(dim), Replicate(), Partial(op).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "dtrun/collectives/reduce_op.h"

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
  ReduceOp reduce_op() const { return op_; }

  /// "S(0)", "R", "P(sum)".
  std::string to_string() const;
  /// As PyTorch's repr: "Shard(dim=0)", "Replicate()", "Partial(sum)".
  std::string repr() const;
  /// Parses to_string()'s form. @throws Error kInvalidArgument
  static Placement parse(std::string_view text);
  friend bool operator==(const Placement&, const Placement&) = default;

 private:
  friend Placement Shard(int dim);
  friend Placement Replicate();
  friend Placement Partial(ReduceOp op);
  Placement(Kind kind, int dim, ReduceOp op) : kind_(kind), dim_(dim), op_(op) {}
  Kind kind_;
  int dim_;
  ReduceOp op_;
};

inline Placement Shard(int dim) {
  return {Placement::Kind::shard, dim, ReduceOp::sum};
}
inline Placement Replicate() {
  return {Placement::Kind::replicate, 0, ReduceOp::sum};
}
inline Placement Partial(ReduceOp op = ReduceOp::sum) {
  return {Placement::Kind::partial, 0, op};
}

/// One per mesh axis.
using Placements = std::vector<Placement>;
std::string placements_to_string(const Placements& placements);
/// Replicate for Partial: what a gradient is placed as where its tensor is so.
Placements without_partials(Placements placements);

}  // namespace dtrun::dtensor
