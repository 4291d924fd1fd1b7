// MeshBody: what the handles of one DeviceMesh share: its ranks and groups, the specs of the
// tensors that lie on it, and what the dispatch remembers of its operations.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "dtrun/dtensor/mesh/device_mesh.h"
#include "dtrun/dtensor/plan/cost.h"
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

struct MeshBody : std::enable_shared_from_this<MeshBody> {
  ProcessGroup group;
  std::vector<int> shape;
  std::vector<std::string> names;
  tensors::DeviceType device_type;
  std::vector<int> coordinate;
  std::vector<ProcessGroup> axis_groups;
  std::vector<LinkRate> links;  ///< one per axis

  /// Guards what stands below.
  std::mutex mutex;
  SpecTable specs;
  PlanTable plans;
  std::unique_ptr<MeshAttachment> attachment;
};

}  // namespace dtrun::dtensor
