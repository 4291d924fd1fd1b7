// AdapterOperation: one collective or message of an AdapterBackend, from its call to its end. The
// backend ends it; its Work may be asked from any thread, also when the backend is gone.
#pragma once

#include <condition_variable>
#include <exception>
#include <mutex>

#include "dtrun/collectives/backend.h"
#include "dtrun/collectives/work.h"

namespace dtrun::collectives::adapter {

/// This thread runs a collective of a group, and its callbacks: until it has gone on, the next
/// collective of that group cannot begin. Lives on the thread's stack.
class HeldOrder {
 public:
  /// @param group compared only
  explicit HeldOrder(const void* group) : group_(group), outer_(innermost) { innermost = this; }
  ~HeldOrder() { innermost = outer_; }
  HeldOrder(const HeldOrder&) = delete;
  HeldOrder& operator=(const HeldOrder&) = delete;

  /// @throws Error kUsage where this thread holds the group's order: to wait for that collective
  /// would be to wait for ever
  static void require_free(const void* group, const Fingerprint& awaited);

 private:
  static constinit thread_local const HeldOrder* innermost;

  const void* const group_;
  const HeldOrder* const outer_;
};

class AdapterOperation : public Work::State {
 public:
  /// @param order the group whose order it waits in; null: it waits in none
  explicit AdapterOperation(Call call, const void* order = nullptr)
      : call_(std::move(call)), order_(order) {}

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
  const void* const order_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  int source_rank_ = -1;
  std::exception_ptr error_;
};

}  // namespace dtrun::collectives::adapter
