// HeldPipeSignal: while it lives, a write of this thread to a closed connection fails with EPIPE
// and raises no SIGPIPE. gloo needs it: it writes on the caller's thread without MSG_NOSIGNAL. The
// thread's mask and any SIGPIPE that was pending before are restored.
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
