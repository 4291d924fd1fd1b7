#include "openblas.h"

#include <fmt/core.h>

#include "dtrun/base/dynamic_library.h"
#include "dtrun/base/error.h"

namespace dtrun::tensors {
namespace {

base::Error unavailable(const std::string& why) {
  return base::Error(base::ErrorCode::kUnavailable, "cannot multiply matrices: no OpenBLAS", why,
                     "install OpenBLAS (libopenblas0), or name its folder in LD_LIBRARY_PATH");
}

}  // namespace

OpenBlas open_blas(const std::vector<std::string>& files) {
  const base::DynamicLibrary library(files);
  if (!library.opened()) throw unavailable(library.reason());
  OpenBlas blas{};
  if (!library.find("cblas_sgemm", blas.sgemm) || !library.find("cblas_dgemm", blas.dgemm))
    throw unavailable(fmt::format("{} lacks cblas_sgemm or cblas_dgemm", files.front()));
  // The calling thread's pool deals the tiles; not every build has this call.
  void (*set_threads)(int) = nullptr;
  if (library.find("openblas_set_num_threads", set_threads)) set_threads(1);
  return blas;
}

const OpenBlas& openblas() {
  // Its interface has been version 0 for as long as there are versions.
  static const OpenBlas opened = open_blas({"libopenblas.so.0", "libopenblas.so"});
  return opened;
}

}  // namespace dtrun::tensors
