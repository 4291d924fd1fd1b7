// AdapterOperation: one collective or message of an AdapterBackend, from its call to its end. The
// backend ends it; its Work may be asked from any thread, also when the backend is gone.
#pragma once

#include <condition_variable>
#include <exception>
#include <mutex>

#include "dtrun/collectives/backend.h"
#include "dtrun/collectives/work.h"

namespace dtrun::collectives::adapter {

class AdapterOperation : public Work::State {
 public:
  explicit AdapterOperation(Call call) : call_(std::move(call)) {}

  void wait(base::Deadline deadline) override;
  bool is_completed() override;
  std::exception_ptr exception() override;
  int source_rank() override;

  // Both run the callbacks behind it, so they are called without the backend's lock.
  /// Hands the results out, then counts as done.
  void succeed(int source_rank);
  void fail(std::exception_ptr error);

  const Call& call() const { return call_; }
  const Fingerprint& fingerprint() const { return call_.fingerprint; }

 private:
  void end(std::exception_ptr error, int source_rank);

  Call call_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  int source_rank_ = -1;
  std::exception_ptr error_;
};

}  // namespace dtrun::collectives::adapter
