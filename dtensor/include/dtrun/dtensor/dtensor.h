// DTensor: a global tensor of which every rank of a mesh holds a part. A handle: copies share the
// local tensor. All calls that communicate are collective over the mesh.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "dtrun/dtensor/device_mesh.h"
#include "dtrun/dtensor/placement.h"
#include "dtrun/dtensor/spec.h"
#include "dtrun/tensor/tensor.h"

namespace dtrun::dtensor {

using tensors::LocalTensor;

struct FromLocalOptions {
  /// The global shape. Not given: the local sizes times the axis sizes that shard them (all ranks
  /// must hold equal shapes).
  tensors::Shape shape = {};
  bool has_shape = false;  ///< shape is given; {} is that of a 0-dim tensor
  ShardOrder shard_order = {};
};

class DTensor {
 public:
  DTensor() = default;
  /// @param local exactly the shape of spec.local_box() (DT_CHECK)
  DTensor(Spec spec, LocalTensor local);

  using FromLocal = FromLocalOptions;
  /// No communication. @throws Error kInvalidArgument when local is not this rank's box of the
  /// given shape
  static DTensor from_local(const LocalTensor& local, const DeviceMesh& mesh, Placements placements,
                            FromLocal options = {});

  const LocalTensor& to_local() const { return local_; }
  /// The whole tensor on every rank. Collective.
  LocalTensor full_tensor() const;
  /// Any placements to any placements on the same mesh. Collective. Target Partial keeps the value
  /// on the first rank of the axis, or each chunk on the rank that has it, and the neutral element
  /// elsewhere (avg: the value everywhere). @throws Error kInvalidArgument
  DTensor redistribute(const Placements& placements, const ShardOrder& order = {}) const;

  const Spec& spec() const { return spec_; }
  const DeviceMesh& device_mesh() const { return spec_.mesh; }
  const Placements& placements() const { return spec_.placements; }
  const tensors::Shape& shape() const { return spec_.shape; }
  tensors::DType dtype() const { return spec_.dtype; }
  /// As PyTorch's: "DTensor(local_tensor=tensor([0., 1.]), device_mesh=DeviceMesh(...),
  /// placements=(Shard(dim=0),))".
  std::string to_string() const;

 private:
  Spec spec_;
  LocalTensor local_;
};

std::ostream& operator<<(std::ostream& out, const DTensor& tensor);

struct DistributeOptions {
  /// Whose data counts, group rank on every axis; -1: no communication, every rank's own data is
  /// trusted.
  int source_rank = 0;
  ShardOrder shard_order = {};
};
/// Cuts `tensor` (same shape and dtype on every rank; only the source rank's data counts) as the
/// placements say. Collective: scatter on sharded axes, broadcast on replicated ones. Partial: as
/// redistribute to Partial.
DTensor distribute_tensor(const LocalTensor& tensor, const DeviceMesh& mesh,
                          const Placements& placements, DistributeOptions options = {});

// Factories: no communication.
DTensor zeros(const tensors::Shape& shape, const DeviceMesh& mesh, const Placements& placements,
              tensors::DType dtype = tensors::DType::f32);
DTensor ones(const tensors::Shape& shape, const DeviceMesh& mesh, const Placements& placements,
             tensors::DType dtype = tensors::DType::f32);
DTensor full(const tensors::Shape& shape, tensors::Scalar value, const DeviceMesh& mesh,
             const Placements& placements, tensors::DType dtype = tensors::DType::f32);

}  // namespace dtrun::dtensor
