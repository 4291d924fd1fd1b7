// ShardedBlock: parameters of one unit and dtype that are kept in parts, gathered and averaged
// together. Knows no forward and no backward; shard_unit.h does.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dtrun/collectives/work.h"
#include "dtrun/dtensor/mesh/device_mesh.h"
#include "dtrun/dtensor/parallel/fully_shard.h"
#include "parallel/flat_layout.h"

namespace dtrun::dtensor {

/// Over whom parameters are cut, and averaged besides.
struct ShardAxes {
  DeviceMesh mesh;  ///< [shard], or [replicate, shard]

  const ProcessGroup& shard() const { return mesh.group(mesh.ndim() - 1); }
  bool is_hybrid() const { return mesh.ndim() == 2; }
  const ProcessGroup& replicate() const { return mesh.group(0); }
};

/// A parameter, and what it is while it is whole.
struct ShardedParameter {
  std::string name;
  Tensor parameter;                 ///< the user's
  Spec whole_spec = {};             ///< on other axes; none: a plain tensor
  tensors::Shape whole_local = {};  ///< what this rank has of it while it is whole
  int dim = 0;                      ///< that is cut
};

class ShardedBlock {
 public:
  /// Takes the first rank's numbers, cuts them, and makes the parameters distributed tensors.
  /// Collective.
  ShardedBlock(std::vector<ShardedParameter> parameters, ShardAxes axes,
               const MixedPrecision& precision, const Tensor::Site& site);

  const std::vector<ShardedParameter>& parameters() const { return parameters_; }
  DType whole_dtype() const { return whole_.dtype; }

  // Gathering. Collective over the shard axis, in the same order on all ranks.
  bool is_whole() const { return whole_.memory.defined(); }
  /// Nothing where it is whole or under way. @param sharded the parameters' distributed tensors
  void start_gather(const Tensors& sharded);
  void finish_gather();
  /// Back to the parts; what is under way is forgotten.
  void give_back();
  /// Plain or on other axes; outside the graph. Without elements while it is not whole.
  Tensor whole(std::size_t parameter) const;
  /// Whether these elements lie in the whole parameters' memory.
  bool holds(const tensors::LocalTensor& elements) const {
    return elements.storage() == whole_.storage;
  }

  // Averaging.
  struct Reduction {
    collectives::Work work;
    tensors::LocalTensor sent;
    tensors::LocalTensor numbers;  ///< this rank's parts, then a number for each parameter
  };
  /// @param gradients whole ones; undefined: this rank has none
  Reduction start_reduce(const Tensors& gradients) const;
  /// Over the other axis, after the first has been waited for.
  void start_replicas(Reduction& reduction) const;
  /// By parameter, as distributed tensors; undefined where no rank has one. Waits.
  Tensors finish_reduce(const Reduction& reduction, const Tensors& sharded) const;

 private:
  struct Whole {
    DType dtype;
    tensors::StoragePointer storage;  ///< its memory comes and goes
    tensors::LocalTensor memory;      ///< undefined while it is away
    std::uint32_t numbers_of = 0;     ///< version of the parts that it was gathered from
  };
  struct Gather {
    collectives::Work work;
    tensors::LocalTensor sent;
    std::vector<tensors::LocalTensor> received;
  };

  int ranks() const { return layout_.ranks(); }
  int rank() const { return axes_.shard().rank(); }
  Spec spec_of(const ShardedParameter& parameter) const;
  /// Parts that the user has put elsewhere come back into the block.
  void collect(const Tensors& sharded);

  std::vector<ShardedParameter> parameters_;
  ShardAxes axes_;
  FlatLayout layout_;
  tensors::LocalTensor parts_;  ///< this rank's
  Whole whole_;
  DType reduce_dtype_;
  std::optional<Gather> gather_;
};

}  // namespace dtrun::dtensor
