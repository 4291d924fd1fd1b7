#include "dtrun/collectives/default_group.h"

#include "dtrun/base/error.h"

namespace dtrun::collectives {
namespace {

constinit thread_local const ProcessGroup* default_of_thread = nullptr;

}  // namespace

const ProcessGroup& default_group() {
  if (default_of_thread != nullptr) return *default_of_thread;
  throw base::Error(base::ErrorCode::kUsage, "the default process group has not been initialized",
                    "", "call dist::init_process_group() first, on this thread");
}

bool has_default_group() {
  return default_of_thread != nullptr;
}

void set_default_group(const ProcessGroup* group) {
  default_of_thread = group;
}

}  // namespace dtrun::collectives
