// The worker environment: what the launcher writes and the worker reads, by torchrun's names and
// values, and the names of our own. Written by launcher, read by runtime; frozen
// (docs/architecture.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dtrun/base/env.h"

namespace dtrun::rendezvous {

struct WorkerEnv {
  int rank = 0;
  int local_rank = 0;
  int world_size = 1;
  int local_world_size = 1;
  int group_rank = 0;        ///< the node's number
  int group_world_size = 1;  ///< how many nodes
  int role_rank = 0;
  int role_world_size = 1;
  std::string role_name = "default";
  std::string master_addr;
  std::uint16_t master_port = 0;
  int restart_count = 0;
  int max_restarts = 0;
  std::string run_id = "none";
  bool use_agent_store = true;  ///< every rank connects; nobody hosts the store
  std::string error_file;       ///< empty: none
  /// What the store asks its clients for, a Token's text, which dtrun's know and PyTorch's cannot
  /// (DTRUN_STORE_TOKEN); empty: nothing.
  std::string store_token;
  int job_page_fd = -1;  ///< DTRUN_JOB_PAGE_FD; -1: none (started by torchrun or by hand)
  /// DTRUN_JOB_PAGE_ID, JobPage::id(): descriptors get lost and their numbers reused between the
  /// launcher and the worker. Empty: the launcher is an older one.
  std::string job_page_id;
};

/// Sets every variable of torchrun's contract (RANK ... TORCHELASTIC_ERROR_FILE,
/// TORCH_NCCL_ASYNC_ERROR_HANDLING where unset), DTRUN_JOB_PAGE_FD and DTRUN_JOB_PAGE_ID.
/// OMP_NUM_THREADS is the plan's.
void write_worker_env(const WorkerEnv& worker, base::Environment& environment);

/// By which a worker finds the job page.
inline constexpr const char* kJobPageNames[] = {"DTRUN_JOB_PAGE_FD", "DTRUN_JOB_PAGE_ID"};
void forget_job_page(base::Environment& environment);

/// A folder that Open MPI's mpirun has made for this run of its, where it has started all ranks on
/// this machine and nobody has said where they meet (MASTER_ADDR, MASTER_PORT, RANK); else empty.
std::string mpirun_folder(const base::Environment& environment);

/// optional: for ranks that meet elsewhere than at the store of MASTER_ADDR and MASTER_PORT.
enum class MasterAddress { needed, optional };

/// Reads it back. Where unset: RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE are those of
/// mpirun (OMPI_COMM_WORLD_*, PMI_RANK, PMI_SIZE, MPI_LOCAL*); LOCAL_RANK is RANK, LOCAL_WORLD_SIZE
/// is WORLD_SIZE, the roles' are the world's, GROUP_RANK is 0, use_agent_store is false (RANK 0
/// hosts the store).
/// @throws Error kUsage: one for all that is missing of RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT,
/// with how to start; a number that is none; numbers that contradict (RANK >= WORLD_SIZE)
WorkerEnv read_worker_env(const base::Environment& environment,
                          MasterAddress master = MasterAddress::needed);

}  // namespace dtrun::rendezvous
