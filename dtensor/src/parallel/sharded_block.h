// ShardedBlock: parameters of one unit and dtype that are kept in parts, gathered and averaged
// together; or such that every rank keeps whole, which are averaged together. Knows no forward and
// no backward; shard_unit.h does.
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
  int dim = 0;                      ///< that is cut; FlatLayout::kNoDim: every rank keeps all
};

class ShardedBlock {
 public:
  /// Takes the first rank's numbers, cuts them, and makes the parameters distributed tensors.
  /// Collective. @param unit its path, "" of the whole model @param parameters all of them cut, or
  /// none
  ShardedBlock(const std::string& unit, std::vector<ShardedParameter> parameters, ShardAxes axes,
               const MixedPrecision& precision, const Tensor::Site& site);

  const std::vector<ShardedParameter>& parameters() const { return parameters_; }
  DType whole_dtype() const { return whole_.dtype; }

  // Gathering. Collective over the shard axis, in the same order on all ranks. Parameters that are
  // not cut are there without communication, in `param`'s dtype.
  bool is_whole() const { return whole_.memory.defined(); }
  /// Nothing where it is whole or under way. @param sharded the parameters' distributed tensors
  void start_gather(const Tensors& sharded);
  void finish_gather();
  /// Back to the parts; what is under way is forgotten.
  void give_back();
  /// Plain or on other axes; outside the graph. Without elements while it is not whole. One that is
  /// not cut, and is computed with in its own dtype, shares its memory with the parameter.
  Tensor whole(std::size_t parameter) const;
  /// Whether these elements lie in the whole parameters' memory.
  bool holds(const tensors::LocalTensor& elements) const {
    return elements.storage() == whole_.storage;
  }

  // Averaging.
  struct Reduction {
    collectives::Work work;
    tensors::LocalTensor sent;
    /// This rank's parts, then for each parameter the share of ranks that had a gradient.
    tensors::LocalTensor numbers;
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
  bool is_cut() const { return parameters_[0].dim != FlatLayout::kNoDim; }
  /// What is computed with is what is kept, in the same memory.
  bool is_shown_as_kept() const { return !is_cut() && whole_.dtype == parts_.dtype(); }
  Spec spec_of(const ShardedParameter& parameter) const;
  void hold_whole(const tensors::LocalTensor& memory);
  /// A rank's parts of gradients, then for each parameter whether this rank has one.
  void write_gradients(const tensors::LocalTensor& to, const Tensors& gradients, int rank) const;
  /// Parts that the user has put elsewhere come back into the block.
  void collect(const Tensors& sharded);

  std::string unshard_, reduce_;  ///< for whom it communicates
  Tensor::Site site_;
  std::vector<ShardedParameter> parameters_;
  ShardAxes axes_;
  FlatLayout layout_;
  tensors::LocalTensor parts_;  ///< this rank's
  Whole whole_;
  DType reduce_dtype_;
  std::optional<Gather> gather_;
};

}  // namespace dtrun::dtensor
