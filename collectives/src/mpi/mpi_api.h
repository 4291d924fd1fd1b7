// MpiApi: the functions and constants of Open MPI that backend 'mpi' uses. The library is opened
// when a group first needs it, not linked: a program without MPI does not load its 20 libraries.
// Open MPI's constants are addresses of its variables, so they can be asked for by name.
#pragma once

#include <mpi.h>

#include <optional>

#include "dtrun/base/error.h"

namespace dtrun::collectives::mpi {

struct MpiApi {
  decltype(&MPI_Init_thread) init_thread;
  decltype(&MPI_Initialized) initialized;
  decltype(&MPI_Finalized) finalized;
  decltype(&MPI_Query_thread) query_thread;
  decltype(&MPI_Finalize) finalize;
  decltype(&MPI_Error_string) error_string;
  decltype(&MPI_Comm_rank) comm_rank;
  decltype(&MPI_Comm_size) comm_size;
  decltype(&MPI_Comm_get_attr) comm_get_attr;
  decltype(&MPI_Comm_group) comm_group;
  decltype(&MPI_Comm_create_group) comm_create_group;
  decltype(&MPI_Comm_set_errhandler) comm_set_errhandler;
  decltype(&MPI_Group_incl) group_incl;
  decltype(&MPI_Group_free) group_free;
  decltype(&MPI_Op_create) op_create;
  decltype(&MPI_Isend) isend;
  decltype(&MPI_Irecv) irecv;
  decltype(&MPI_Ibarrier) ibarrier;
  decltype(&MPI_Ibcast) ibcast;
  decltype(&MPI_Ireduce) ireduce;
  decltype(&MPI_Iallreduce) iallreduce;
  decltype(&MPI_Testall) testall;
  decltype(&MPI_Cancel) cancel;
  decltype(&MPI_Request_free) request_free;
  decltype(&MPI_Get_count) get_count;

  MPI_Comm world;
  MPI_Request no_request;
  MPI_Errhandler errors_return;
  MPI_Datatype bytes_1;  ///< opaque items of that size
  MPI_Datatype bytes_2;
  MPI_Datatype bytes_4;
  MPI_Datatype bytes_8;
};

struct OpenedMpi {
  MpiApi api{};
  std::optional<base::Error> obstacle;  ///< then the api is not complete
};
OpenedMpi open_library(const char* file);

/// Why Open MPI cannot be opened on this machine. A second call costs nothing.
std::optional<base::Error> open_mpi_obstacle();
/// @throws Error that obstacle
const MpiApi& open_mpi();

}  // namespace dtrun::collectives::mpi
