// BackgroundCall: work that cannot be interrupted (the resolver, a network file system), done on a
// thread of its own so that the loop stays awake, for signals above all. Belongs to the loop's
// thread. When it is destroyed before the work has ended, the outcome is dropped, and the thread
// ends with the work or with the process.
#pragma once

#include <functional>
#include <memory>

#include "dtrun/base/event_loop.h"

namespace dtrun::base {

class BackgroundCall {
 public:
  /// Runs on the loop with the outcome of the work.
  using Outcome = std::function<void()>;
  /// Must own what it reads: it may outlive everything else. The loop rethrows its exceptions.
  using Work = std::function<Outcome()>;

  /// @throws Error kSystem when no thread or descriptor can be had
  BackgroundCall(EventLoop& loop, Work work);
  ~BackgroundCall();
  BackgroundCall(const BackgroundCall&) = delete;
  BackgroundCall& operator=(const BackgroundCall&) = delete;

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
  std::unique_ptr<FdWatch> watch_;
};

}  // namespace dtrun::base
