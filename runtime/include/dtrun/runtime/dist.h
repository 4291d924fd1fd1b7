// dist: torch.distributed's names over the current Worker of the calling thread, so that a program
// can be ported line by line. Each call is one line over the Worker and its world group. Calls
// before init_process_group() throw Error kUsage. Nothing inside the library uses this.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "dtrun/collectives/process_group.h"
#include "dtrun/dtensor/device_mesh.h"
#include "dtrun/runtime/worker.h"

namespace dtrun::dist {

using collectives::ProcessGroup;
using collectives::ReduceOp;
using tensors::Tensor;
using Site = std::source_location;

struct InitProcessGroup {
  std::string backend = "cpu";
  base::Deadline::Duration timeout = std::chrono::minutes(30);
};
/// Reads the environment that the launcher made and joins the job. @throws Error kUsage when called
/// twice
void init_process_group(InitProcessGroup options = {});
/// Leaves the job. @throws Error kUsage when there is nothing to leave
void destroy_process_group();
bool is_initialized();

runtime::Worker& current_worker();
int get_rank();
int get_world_size();
std::string get_backend();

/// The world in an N-dimensional grid. @param device_type "cpu" or "cuda"
dtensor::DeviceMesh init_device_mesh(const std::string& device_type, std::vector<int> shape,
                                     std::vector<std::string> axis_names = {});

// On the world group; see collectives::ProcessGroup for what each does.
void broadcast(const Tensor& tensor, int src, Site site = Site::current());
void all_reduce(const Tensor& tensor, ReduceOp op = ReduceOp::sum, Site site = Site::current());
void send(const Tensor& tensor, int dst, Site site = Site::current());
/// @return the sender's rank
int recv(const Tensor& tensor, int src, Site site = Site::current());
void barrier(Site site = Site::current());

}  // namespace dtrun::dist
