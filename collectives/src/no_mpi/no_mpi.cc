// Stands in for backend mpi, which this version does not have.
#include "make_backend.h"

namespace dtrun::collectives {

std::optional<base::Error> mpi_obstacle() {
  return base::Error(base::ErrorCode::kUnavailable, "backend 'mpi' is not built in",
                     "this version of dtrun has no adapter for MPI yet", "use backend cpu or gloo");
}

std::unique_ptr<Backend> make_mpi_backend(const GroupOptions&) {
  throw *mpi_obstacle();
}

}  // namespace dtrun::collectives
