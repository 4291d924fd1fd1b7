// ShardingSpec: ColossalAI's notation of a sharding: for each tensor dim the mesh axes that shard
// it, outermost first. "[S01, R]": dim 0 is sharded over axis 0 and each piece over axis 1; dim 1
// is replicated. Any number of axes, in any order ("[S10, R]"). Pure.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "dtrun/dtensor/layout/layout.h"
#include "dtrun/tensor/shape.h"

namespace dtrun::dtensor {

/// Of one tensor dim; an empty list is R.
struct DimSpec {
  std::vector<int> shard_list = {};

  bool is_replica() const { return shard_list.empty(); }
  /// "R", "S01".
  std::string to_string() const;
  /// The distance to the other one by ColossalAI's costs (ALLGATHER 20, SHARD 5, STEP_PENALTY 6):
  /// first the axes that differ are gathered, from the last one on, then the other's axes shard.
  int difference(const DimSpec& other) const;
  friend bool operator==(const DimSpec&, const DimSpec&) = default;
};

class ShardingSpec {
 public:
  /// Tensor dims, negative ones from the end, to the axes that cut them.
  using DimPartition = std::map<int, std::vector<int>>;

  /// @throws Error kInvalidArgument for a dim out of range, a negative axis, and one that cuts
  /// twice
  explicit ShardingSpec(int dim_size, const DimPartition& dim_partition_dict = {});
  static ShardingSpec from_sequence(const std::vector<DimSpec>& sharding_sequence);
  /// "[S01, R]". @throws Error kInvalidArgument
  static ShardingSpec parse(std::string_view text);
  /// Of a tensor of that many dims. @throws Error kInvalidArgument for Partial and ragged shards,
  /// which it has no words for
  static ShardingSpec of(const Layout& layout, std::size_t dims);

  int dims() const { return static_cast<int>(sequence_.size()); }
  /// The sharded dims.
  DimPartition dim_partition_dict() const;
  const std::vector<DimSpec>& sharding_sequence() const { return sequence_; }
  /// Pieces as torch.chunk makes them. @throws Error kInvalidArgument where it does not fit
  Layout layout(const tensors::Shape& global_shape, const std::vector<int>& mesh_shape) const;
  /// ColossalAI's requirement that all pieces of a dim have one size. @throws Error
  /// kInvalidArgument
  void require_even(const tensors::Shape& global_shape, const std::vector<int>& mesh_shape) const;
  /// The sum of the dims' differences. @throws Error kInvalidArgument for another number of dims
  int spec_diff(const ShardingSpec& other) const;
  /// "[S01, R]".
  std::string to_string() const;
  friend bool operator==(const ShardingSpec&, const ShardingSpec&) = default;

 private:
  void check_axes() const;

  std::vector<DimSpec> sequence_;
};

}  // namespace dtrun::dtensor
