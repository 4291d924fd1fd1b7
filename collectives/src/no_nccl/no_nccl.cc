// Stands in for nccl/nccl_backend.cc where the build had no CUDA toolkit.
#include <fmt/core.h>

#include "dtrun/base/error.h"
#include "make_backend.h"

namespace dtrun::collectives {

bool nccl_is_built() {
  return false;
}

std::unique_ptr<Backend> make_nccl_backend(const GroupOptions&) {
  throw base::Error(
      base::ErrorCode::kUnavailable, "backend 'nccl' is not built in",
      "no CUDA toolkit with NCCL was found when dtrun was configured",
      fmt::format("configure with --preset cuda, or use one of: {}", built_backends()));
}

}  // namespace dtrun::collectives
