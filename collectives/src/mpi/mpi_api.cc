#include "mpi/mpi_api.h"

#include <fmt/core.h>

#include <string>

#include "dtrun/base/dynamic_library.h"

namespace dtrun::collectives::mpi {

using base::DynamicLibrary;
using base::Error;
using base::ErrorCode;

namespace {

Error obstacle(const std::string& linker_says) {
  return Error(ErrorCode::kUnavailable, "backend 'mpi' cannot be used here: no Open MPI",
               linker_says,
               "install Open MPI (libopenmpi3), or name its folder in LD_LIBRARY_PATH");
}

/// Finds names until one is missing.
class Finder {
 public:
  explicit Finder(const DynamicLibrary& library) : library_(library) {}

  template <typename Function>
  void function(Function& to, const char* name) {
    to = reinterpret_cast<Function>(find(name));
  }
  template <typename Handle>
  void constant(Handle& to, const char* variable) {
    to = static_cast<Handle>(find(variable));
  }
  const std::optional<Error>& obstacle() const { return obstacle_; }

 private:
  void* find(const char* name) {
    void* found = library_.find(name);
    if (found == nullptr && !obstacle_)
      obstacle_ = mpi::obstacle(fmt::format("the library has no {}", name));
    return found;
  }

  const DynamicLibrary& library_;
  std::optional<Error> obstacle_;
};

void find_functions(Finder& finder, MpiApi& api) {
  finder.function(api.init_thread, "MPI_Init_thread");
  finder.function(api.initialized, "MPI_Initialized");
  finder.function(api.finalized, "MPI_Finalized");
  finder.function(api.query_thread, "MPI_Query_thread");
  finder.function(api.finalize, "MPI_Finalize");
  finder.function(api.error_string, "MPI_Error_string");
  finder.function(api.comm_rank, "MPI_Comm_rank");
  finder.function(api.comm_size, "MPI_Comm_size");
  finder.function(api.comm_get_attr, "MPI_Comm_get_attr");
  finder.function(api.comm_group, "MPI_Comm_group");
  finder.function(api.comm_create_group, "MPI_Comm_create_group");
  finder.function(api.comm_set_errhandler, "MPI_Comm_set_errhandler");
  finder.function(api.group_incl, "MPI_Group_incl");
  finder.function(api.group_free, "MPI_Group_free");
  finder.function(api.op_create, "MPI_Op_create");
  finder.function(api.isend, "MPI_Isend");
  finder.function(api.irecv, "MPI_Irecv");
  finder.function(api.ibarrier, "MPI_Ibarrier");
  finder.function(api.ibcast, "MPI_Ibcast");
  finder.function(api.ireduce, "MPI_Ireduce");
  finder.function(api.iallreduce, "MPI_Iallreduce");
  finder.function(api.testall, "MPI_Testall");
  finder.function(api.cancel, "MPI_Cancel");
  finder.function(api.request_free, "MPI_Request_free");
  finder.function(api.get_count, "MPI_Get_count");
}

// What mpi.h's macros name.
void find_constants(Finder& finder, MpiApi& api) {
  finder.constant(api.world, "ompi_mpi_comm_world");
  finder.constant(api.no_request, "ompi_request_null");
  finder.constant(api.errors_return, "ompi_mpi_errors_return");
  finder.constant(api.bytes_1, "ompi_mpi_uint8_t");
  finder.constant(api.bytes_2, "ompi_mpi_uint16_t");
  finder.constant(api.bytes_4, "ompi_mpi_uint32_t");
  finder.constant(api.bytes_8, "ompi_mpi_uint64_t");
}

/// One per process: a library is loaded once.
const OpenedMpi& opened() {
  static const OpenedMpi once = open_library(DTRUN_MPI_LIBRARY);
  return once;
}

}  // namespace

// Open MPI's own plugins look for its names, too: they must be global.
OpenedMpi open_library(const char* file) {
  OpenedMpi opened;
  const DynamicLibrary library({file}, DynamicLibrary::Visibility::global);
  if (!library.opened()) {
    opened.obstacle = obstacle(library.reason());
    return opened;
  }
  Finder finder(library);
  find_functions(finder, opened.api);
  find_constants(finder, opened.api);
  opened.obstacle = finder.obstacle();
  return opened;
}

std::optional<Error> open_mpi_obstacle() {
  return opened().obstacle;
}

const MpiApi& open_mpi() {
  if (opened().obstacle) throw *opened().obstacle;
  return opened().api;
}

}  // namespace dtrun::collectives::mpi
