#include "mesh/mesh_line.h"

#include "dtrun/base/error.h"
#include "mesh/planned_group.h"

namespace dtrun::dtensor {

const collectives::ProcessGroup& MeshLine::made_group() {
  if (ranks_.empty()) {
    throw base::Error(base::ErrorCode::kUsage,
                      "a rank outside of a mesh asked for its group '" + name_ + "'", "",
                      "ask has_this_rank() first");
  }
  const std::lock_guard lock(mutex_);
  if (!is_made_.load(std::memory_order_relaxed)) {
    group_ = group_of_members(parent_, ranks_, name_);
    is_made_.store(true, std::memory_order_release);
  }
  return group_;
}

}  // namespace dtrun::dtensor
