#include "fork_server.h"

#include "dtrun/base/check.h"
#include "dtrun/base/error.h"

namespace dtrun::mp {

void serve_forks() {
  DT_CHECK(false);
  __builtin_unreachable();
}

StartedProcess::Parts start_served(const Order&) {
  throw base::Error(base::ErrorCode::kUnavailable, "forkserver is not there yet");
}

void stop_fork_server() {}

}  // namespace dtrun::mp
