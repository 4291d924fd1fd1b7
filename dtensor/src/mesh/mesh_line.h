// MeshLine: some ranks of a mesh and their group, shared by the mesh and its slices. The group is
// made by its members on first use.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dtrun/collectives/process_group.h"

namespace dtrun::dtensor {

class MeshLine {
 public:
  using ProcessGroup = collectives::ProcessGroup;

  /// @param ranks of `parent`, in the line's order; empty where this rank is outside
  MeshLine(ProcessGroup parent, std::vector<int> ranks, std::string name)
      : parent_(std::move(parent)), ranks_(std::move(ranks)), name_(std::move(name)) {}
  /// With a group that exists already.
  explicit MeshLine(ProcessGroup group) : group_(std::move(group)), is_made_(true) {}

  /// Thread-safe; the first call may be a collective of the line's ranks. @throws Error kUsage
  /// outside
  const ProcessGroup& group() {
    return is_made_.load(std::memory_order_acquire) ? group_ : made_group();
  }
  /// ProcessGroup's, of the line's group, which need not be made. Not collective. Thread-safe.
  std::optional<std::int64_t> bytes_to_send(collectives::PlannedCall call) const {
    if (is_made_.load(std::memory_order_acquire)) return group_.bytes_to_send(call);
    call.members = ranks_;
    return parent_.bytes_to_send(call);
  }

 private:
  const ProcessGroup& made_group();

  const ProcessGroup parent_;
  const std::vector<int> ranks_;
  const std::string name_;
  std::mutex mutex_;
  ProcessGroup group_;
  std::atomic<bool> is_made_ = false;
};

}  // namespace dtrun::dtensor
