#include "gloo/held_pipe_signal.h"

#include <cerrno>
#include <ctime>

namespace dtrun::collectives::gloo_backend {

namespace {

sigset_t pipe_signal() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGPIPE);
  return set;
}

bool is_pending() {
  sigset_t pending;
  ::sigpending(&pending);
  return ::sigismember(&pending, SIGPIPE) == 1;
}

}  // namespace

HeldPipeSignal::HeldPipeSignal() {
  const sigset_t set = pipe_signal();
  was_pending_ = is_pending();
  ::pthread_sigmask(SIG_BLOCK, &set, &before_);
}

// A write's SIGPIPE is sent to the writing thread and stays pending: it is consumed before the mask
// is restored.
HeldPipeSignal::~HeldPipeSignal() {
  if (!was_pending_ && is_pending()) {
    const sigset_t set = pipe_signal();
    const timespec at_once{};
    while (::sigtimedwait(&set, nullptr, &at_once) < 0 && errno == EINTR) {
    }
  }
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

}  // namespace dtrun::collectives::gloo_backend
