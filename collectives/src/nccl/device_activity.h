// DeviceActivity: which operations of this rank's groups are on which device: issued, and not seen
// to be over. Communicators are made, where it can wait, while there are none. Thread-safe.
#pragma once

#include <algorithm>
#include <mutex>
#include <optional>
#include <vector>

#include "dtrun/collectives/fingerprint.h"

namespace dtrun::collectives::nccl {

class DeviceActivity {
 public:
  void begin(int device, const void* operation, const Fingerprint& fingerprint) {
    const std::scoped_lock lock(mutex_);
    running_.push_back({device, operation, fingerprint});
  }
  /// Of one that has not begun: nothing happens.
  void end(const void* operation) {
    const std::scoped_lock lock(mutex_);
    std::erase_if(running_, [&](const Running& one) { return one.operation == operation; });
  }
  /// The oldest; nullopt: the device is quiet.
  std::optional<Fingerprint> oldest(int device) const {
    const std::scoped_lock lock(mutex_);
    const auto found = std::find_if(running_.begin(), running_.end(),
                                    [&](const Running& one) { return one.device == device; });
    if (found == running_.end()) return std::nullopt;
    return found->fingerprint;
  }

 private:
  struct Running {
    int device;
    const void* operation;
    Fingerprint fingerprint;
  };
  mutable std::mutex mutex_;
  std::vector<Running> running_;
};

}  // namespace dtrun::collectives::nccl
