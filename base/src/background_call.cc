#include "dtrun/base/background_call.h"

#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <system_error>
#include <thread>

#include "dtrun/base/check.h"
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

namespace {

// Signals are the loop's: no handler may run on this thread.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

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
  const BlockedSignals inherited_by_the_thread;
  try {
    std::thread([shared = shared_, work = std::move(work)]() mutable {
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
    }).detach();
  } catch (const std::system_error& error) {
    throw system_error("start a thread", error.code().value(), "raise the limit of processes");
  }
}

BackgroundCall::~BackgroundCall() = default;

}  // namespace dtrun::base
