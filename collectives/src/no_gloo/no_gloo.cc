// Stands in for gloo/ where the build found no libgloo.
#include "make_backend.h"

namespace dtrun::collectives {

std::optional<base::Error> gloo_obstacle() {
  return base::Error(
      base::ErrorCode::kUnavailable, "backend 'gloo' is not built in",
      "no libgloo was found when dtrun was configured",
      "install libgloo-dev, then configure and build dtrun again, or use backend cpu");
}

std::unique_ptr<Backend> make_gloo_backend(const GroupOptions&) {
  throw *gloo_obstacle();
}

}  // namespace dtrun::collectives
