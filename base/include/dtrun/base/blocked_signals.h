// BlockedSignals: while it lives, its thread takes no signal, and threads that it makes never do:
// the loop handles signals, and no handler may run elsewhere.
#pragma once

#include <signal.h>

namespace dtrun::base {

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

}  // namespace dtrun::base
