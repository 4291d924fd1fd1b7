#include "make_backend.h"

#include <fmt/core.h>

#include "cpu/cpu_backend.h"
#include "dtrun/base/error.h"

namespace dtrun::collectives {

std::string built_backends() {
  return nccl_is_built() ? "cpu, nccl" : "cpu";
}

std::unique_ptr<Backend> make_backend(const GroupOptions& options) {
  if (options.backend == "cpu") return cpu::CpuBackend::create(options);
  if (options.backend == "nccl") return make_nccl_backend(options);
  throw base::Error(base::ErrorCode::kInvalidArgument,
                    fmt::format("no backend '{}'", options.backend), "",
                    fmt::format("the backends built in are: {}", built_backends()));
}

}  // namespace dtrun::collectives
