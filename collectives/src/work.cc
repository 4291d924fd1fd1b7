#include "dtrun/collectives/work.h"

#include <condition_variable>

#include "dtrun/base/error.h"

namespace dtrun::collectives {

using base::Deadline;
using base::Error;
using base::ErrorCode;

std::optional<Deadline::Duration> Work::State::elapsed() const {
  const std::scoped_lock lock(end_mutex_);
  const bool is_timed = started_ != Clock::time_point();
  if (!ended_ || !is_timed) return std::nullopt;
  return *ended_ - started_;
}

void Work::State::when_over(Callback callback) {
  {
    const std::scoped_lock lock(end_mutex_);
    if (!ended_) {
      callbacks_.push_back(std::move(callback));
      return;
    }
  }
  callback(outcome_);
}

std::function<void()> Work::State::settle(std::exception_ptr error, std::shared_ptr<void> kept) {
  const std::scoped_lock lock(end_mutex_);
  ended_ = Clock::now();
  outcome_ = std::move(error);
  if (callbacks_.empty()) return {};
  return [callbacks = std::exchange(callbacks_, {}), outcome = outcome_, kept = std::move(kept)] {
    for (const Callback& callback : callbacks) callback(outcome);
  };
}

namespace {

/// A callback behind an operation, as an operation of its own.
class Continuation : public Work::State {
 public:
  Continuation(std::shared_ptr<Work::State> first, Clock::time_point started)
      : Work::State(started), first_(std::move(first)) {}

  /// Never throws: what the callback throws is this operation's error.
  void run(const Work::Callback& callback, const std::exception_ptr& outcome) {
    std::exception_ptr error;
    try {
      callback(outcome);
    } catch (...) {
      error = std::current_exception();
    }
    const std::function<void()> call = settle(error, nullptr);
    std::shared_ptr<Work::State> first;  // may be its last handle: not under the lock
    {
      const std::scoped_lock lock(mutex_);
      error_ = error;
      has_run_ = true;
      first = std::move(first_);
      changed_.notify_all();
    }
    if (call) call();
  }

  void wait(Deadline deadline) override {
    wait_for_first(deadline);
    std::unique_lock lock(mutex_);
    const auto has_run = [this] { return has_run_; };
    if (deadline.is_never()) {
      changed_.wait(lock, has_run);
    } else if (!changed_.wait_until(lock, deadline.when(), has_run)) {
      throw Error(ErrorCode::kTimeout, "the callback behind an operation has not returned yet",
                  "the wait had a deadline of its own; the callback goes on");
    }
    if (error_) std::rethrow_exception(error_);
  }

  // Whoever asks the first operation moves it on, and may so run the callback.
  bool is_completed() override {
    if (const std::shared_ptr<Work::State> first = first_now())
      static_cast<void>(first->is_completed());
    const std::scoped_lock lock(mutex_);
    return has_run_;
  }

  std::exception_ptr exception() override {
    const std::scoped_lock lock(mutex_);
    return error_;
  }

 private:
  std::shared_ptr<Work::State> first_now() {
    const std::scoped_lock lock(mutex_);
    return first_;
  }

  /// Its error is the callback's affair.
  void wait_for_first(Deadline deadline) {
    const std::shared_ptr<Work::State> first = first_now();
    if (!first) return;
    try {
      first->wait(deadline);
    } catch (...) {
      if (!first->is_completed()) throw;
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<Work::State> first_;  ///< until the callback has run
  bool has_run_ = false;
  std::exception_ptr error_;
};

}  // namespace

Work Work::then(Callback callback) const {
  if (!callback)
    throw Error(ErrorCode::kInvalidArgument, "then() got an empty callback", "",
                "give a function that can be called");
  const bool is_timed = state_ && state_->started() != State::Clock::time_point();
  const auto next =
      std::make_shared<Continuation>(state_, is_timed ? state_->started() : State::Clock::now());
  auto run = [next, callback = std::move(callback)](const std::exception_ptr& outcome) {
    next->run(callback, outcome);
  };
  if (state_) {
    state_->when_over(std::move(run));
  } else {
    run(nullptr);
  }
  return Work(next);
}

}  // namespace dtrun::collectives
