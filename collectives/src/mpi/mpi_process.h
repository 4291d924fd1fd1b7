// MpiProcess: MPI's life in this process. It is started by the first group and ended at the
// process's exit, for MPI can be started once only; hence the one object. Thread-safe.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "dtrun/base/deadline.h"
#include "mpi/mpi_api.h"

namespace dtrun::collectives::mpi {

class MpiProcess {
 public:
  /// Starts MPI, unless the program has. @throws Error kUnavailable where MPI is over already, or
  /// has no threads
  static MpiProcess& get();
  /// By get(), in this process.
  static bool is_started();

  const MpiApi& api() const { return api_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  int largest_tag() const { return largest_tag_; }
  /// @throws Error kSystem with MPI's words unless the call has succeeded
  void require(int result, const char* call) const;

  /// Collective over those ranks of the parent. @param tag tells apart what is made at once
  MPI_Comm communicator(MPI_Comm parent, const std::vector<int>& ranks, int tag) const;

  void group_joined();
  /// @param failed the process may have messages that never arrive
  enum class End { clean, failed };
  void group_left(End end);
  /// To the process's end: MPI writes to and reads from the memory of what it has begun.
  void keep(std::shared_ptr<void> memory);

 private:
  MpiProcess();
  void at_exit();
  void end();
  bool all_have_come(base::Deadline deadline) const;

  const MpiApi& api_;
  bool is_ours_ = false;  ///< to end
  int rank_ = -1;
  int size_ = 0;
  int largest_tag_ = 0;

  std::mutex mutex_;
  int groups_ = 0;
  bool failed_ = false;
  bool exiting_ = false;
  bool ended_ = false;
  std::vector<std::shared_ptr<void>> kept_;
};

}  // namespace dtrun::collectives::mpi
