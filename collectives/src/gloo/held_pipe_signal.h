// HeldPipeSignal: for its life a write to a connection whose other end has gone is an error for
// this thread and no SIGPIPE, which would end the process: gloo writes on the caller's thread, and
// without MSG_NOSIGNAL. Leaves the thread's mask and any SIGPIPE of others as they were.
#pragma once

#include <signal.h>

namespace dtrun::collectives::gloo_backend {

class HeldPipeSignal {
 public:
  HeldPipeSignal();
  ~HeldPipeSignal();
  HeldPipeSignal(const HeldPipeSignal&) = delete;
  HeldPipeSignal& operator=(const HeldPipeSignal&) = delete;

 private:
  sigset_t before_;
  bool was_pending_ = false;
};

}  // namespace dtrun::collectives::gloo_backend
