// Interrupt: ends the waits of another thread, once and for good. raise() may be called from any
// thread; who waits looks at raised(), or polls fd(), which is readable from then on.
#pragma once

#include "dtrun/base/deadline.h"
#include "dtrun/base/unique_fd.h"

namespace dtrun::rendezvous {

class Interrupt {
 public:
  /// @throws Error kSystem
  Interrupt();
  void raise() const;
  bool raised() const;
  int fd() const { return fd_.get(); }
  /// Nothing but time passes. @throws Error kAborted when raised
  void pause(base::Deadline until) const;

 private:
  base::UniqueFd fd_;
};

}  // namespace dtrun::rendezvous
