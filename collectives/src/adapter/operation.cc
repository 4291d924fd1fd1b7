#include "adapter/operation.h"

#include <fmt/core.h>

#include <functional>
#include <utility>

#include "dtrun/base/error.h"

namespace dtrun::collectives::adapter {

constinit thread_local const HeldOrder* HeldOrder::innermost = nullptr;

void HeldOrder::require_free(const void* group, const Fingerprint& awaited) {
  for (const HeldOrder* held = innermost; held != nullptr; held = held->outer_)
    if (held->group_ == group)
      throw base::Error(base::ErrorCode::kUsage,
                        fmt::format("a callback behind a collective waits for {} of the same group",
                                    awaited.describe()),
                        "with this backend that one cannot begin before the callback has returned",
                        "start it with async_op, and wait for it outside the callback");
}

void AdapterOperation::wait(base::Deadline deadline) {
  std::unique_lock lock(mutex_);
  if (!done_ && order_ != nullptr) HeldOrder::require_free(order_, fingerprint());
  const auto done = [this] { return done_; };
  if (deadline.is_never()) {
    changed_.wait(lock, done);
  } else if (!changed_.wait_until(lock, deadline.when(), done)) {
    throw base::Error(base::ErrorCode::kTimeout, fingerprint().describe() + " is not done yet",
                      "the wait had a deadline of its own; the operation goes on");
  }
  if (error_) std::rethrow_exception(error_);
}

bool AdapterOperation::is_completed() {
  const std::scoped_lock lock(mutex_);
  return done_;
}

std::exception_ptr AdapterOperation::exception() {
  const std::scoped_lock lock(mutex_);
  return error_;
}

int AdapterOperation::source_rank() {
  const std::scoped_lock lock(mutex_);
  return source_rank_;
}

void AdapterOperation::succeed(int source_rank) {
  std::exception_ptr error;
  try {
    if (call_.finish) call_.finish();
  } catch (...) {
    error = std::current_exception();
  }
  end(std::move(error), source_rank);
}

void AdapterOperation::fail(std::exception_ptr error) {
  end(std::move(error), -1);
}

void AdapterOperation::end(std::exception_ptr error, int source_rank) {
  // The tensors may be the last of theirs: not under the lock.
  const std::shared_ptr<void> kept = std::exchange(call_.keep_alive, nullptr);
  call_.finish = nullptr;
  call_.timer.end(error ? CallTimer::Outcome::failed : CallTimer::Outcome::done);
  const std::function<void()> callbacks = settle(error, kept);
  {
    const std::scoped_lock lock(mutex_);
    error_ = std::move(error);
    source_rank_ = source_rank;
    done_ = true;
    changed_.notify_all();
  }
  if (callbacks) callbacks();
}

}  // namespace dtrun::collectives::adapter
