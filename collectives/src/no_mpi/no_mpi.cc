// Stands in for mpi/ where the build found no Open MPI.
#include "make_backend.h"

namespace dtrun::collectives {

std::optional<base::Error> mpi_obstacle() {
  return base::Error(
      base::ErrorCode::kUnavailable, "backend 'mpi' is not built in",
      "no Open MPI was found when dtrun was configured",
      "install libopenmpi-dev, then configure and build dtrun again, or use backend cpu or gloo");
}

std::unique_ptr<Backend> make_mpi_backend(const GroupOptions&) {
  throw *mpi_obstacle();
}

}  // namespace dtrun::collectives
