// MeshBody: what the handles of one DeviceMesh share: its ranks and groups, the specs of the
// tensors that lie on it, and what the dispatch remembers of its operations.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "dtrun/dtensor/mesh/device_mesh.h"
#include "dtrun/dtensor/plan/cost.h"
#include "mesh/mesh_axis.h"
#include "mesh/mesh_line.h"
#include "mesh/plan_table.h"
#include "mesh/spec_table.h"

namespace dtrun::dtensor {

/// What a higher room keeps with a mesh.
class MeshAttachment {
 public:
  virtual ~MeshAttachment() = default;
  /// Specs go: nothing may point to any of them afterwards.
  virtual void forget_specs() = 0;
};

/// The grid that a mesh and its slices are made of.
struct MeshRoot {
  ProcessGroup parent;
  std::vector<int> ranks;  ///< of the parent, row-major
  int own_place = -1;      ///< this rank's among them; -1: outside

  /// Guards what stands below.
  std::mutex mutex;
  /// Slices by what tells them apart, for as long as somebody uses them.
  std::map<std::string, std::weak_ptr<MeshBody>> slices;
  /// What flatten() was given names for.
  std::map<std::string, MeshAxis> flattened;
};

struct MeshBody : std::enable_shared_from_this<MeshBody> {
  std::shared_ptr<MeshRoot> root;
  std::vector<MeshAxis> axes;
  std::vector<int> shape;
  std::vector<std::string> names;
  tensors::DeviceType device_type;
  int first_place = 0;                           ///< of coordinate 0, 0, ... in the root's grid
  std::vector<int> ranks;                        ///< of the root's parent, row-major
  int rank = -1;                                 ///< this rank's place among them
  std::vector<int> coordinate;                   ///< empty outside
  std::vector<std::shared_ptr<MeshLine>> lines;  ///< one per axis
  std::shared_ptr<MeshLine> whole;
  std::vector<LinkRate> links;               ///< one per axis
  std::atomic<std::uint32_t> links_set = 0;  ///< how often set_links has changed them

  /// Guards what stands below.
  std::mutex mutex;
  SpecTable specs;
  PlanTable plans;
  std::unique_ptr<MeshAttachment> attachment;
  /// Of several axes, by a bit for each of them.
  std::map<unsigned, std::shared_ptr<MeshLine>> planes;
};

/// Of this rank's place along all of those axes; ranks stand in row-major order. Made on its first
/// use by its members. @param axes ascending, at least one
const ProcessGroup& group_along(MeshBody& mesh, const std::vector<int>& axes);

/// A mesh of those axes of the root's grid, through this rank; outside of it, through place 0. Its
/// groups are made on their first use. @param names one per axis, or none
std::shared_ptr<MeshBody> make_mesh_body(std::shared_ptr<MeshRoot> root, std::vector<MeshAxis> axes,
                                         std::vector<std::string> names,
                                         tensors::DeviceType device_type);
/// Row-major.
std::vector<int> coordinate_in(const std::vector<int>& shape, int rank);
/// @throws Error kInvalidArgument: empty, twice, or not one per axis
void check_axis_names(const std::vector<int>& shape, const std::vector<std::string>& names);
/// A Python tuple: "(2,)", "(2, 1)".
std::string tuple_text(const std::vector<int>& numbers);

}  // namespace dtrun::dtensor
