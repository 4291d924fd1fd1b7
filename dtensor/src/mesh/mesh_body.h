// MeshBody: the shared state of a DeviceMesh's handles: ranks, groups, the specs of tensors on the
// mesh, and the caches of dispatch.
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

/// Data that a higher room stores with a mesh.
class MeshAttachment {
 public:
  virtual ~MeshAttachment() = default;
  /// Called before specs are freed: no pointer to a spec may be kept.
  virtual void forget_specs() = 0;
};

/// Several axes as one, which is no faster than any of them.
struct FlattenedAxis {
  MeshAxis axis;
  LinkRate link;
};

/// The grid that a mesh shares with its slices.
struct MeshRoot {
  ProcessGroup parent;
  std::vector<int> ranks;  ///< of the parent, row-major
  int own_place = -1;      ///< this rank's among them; -1: outside

  /// Guards what stands below.
  std::mutex mutex;
  /// Slices by key, while they are in use.
  std::map<std::string, std::weak_ptr<MeshBody>> slices;
  /// Axes that flatten() has named.
  std::map<std::string, FlattenedAxis> flattened;
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
  /// Groups of several axes, by a bit mask of the axes.
  std::map<unsigned, std::shared_ptr<MeshLine>> planes;
};

/// The group of the ranks that differ from this one only along these axes, in row-major order. Made
/// by its members on first use. @param axes ascending, at least one
const ProcessGroup& group_along(MeshBody& mesh, const std::vector<int>& axes);

/// A mesh of those axes of the root's grid through this rank, or through place 0 if this rank is
/// outside. Links are the defaults, by kind. Groups are made on first use. @param names one per
/// axis, or none
std::shared_ptr<MeshBody> make_mesh_body(std::shared_ptr<MeshRoot> root, std::vector<MeshAxis> axes,
                                         std::vector<std::string> names,
                                         tensors::DeviceType device_type);
/// @throws Error kInvalidArgument: empty, twice, or not one per axis
void check_axis_names(const std::vector<int>& shape, const std::vector<std::string>& names);
/// A Python tuple: "(2,)", "(2, 1)".
std::string tuple_text(const std::vector<int>& numbers);

}  // namespace dtrun::dtensor
