// DeviceMesh: ranks in an N-dimensional grid with named axes, and a ProcessGroup for every line of
// it. A handle: copies share the mesh. Creation is collective over the group it is made from.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dtrun/collectives/process_group.h"
#include "dtrun/tensor/device.h"

namespace dtrun::dtensor {

using collectives::ProcessGroup;

struct MeshBody;

class DeviceMesh {
 public:
  DeviceMesh() = default;
  explicit DeviceMesh(std::shared_ptr<MeshBody> body) : body_(std::move(body)) {}
  /// Rank r of `group` stands at the row-major coordinate of r; the product of the shape is the
  /// group's size. A 1-D mesh uses `group` itself. @throws Error kInvalidArgument
  DeviceMesh(ProcessGroup group, std::vector<int> shape, std::vector<std::string> axis_names = {},
             tensors::DeviceType device_type = tensors::DeviceType::cpu);

  const std::vector<int>& shape() const;
  int ndim() const;
  int size() const;
  int size(int axis) const;
  const std::vector<std::string>& axis_names() const;
  tensors::DeviceType device_type() const;
  /// @throws Error kInvalidArgument naming the axes there are
  int axis_index(const std::string& name) const;
  /// This rank's coordinate, one per axis.
  const std::vector<int>& coordinate() const;
  int local_rank(int axis) const { return coordinate()[static_cast<std::size_t>(axis)]; }
  /// Coordinate of any rank of the mesh. @throws Error kInvalidArgument
  std::vector<int> coordinate_of(int rank) const;
  int rank() const;
  /// The line through this rank along the axis; its ranks are the coordinates there.
  /// @throws Error kInvalidArgument
  const ProcessGroup& group(int axis) const;
  /// All of the mesh.
  const ProcessGroup& group() const;
  /// As PyTorch 2.11's repr.
  std::string to_string() const;
  friend bool operator==(const DeviceMesh& a, const DeviceMesh& b);

  const std::shared_ptr<MeshBody>& body() const { return body_; }

 private:
  std::shared_ptr<MeshBody> body_;
};

}  // namespace dtrun::dtensor
