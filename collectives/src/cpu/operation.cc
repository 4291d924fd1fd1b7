#include "operation.h"

#include "group_engine.h"
#include "overlap.h"

namespace dtrun::collectives::cpu {

namespace {

bool have_common_memory(std::span<const Buffer> a, std::span<const Buffer> b) {
  for (const Buffer& one : a)
    for (const Buffer& other : b)
      if (overlap(one, other)) return true;
  return false;
}

}  // namespace

bool Operation::conflicts_with(const Operation& other) const {
  return have_common_memory(writes(), other.reads()) ||
         have_common_memory(reads(), other.writes()) ||
         have_common_memory(writes(), other.writes());
}

void Operation::wait(base::Deadline deadline) {
  engine_->wait(*this, deadline);
}

bool Operation::is_completed() {
  if (done()) return true;
  engine_->require_own_process();
  engine_->drive_for_owner();
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
  let_go();
  call_.timer.end(error_ ? CallTimer::Outcome::failed : CallTimer::Outcome::done);
  done_.store(true, std::memory_order_release);
}

}  // namespace dtrun::collectives::cpu
