// Work: an operation in flight. A handle; copies share the operation. Thread-safe.
// The tensors of the operation are kept alive by it; they must not be touched until it is done.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "dtrun/base/deadline.h"

namespace dtrun::collectives {

class Work {
 public:
  /// Gets the operation's error; null where it has gone well.
  using Callback = std::function<void(std::exception_ptr)>;

  /// What a backend implements: what stands above the line, and one call of settle() below it.
  class State {
   public:
    using Clock = base::Deadline::Clock;

    /// @param started when the call began
    explicit State(Clock::time_point started = Clock::now()) : started_(started) {}
    virtual ~State() = default;
    virtual void wait(base::Deadline deadline) = 0;
    virtual bool is_completed() = 0;
    virtual std::exception_ptr exception() = 0;
    virtual int source_rank() { return -1; }

    Clock::time_point started() const { return started_; }
    std::optional<base::Deadline::Duration> elapsed() const;
    /// Runs it once: now, on this thread, if the operation is over, else by what settle() returns.
    void when_over(Callback callback);

   protected:
    /// For the backend, once, just before is_completed() says so: takes the time. @param kept stays
    /// until the callbacks have run @return runs the callbacks, to be called on this thread or
    /// another, with no lock held that a callback could want; empty: there are none
    [[nodiscard]] std::function<void()> settle(std::exception_ptr error,
                                               std::shared_ptr<void> kept);

   private:
    const Clock::time_point started_;
    mutable std::mutex end_mutex_;  ///< of what follows
    std::optional<Clock::time_point> ended_;
    std::exception_ptr outcome_;
    std::vector<Callback> callbacks_;
  };

  Work() = default;  ///< an operation that is already done
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}

  /// Blocks until done; rethrows the operation's error. @throws Error kTimeout (the operation goes
  /// on)
  void wait(base::Deadline deadline = base::Deadline::never()) const {
    if (state_) state_->wait(deadline);
  }
  /// Done or failed.
  bool is_completed() const { return !state_ || state_->is_completed(); }
  /// Done, and not failed.
  bool is_success() const { return is_completed() && exception() == nullptr; }
  std::exception_ptr exception() const { return state_ ? state_->exception() : nullptr; }
  /// The group rank that a receive from any rank got its message from; -1 otherwise.
  int source_rank() const { return state_ ? state_->source_rank() : -1; }
  /// From the call to the end of the operation, as this rank saw it. nullopt: it is in flight, the
  /// call blocked, or it was over before a call of messages returned: an operation of a few hundred
  /// nanoseconds would spend a tenth of them on two looks at the clock.
  std::optional<base::Deadline::Duration> elapsed() const {
    return state_ ? state_->elapsed() : std::nullopt;
  }

  /// Runs the callback once when the operation is over: at once and here if it is already, else on
  /// the thread that finishes it, which may be a waiting one or one of the library's. No lock of
  /// the group is held meanwhile. The tensors of the operation live until it has returned, where it
  /// was put there before the end. On a thread of the library's it holds up whatever else that
  /// thread moves, so it is to be short, and it must neither leave the group nor let go of its last
  /// handle. It may start asynchronous calls in the group. With gloo and mpi one that waits for a
  /// collective of its group throws Error kUsage: that one cannot begin before it has returned.
  /// @return is done once the callback has returned, and fails with what it throws; its elapsed()
  /// runs from the first one's call, or from here if that has none. Its wait() always blocks
  /// @throws Error kInvalidArgument for an empty callback
  Work then(Callback callback) const;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace dtrun::collectives
