// DeviceMesh: ranks in an N-dimensional grid with named axes, and a ProcessGroup for every line of
// it. A handle: copies share the mesh. A rank may be outside of a mesh: it holds no elements of the
// mesh's tensors, and operations on them do nothing on that rank. Thread-safe, except for calls
// that make a group, which are collectives of its ranks.
#pragma once

#include <concepts>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dtrun/collectives/process_group.h"
#include "dtrun/dtensor/mesh/rank_grid.h"
#include "dtrun/dtensor/plan/cost.h"
#include "dtrun/tensor/device.h"

namespace dtrun::dtensor {

using collectives::ProcessGroup;

struct MeshBody;

struct MeshOptions {
  std::vector<std::string> axis_names = {};
  /// Default: CUDA where the default group serves it, else the CPU.
  std::optional<tensors::DeviceType> device_type = std::nullopt;
  /// False: no group is made before its first use, by its members alone.
  bool init_process_group = true;
};

class DeviceMesh {
 public:
  DeviceMesh() = default;
  explicit DeviceMesh(std::shared_ptr<MeshBody> body) : body_(std::move(body)) {}
  /// Rank r of `group` stands at the row-major coordinate of r; the product of the shape is the
  /// group's size. Collective over the group. @throws Error kInvalidArgument
  DeviceMesh(ProcessGroup group, std::vector<int> shape, std::vector<std::string> axis_names = {},
             tensors::DeviceType device_type = tensors::DeviceType::cpu);
  /// Ranks of the default group, any of them, in any order. Collective over the default group: all
  /// of its ranks give the same grid, members or not. @param device_type "cpu" or "cuda"
  /// @throws Error kInvalidArgument: a rank that is not there or stands twice; kUsage without a
  /// default group
  template <std::convertible_to<std::string> Text>
  DeviceMesh(const Text& device_type, const RankGrid& mesh,
             std::vector<std::string> mesh_dim_names = {})
      : DeviceMesh(mesh, mesh.shape(),
                   {std::move(mesh_dim_names), tensors::Device::parse(device_type).type, true}) {}
  /// ColossalAI's: those ranks of the default group, reshaped.
  DeviceMesh(const RankGrid& physical_mesh_id, std::vector<int> mesh_shape,
             MeshOptions options = {});
  /// A mesh of one axis: the group, which is used as it is.
  static DeviceMesh from_group(ProcessGroup group, const std::string& device_type,
                               std::vector<std::string> mesh_dim_names = {});
  /// @param groups this rank's, one per axis, used as they are @param mesh global ranks
  /// @throws Error kInvalidArgument where a group is not this rank's line of its axis
  static DeviceMesh from_groups(std::vector<ProcessGroup> groups, const std::string& device_type,
                                const RankGrid& mesh, std::vector<std::string> mesh_dim_names = {});

  const std::vector<int>& shape() const;
  int ndim() const;
  int size() const;
  int size(int axis) const;
  int size(const std::string& axis) const { return size(axis_index(axis)); }
  const std::vector<std::string>& axis_names() const;
  tensors::DeviceType device_type() const;
  /// Of this rank's parts: on CUDA the thread's current device.
  tensors::Device device() const;
  /// @throws Error kInvalidArgument naming the axes there are
  int axis_index(const std::string& name) const;
  /// Global ranks, row-major.
  std::vector<int> ranks() const;

  bool has_this_rank() const { return rank() >= 0; }
  /// This rank's place in row-major order; -1 outside.
  int rank() const;
  /// This rank's coordinate, one per axis; empty outside.
  const std::vector<int>& coordinate() const;
  /// @throws Error kUsage outside
  int local_rank(int axis) const;
  int local_rank(const std::string& axis) const { return local_rank(axis_index(axis)); }
  /// Coordinate of any rank of the mesh. @param rank its place in row-major order
  /// @throws Error kInvalidArgument
  std::vector<int> coordinate_of(int rank) const;

  /// The line through this rank along the axis; its ranks are the coordinates there.
  /// @throws Error kInvalidArgument; kUsage outside
  const ProcessGroup& group(int axis) const;
  const ProcessGroup& group(const std::string& axis) const { return group(axis_index(axis)); }
  /// All of the mesh.
  const ProcessGroup& group() const;
  /// One per axis.
  std::vector<ProcessGroup> all_groups() const;

  /// The cost of each axis' links: shared memory, the device's own links, or a network where an
  /// axis leaves the machine. Redistributions are planned and rules are chosen by them.
  const std::vector<LinkRate>& links() const;
  /// Sets measured costs, such as read_links() of the file that dtrun-bench tune writes. All ranks
  /// give the same, before they use the mesh; later slices take them over. @throws Error
  /// kInvalidArgument unless there is one for each axis
  void set_links(std::vector<LinkRate> links) const;

  // Meshes of this one's axes, through this rank. The calls do not communicate. The meshes share
  // this mesh's groups; a new group is made by its members on its first use. Equal calls give the
  // same mesh.

  /// The axes of those names, in that order. The name of a flattened axis can be used on the mesh
  /// that was flattened. @throws Error kInvalidArgument for an unknown name, and axes that overlap
  DeviceMesh operator[](const std::vector<std::string>& names) const;
  template <std::convertible_to<std::string> Text>
  DeviceMesh operator[](const Text& name) const {
    return (*this)[std::vector<std::string>{name}];
  }
  /// Joins axes into one, the first outermost. @param axes empty: all
  /// @param name default: the names joined by "_"
  DeviceMesh flatten(const std::vector<std::string>& axes = {}, std::string name = "") const;
  /// Splits an axis into several, the first outermost. @throws Error kInvalidArgument unless the
  /// product of the sizes is the axis' size
  DeviceMesh unflatten(const std::string& axis, const std::vector<int>& sizes,
                       const std::vector<std::string>& names) const;
  /// The axes of all of them, which are slices of one mesh and do not overlap.
  static DeviceMesh concatenate(const std::vector<DeviceMesh>& meshes);

  /// As PyTorch's repr.
  std::string to_string() const;
  /// By ranks, shape, names and device type.
  friend bool operator==(const DeviceMesh& a, const DeviceMesh& b);

  const std::shared_ptr<MeshBody>& body() const { return body_; }

 private:
  std::shared_ptr<MeshBody> body_;
};

}  // namespace dtrun::dtensor
