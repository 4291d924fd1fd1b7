// BlockedSignals: while it lives, its thread takes no signal, and threads that it makes never do:
// the loop handles signals, or what the thread calls does not bear a handler in between.
#pragma once

#include <signal.h>

#include <initializer_list>

namespace dtrun::base {

class BlockedSignals {
 public:
  /// Of the signals that the thread's own faults raise.
  enum class Faults { blocked, taken };
  explicit BlockedSignals(Faults faults = Faults::blocked) {
    sigset_t all;
    ::sigfillset(&all);
    if (faults == Faults::taken)
      for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP}) ::sigdelset(&all, fault);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace dtrun::base
