#include "wire/interrupt.h"

#include <poll.h>
#include <sys/eventfd.h>

#include "dtrun/base/error.h"

namespace dtrun::rendezvous {

Interrupt::Interrupt() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!fd_) throw base::system_error("make an event descriptor");
}

void Interrupt::raise() const {
  // Cannot fail but by a full counter, which is readable, too.
  ::eventfd_write(fd_.get(), 1);
}

bool Interrupt::raised() const {
  pollfd look{fd_.get(), POLLIN, 0};
  return ::poll(&look, 1, 0) > 0;
}

void Interrupt::pause(base::Deadline until) const {
  pollfd wait{fd_.get(), POLLIN, 0};
  while (true) {
    const int ready = ::poll(&wait, 1, until.poll_timeout_ms());
    if (ready == 0) return;
    if (ready > 0) throw base::Error(base::ErrorCode::kAborted, "the wait was called off");
  }
}

}  // namespace dtrun::rendezvous
