// Stands in for nccl/ where the build had no CUDA toolkit.
#include "make_backend.h"
#include "nccl/nccl_api.h"

namespace dtrun::collectives {

std::optional<base::Error> nccl_obstacle() {
  return base::Error(base::ErrorCode::kUnavailable, "backend 'nccl' is not built in",
                     "no CUDA toolkit with NCCL was found when dtrun was configured",
                     "configure with --preset cuda");
}

std::shared_ptr<nccl::NcclApi> nccl::real_nccl_api() {
  throw *nccl_obstacle();
}

std::unique_ptr<Backend> make_nccl_backend(const GroupOptions&) {
  throw *nccl_obstacle();
}

}  // namespace dtrun::collectives
