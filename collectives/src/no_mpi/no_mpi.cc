// Stands in for mpi/ where the build had no MPI.
#include "make_backend.h"

namespace dtrun::collectives {

std::optional<base::Error> mpi_obstacle() {
  return base::Error(base::ErrorCode::kUnavailable, "backend 'mpi' is not built in",
                     "no MPI was found when dtrun was configured",
                     "install its development package and configure again");
}

std::unique_ptr<Backend> make_mpi_backend(const GroupOptions&) {
  throw *mpi_obstacle();
}

}  // namespace dtrun::collectives
