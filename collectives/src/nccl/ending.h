// Ending: communicators on their way out, on a thread of its own. NCCL frees what a communicator
// has, and CUDA makes that wait for all kernels of the device, also for one of another communicator
// that hangs: so who aborts may stand for as long as any of them runs. All that fail together are
// aborted in one group of calls, which tells the kernels of all to end before it frees the first.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "dtrun/base/deadline.h"
#include "nccl/nccl_api.h"
#include "nccl/operation.h"

namespace dtrun::collectives::nccl {

class Ending {
 public:
  struct Plan {
    std::shared_ptr<NcclApi> nccl;
    std::shared_ptr<DeviceApi> device;
    int device_index = 0;                  ///< of one of them
    std::string group;                     ///< for messages
    std::vector<Communicator> to_abort;    ///< those that NCCL is still making at the end
    std::vector<Communicator> to_destroy;  ///< finalized
    // Given back when all is over.
    std::vector<std::shared_ptr<Operation>> operations;
    std::vector<std::unique_ptr<Communicator>> slots;  ///< where NCCL may still write
  };

  /// Begins it; where no thread can be started, it is over when this returns.
  static std::shared_ptr<Ending> begin(Plan plan);

  bool is_over() const;
  /// @return whether it is over
  bool await(base::Deadline deadline) const;
  std::size_t communicators() const { return communicators_; }
  base::Deadline::Clock::time_point begun() const { return begun_; }

 private:
  explicit Ending(std::size_t communicators) : communicators_(communicators) {}
  void run(Plan& plan);

  const std::size_t communicators_;
  const base::Deadline::Clock::time_point begun_ = base::Deadline::Clock::now();
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool over_ = false;
};

}  // namespace dtrun::collectives::nccl
