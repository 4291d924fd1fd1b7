#include "dtrun/base/background_call.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <exception>

#include "dtrun/base/check.h"
#include "dtrun/base/detached_thread.h"
#include "dtrun/base/error.h"
#include "dtrun/base/unique_fd.h"

namespace dtrun::base {

// The last of the two that lets go of it closes the eventfd. The outcome is the thread's until
// `ended` is set, and the loop's from then on.
struct BackgroundCall::Shared {
  UniqueFd ended_fd;
  std::atomic<bool> ended = false;
  Outcome outcome;
  std::exception_ptr error;
};

BackgroundCall::BackgroundCall(EventLoop& loop, Work work) : shared_(std::make_shared<Shared>()) {
  shared_->ended_fd = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!shared_->ended_fd) throw system_error("make an eventfd");
  watch_ = std::make_unique<FdWatch>(loop, shared_->ended_fd.get());
  watch_->on_readable([this] {
    const std::shared_ptr<Shared> shared = shared_;  // the outcome may destroy this object
    if (!shared->ended) return;
    watch_->on_readable(nullptr);
    if (shared->error) std::rethrow_exception(shared->error);
    if (const Outcome outcome = std::move(shared->outcome)) outcome();
  });
  start_detached_thread([shared = shared_, work = std::move(work)]() mutable {
    try {
      shared->outcome = work();
    } catch (...) {
      shared->error = std::current_exception();
    }
    work = nullptr;
    shared->ended = true;
    const std::uint64_t one = 1;
    const ssize_t written = ::write(shared->ended_fd.get(), &one, sizeof one);
    DT_CHECK(written == sizeof one);  // the counter has room for more than one
  });
}

BackgroundCall::~BackgroundCall() = default;

}  // namespace dtrun::base
