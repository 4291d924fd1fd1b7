#include "operation.h"

#include "group_engine.h"

namespace dtrun::collectives::cpu {

void Operation::wait(base::Deadline deadline) {
  engine_->wait(*this, deadline);
}

bool Operation::is_completed() {
  if (done()) return true;
  engine_->require_own_process();
  engine_->drive();
  return done();
}

void Operation::complete(std::exception_ptr error) {
  if (done()) return;
  error_ = std::move(error);
  if (!error_ && call_.finish) {
    try {
      call_.finish();
    } catch (...) {
      error_ = std::current_exception();
    }
  }
  call_.finish = nullptr;
  callbacks_ = settle(error_, std::move(call_.keep_alive));
  call_.keep_alive.reset();
  call_.timer.end(error_ ? CallTimer::Outcome::failed : CallTimer::Outcome::done);
  done_.store(true, std::memory_order_release);
}

}  // namespace dtrun::collectives::cpu
