// Backend 'mpi': groups of ranks that an MPI launcher has started, over Open MPI.
#include <fmt/core.h>

#include <cstdlib>

#include "adapter/adapter_backend.h"
#include "make_backend.h"
#include "mpi/mpi_library.h"

namespace dtrun::collectives {

using base::Deadline;
using base::Error;
using base::ErrorCode;

namespace {

/// The world of the launcher; 0: it does not say.
int launched_ranks() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"})
    if (const char* const text = std::getenv(name)) return std::atoi(text);
  return 0;
}

/// MPI starts in all of its processes, or in none.
void require_all_ranks(const GroupOptions& options) {
  const int all = launched_ranks();
  const int ours = static_cast<int>(options.global_ranks.size());
  if (mpi::MpiProcess::is_started() || all == 0 || ours == all) return;
  throw Error(ErrorCode::kUnavailable,
              fmt::format("the first group over backend 'mpi' has {} ranks, and MPI {}", ours, all),
              "MPI starts in all of its processes or in none",
              "make the first group over backend mpi of all ranks that mpirun starts");
}

std::string place_key(int rank) {
  return fmt::format("mpi/rank/{}", rank);
}

std::string place_in_mpi(int rank, int size) {
  return fmt::format("rank {} of {}", rank, size);
}

/// Every rank puts up which of MPI's ranks it is, so that all see the same mistake.
void require_equal_ranks(const GroupOptions& options, const mpi::MpiProcess& process,
                         Deadline deadline) {
  options.store->set(place_key(options.rank), place_in_mpi(process.rank(), process.size()));
  for (std::size_t rank = 0; rank < options.global_ranks.size(); ++rank) {
    const std::string place = options.store->get(place_key(static_cast<int>(rank)), deadline);
    const int ours = options.global_ranks[rank];
    if (place == place_in_mpi(ours, process.size())) continue;
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("rank {} of group '{}' is {} in MPI", ours, options.name, place),
                "over backend mpi the ranks are MPI's",
                "start all ranks with one mpirun and leave RANK and WORLD_SIZE to it");
  }
}

/// Groups of different names may be made at once by different threads.
int tag_of(const std::string& name) {
  constexpr unsigned kTags = 32768;  // that any MPI has
  unsigned tag = 0;
  for (const char letter : name) tag = (tag * 31 + static_cast<unsigned char>(letter)) % kTags;
  return static_cast<int>(tag);
}

}  // namespace

// Alone MPI would take this process for a world of one.
std::optional<Error> mpi_obstacle() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"})
    if (std::getenv(name) != nullptr) return mpi::open_mpi_obstacle();
  return Error(ErrorCode::kUnavailable, "backend 'mpi' cannot be used here",
               "no launcher of MPI's has started this process: OMPI_COMM_WORLD_RANK, PMIX_RANK and "
               "PMI_RANK are not set",
               "start the job with mpirun or srun --mpi=pmix; under dtrun use backend cpu or gloo");
}

std::unique_ptr<Backend> make_mpi_backend(const GroupOptions& options) {
  require_all_ranks(options);
  const Deadline deadline = options.joining_deadline();
  std::vector<Card> members = adapter::meet_members(options, deadline);
  mpi::MpiProcess& process = mpi::MpiProcess::get();
  require_equal_ranks(options, process, deadline);
  auto library = std::make_unique<mpi::MpiLibrary>(
      process,
      process.communicator(process.api().world, options.global_ranks, tag_of(options.name)));
  return std::make_unique<adapter::AdapterBackend>(std::move(library), options, std::move(members));
}

}  // namespace dtrun::collectives
