// PinnedPool: pinned host memory to stage through, used anew: pinning costs more than a small
// collective. Blocks are powers of two; they are given back to the driver with the pool.
// Thread-safe.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "device_api.h"

namespace dtrun::collectives::through_host {

class PinnedPool : public std::enable_shared_from_this<PinnedPool> {
 public:
  explicit PinnedPool(std::shared_ptr<DeviceApi> device) : device_(std::move(device)) {}
  /// Back in the pool when the last user is gone. @throws Error
  std::shared_ptr<void> allocate(std::size_t bytes);

 private:
  const std::shared_ptr<DeviceApi> device_;
  std::mutex mutex_;
  std::map<std::size_t, std::vector<std::shared_ptr<void>>> free_;  ///< by size
};

}  // namespace dtrun::collectives::through_host
