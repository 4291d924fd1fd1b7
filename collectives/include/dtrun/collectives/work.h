// Work: an operation in flight. A handle; copies share the operation. Thread-safe.
// The tensors of the operation are kept alive by it; they must not be touched until it is done.
#pragma once

#include <exception>
#include <memory>

#include "dtrun/base/deadline.h"

namespace dtrun::collectives {

class Work {
 public:
  /// What a backend implements.
  class State {
   public:
    virtual ~State() = default;
    virtual void wait(base::Deadline deadline) = 0;
    virtual bool is_completed() = 0;
    virtual std::exception_ptr exception() = 0;
    virtual int source_rank() { return -1; }
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
  std::exception_ptr exception() const { return state_ ? state_->exception() : nullptr; }
  /// The group rank that a receive from any rank got its message from; -1 otherwise.
  int source_rank() const { return state_ ? state_->source_rank() : -1; }

 private:
  std::shared_ptr<State> state_;
};

}  // namespace dtrun::collectives
