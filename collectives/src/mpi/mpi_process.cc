#include "mpi/mpi_process.h"

#include <fmt/core.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>

namespace dtrun::collectives::mpi {

using base::Deadline;
using base::Error;
using base::ErrorCode;

namespace {

/// How long a rank whose group has failed waits at its exit for the others: until they have read
/// why it failed. mpirun ends all ranks as soon as one exits without having ended MPI.
constexpr auto kFailedPatience = std::chrono::seconds(3);

/// Process-wide, as MPI is.
std::atomic<bool> started{false};

}  // namespace

// Never destroyed: MPI may touch what is kept until the process ends.
MpiProcess& MpiProcess::get() {
  static MpiProcess* const process = [] {
    auto* const made = new MpiProcess;
    std::atexit([] { get().at_exit(); });
    started = true;
    return made;
  }();
  return *process;
}

bool MpiProcess::is_started() {
  return started;
}

MpiProcess::MpiProcess() : api_(open_mpi()) {
  int over = 0;
  api_.finalized(&over);
  if (over != 0)
    throw Error(ErrorCode::kUnavailable, "backend 'mpi' cannot start MPI again",
                "this process has called MPI_Finalize",
                "leave all groups of backend mpi before MPI_Finalize");
  int begun = 0;
  api_.initialized(&begun);
  int threads = MPI_THREAD_SINGLE;
  is_ours_ = begun == 0;
  if (is_ours_) {
    require(api_.init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &threads), "MPI_Init_thread");
    require(api_.comm_set_errhandler(api_.world, api_.errors_return), "MPI_Comm_set_errhandler");
  } else {
    require(api_.query_thread(&threads), "MPI_Query_thread");
  }
  if (threads < MPI_THREAD_MULTIPLE)
    throw Error(ErrorCode::kUnavailable, "backend 'mpi' needs MPI with MPI_THREAD_MULTIPLE",
                "MPI was started with less in this process",
                "call MPI_Init_thread with MPI_THREAD_MULTIPLE, or leave it to dtrun");
  require(api_.comm_rank(api_.world, &rank_), "MPI_Comm_rank");
  require(api_.comm_size(api_.world, &size_), "MPI_Comm_size");
  int* bound = nullptr;
  int found = 0;
  require(api_.comm_get_attr(api_.world, MPI_TAG_UB, &bound, &found), "MPI_Comm_get_attr");
  // What the standard promises at least.
  largest_tag_ = found != 0 ? *bound : 32767;
}

void MpiProcess::require(int result, const char* call) const {
  if (result == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  api_.error_string(result, text, &length);
  throw Error(ErrorCode::kSystem, fmt::format("{} failed", call),
              std::string(text, static_cast<std::size_t>(length)), "look at mpirun's output, too");
}

MPI_Comm MpiProcess::communicator(MPI_Comm parent, const std::vector<int>& ranks, int tag) const {
  MPI_Group all = nullptr;
  MPI_Group members = nullptr;
  MPI_Comm made = nullptr;
  require(api_.comm_group(parent, &all), "MPI_Comm_group");
  require(api_.group_incl(all, static_cast<int>(ranks.size()), ranks.data(), &members),
          "MPI_Group_incl");
  require(api_.comm_create_group(parent, members, tag, &made), "MPI_Comm_create_group");
  require(api_.comm_set_errhandler(made, api_.errors_return), "MPI_Comm_set_errhandler");
  require(api_.group_free(&members), "MPI_Group_free");
  require(api_.group_free(&all), "MPI_Group_free");
  return made;
}

void MpiProcess::keep(std::shared_ptr<void> memory) {
  const std::scoped_lock lock(mutex_);
  kept_.push_back(std::move(memory));
}

// ---- the end

void MpiProcess::group_joined() {
  const std::scoped_lock lock(mutex_);
  ++groups_;
}

void MpiProcess::group_left(End end_of_group) {
  {
    const std::scoped_lock lock(mutex_);
    --groups_;
    failed_ = failed_ || end_of_group == End::failed;
  }
  end();
}

void MpiProcess::at_exit() {
  {
    const std::scoped_lock lock(mutex_);
    exiting_ = true;
  }
  end();
}

// After main() and after all groups, whichever comes last: a group may be left by the destructor of
// a static object. A group that is never left keeps MPI from its end, and mpirun tells so.
void MpiProcess::end() {
  {
    const std::scoped_lock lock(mutex_);
    if (!is_ours_ || !exiting_ || groups_ > 0 || std::exchange(ended_, true)) return;
  }
  // MPI_Finalize waits for all ranks, however long; of one that has failed they may never come.
  if (all_have_come(failed_ ? Deadline::after(kFailedPatience) : Deadline::never()))
    api_.finalize();
}

bool MpiProcess::all_have_come(Deadline deadline) const {
  MPI_Request request = api_.no_request;
  if (api_.ibarrier(api_.world, &request) != MPI_SUCCESS) return false;
  int done = 0;
  while (done == 0) {
    if (api_.testall(1, &request, &done, MPI_STATUSES_IGNORE) != MPI_SUCCESS) return false;
    if (done == 0 && deadline.expired()) return false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace dtrun::collectives::mpi
