// Stands in for through_host/ where the build had no CUDA toolkit.
#include "make_backend.h"

namespace dtrun::collectives {

std::optional<base::Error> staged_obstacle() {
  return base::Error(base::ErrorCode::kUnavailable, "backend 'staged' is not built in",
                     "no CUDA toolkit was found when dtrun was configured",
                     "configure with --preset cuda");
}

std::unique_ptr<Backend> make_staged_backend(const GroupOptions&) {
  throw *staged_obstacle();
}

}  // namespace dtrun::collectives
