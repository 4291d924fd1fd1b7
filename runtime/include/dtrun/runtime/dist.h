// dist: torch.distributed's names over the current Worker of the calling thread, so that a program
// can be ported line by line (docs/dist.md). Each call is one line over the Worker and its groups.
// Ranks are global ranks, as in torch.distributed, also where a group is given; a rank that is not
// in the group fails the call on all of the group's ranks. Calls before init_process_group(), after
// destroy_process_group(), or with a group that this rank is no member of throw Error kUsage.
// Nothing inside the library uses this.
#pragma once

#include <chrono>
#include <concepts>
#include <optional>
#include <string>
#include <vector>

#include "dtrun/collectives/process_group.h"
#include "dtrun/collectives/register_backend.h"
#include "dtrun/dtensor/autograd/tensor.h"
#include "dtrun/dtensor/mesh/device_mesh.h"
#include "dtrun/runtime/worker.h"

namespace dtrun::dist {

using collectives::CallTiming;
using collectives::ProcessGroup;
using collectives::ReduceOp;
using collectives::register_backend;
using collectives::Work;
using dtensor::Tensor;
using Site = base::CallSite;

struct InitProcessGroup {
  /// "cpu", "gloo", "mpi", "nccl", "staged", one of register_backend(), or one per device:
  /// "cpu:cpu,cuda:nccl".
  std::string backend = "cpu";
  /// "env://", "tcp://HOST:PORT" (rank 0 serves the store there) or "file:///PATH" (a file that all
  /// ranks can reach). The last two need rank and world_size.
  std::string init_method = "env://";
  int rank = -1;        ///< -1: RANK of the environment
  int world_size = -1;  ///< -1: WORLD_SIZE of the environment
  base::Deadline::Duration timeout = std::chrono::minutes(30);
};
/// Joins the job. Where the backend serves CUDA tensors, makes this rank's GPU the current device.
/// Collective. @throws Error kUsage when called twice, or naming every missing variable
void init_process_group(InitProcessGroup options = {});
/// init_process_group("gloo"). A template, so that braces mean the options.
template <std::convertible_to<std::string> Name>
void init_process_group(const Name& backend) {
  init_process_group(InitProcessGroup{.backend = backend});
}
/// Leaves the job. A thread or program that ends without this call leaves, too, with a warning on
/// standard error. @throws Error kUsage when there is nothing to leave
void destroy_process_group();
/// Leaves that group only; if it is the world, the job.
void destroy_process_group(const ProcessGroup& group);
bool is_initialized();

runtime::Worker& current_worker();
/// All ranks: the default group.
const ProcessGroup& world();
/// Where this rank's tensors belong: its GPU where the backend serves CUDA tensors, else the cpu.
tensors::Device device();

/// Rank and size in `group`, by default the world; both are -1 where this rank is no member.
int get_rank(const ProcessGroup& group = {});
int get_world_size(const ProcessGroup& group = {});
std::string get_backend(const ProcessGroup& group = {});
/// Of this rank's calls from now on that name none. @throws Error kInvalidArgument unless it is
/// more than nothing
void set_timeout(base::Deadline::Duration timeout, const ProcessGroup& group = {});
/// This rank's calls of the group so far: how many, how many bytes, how long. A table:
/// print("{}", dist::call_counters().to_string()).
collectives::CallCounters call_counters(const ProcessGroup& group = {});
/// Which calls are timed from now on. At first the long ones; with DTRUN_TIME_CALLS=all all.
void set_call_timing(CallTiming timing, const ProcessGroup& group = {});
/// As ProcessGroup::abort(). On a thread that has not called init_process_group() the group must be
/// given.
void abort(const ProcessGroup& group = {}, const std::string& reason = "");
std::vector<int> get_process_group_ranks(const ProcessGroup& group = {});
/// @throws Error kInvalidArgument where the rank is not in the group
int get_group_rank(const ProcessGroup& group, int global_rank);
int get_global_rank(const ProcessGroup& group, int group_rank);

/// Whether a backend of that name is built in and can be used on this machine.
bool is_backend_available(const std::string& backend);
bool is_nccl_available();
bool is_gloo_available();
bool is_mpi_available();

struct NewGroup {
  std::optional<std::string> backend = std::nullopt;               ///< default: the world's
  std::optional<base::Deadline::Duration> timeout = std::nullopt;  ///< default: the world's
  std::string name = "";                                           ///< default: "group-N"
};
/// Collective over the world: every rank passes the same list, members or not. Ranks that are not
/// in the list get an invalid group, which no call takes. Empty: all ranks. Group ranks follow the
/// order of the global ranks, not of the list.
ProcessGroup new_group(std::vector<int> ranks = {}, NewGroup options = {},
                       Site site = Site::current());

struct Subgroups {
  ProcessGroup current;  ///< the one that this rank is in; invalid where it is in none
  std::vector<std::vector<int>> ranks;  ///< of all of them
};
/// Groups of `group_size` consecutive ranks. Collective over the world.
/// @param group_size 0: the ranks of a node @throws Error kInvalidArgument where it does not divide
/// the world
Subgroups new_subgroups(int group_size = 0, NewGroup options = {}, Site site = Site::current());
/// A group per list of global ranks; no rank stands in two. Collective over the world.
Subgroups new_subgroups_by_enumeration(std::vector<std::vector<int>> ranks_per_subgroup_list,
                                       NewGroup options = {}, Site site = Site::current());
/// As torch.distributed.split_group: a group per list of the parent's group ranks; the one that
/// this rank is in. Collective over the parent. @param parent default: the world
ProcessGroup split_group(const std::vector<std::vector<int>>& split_ranks,
                         const ProcessGroup& parent = {}, NewGroup options = {},
                         Site site = Site::current());

struct ShrinkGroup {
  std::optional<base::Deadline::Duration> timeout = std::nullopt;  ///< as ShrinkOptions::timeout
  std::optional<std::string> name = std::nullopt;                  ///< as ShrinkOptions::name
};
/// As torch.distributed.shrink_group: a group of those that are left, which alone call it; see
/// ProcessGroup::shrink(). The default group stays what it is: pass the new one as `group`.
/// @param ranks_to_exclude global ranks; empty: those that have ended, or do not come in time
ProcessGroup shrink_group(const std::vector<int>& ranks_to_exclude = {},
                          const ProcessGroup& group = {}, ShrinkGroup options = {});

/// The world in an N-dimensional grid. @param device_type "cpu" or "cuda"
dtensor::DeviceMesh init_device_mesh(const std::string& device_type, std::vector<int> shape,
                                     std::vector<std::string> axis_names = {});

/// What every collective takes, torch.distributed's keyword arguments.
struct OpOptions {
  ProcessGroup group = {};  ///< default: the world
  bool async_op = false;
  std::optional<base::Deadline::Duration> timeout = std::nullopt;  ///< default: the group's
  /// Of ReduceOp::premul_sum: this rank's. As torch's _make_nccl_premul_sum, on every backend.
  std::optional<double> factor = std::nullopt;
};

// See collectives::ProcessGroup for what each does. Tensors must be local: a distributed one is
// refused with Error kInvalidArgument; pass its to_local(). A tensor that is written counts as
// changed in place; no gradient flows. Without async_op the Work is done already.
Work broadcast(const Tensor& tensor, int src, OpOptions options = {}, Site site = Site::current());
Work all_reduce(const Tensor& tensor, ReduceOp op = ReduceOp::sum, OpOptions options = {},
                Site site = Site::current());
Work reduce(const Tensor& tensor, int dst, ReduceOp op = ReduceOp::sum, OpOptions options = {},
            Site site = Site::current());
Work all_gather(const std::vector<Tensor>& tensor_list, const Tensor& tensor,
                OpOptions options = {}, Site site = Site::current());
Work all_gather_into_tensor(const Tensor& output, const Tensor& input, OpOptions options = {},
                            Site site = Site::current());
/// @param gather_list on rank dst only
Work gather(const Tensor& tensor, const std::vector<Tensor>& gather_list, int dst,
            OpOptions options = {}, Site site = Site::current());
/// @param scatter_list on rank src only
Work scatter(const Tensor& tensor, const std::vector<Tensor>& scatter_list, int src,
             OpOptions options = {}, Site site = Site::current());
Work reduce_scatter(const Tensor& output, const std::vector<Tensor>& input_list,
                    ReduceOp op = ReduceOp::sum, OpOptions options = {},
                    Site site = Site::current());
Work reduce_scatter_tensor(const Tensor& output, const Tensor& input, ReduceOp op = ReduceOp::sum,
                           OpOptions options = {}, Site site = Site::current());
Work all_to_all(const std::vector<Tensor>& output_list, const std::vector<Tensor>& input_list,
                OpOptions options = {}, Site site = Site::current());
Work all_to_all_single(const Tensor& output, const Tensor& input,
                       const std::vector<std::int64_t>& output_split_sizes = {},
                       const std::vector<std::int64_t>& input_split_sizes = {},
                       OpOptions options = {}, Site site = Site::current());
// Several at once: all are started before one is waited for. The Work is that of all of them.
Work all_reduce_coalesced(const std::vector<Tensor>& tensors, ReduceOp op = ReduceOp::sum,
                          OpOptions options = {}, Site site = Site::current());
/// @param output_tensor_lists one list for each input
Work all_gather_coalesced(const std::vector<std::vector<Tensor>>& output_tensor_lists,
                          const std::vector<Tensor>& input_tensor_list, OpOptions options = {},
                          Site site = Site::current());
Work all_gather_into_tensor_coalesced(const std::vector<Tensor>& outputs,
                                      const std::vector<Tensor>& inputs, OpOptions options = {},
                                      Site site = Site::current());
Work reduce_scatter_tensor_coalesced(const std::vector<Tensor>& outputs,
                                     const std::vector<Tensor>& inputs, ReduceOp op = ReduceOp::sum,
                                     OpOptions options = {}, Site site = Site::current());
Work barrier(OpOptions options = {}, Site site = Site::current());

struct MonitoredBarrier {
  ProcessGroup group = {};
  std::optional<base::Deadline::Duration> timeout = std::nullopt;
  bool wait_all_ranks = false;
};
void monitored_barrier(MonitoredBarrier options = {}, Site site = Site::current());

struct MessageOptions {
  ProcessGroup group = {};
  std::uint32_t tag = 0;
  std::optional<base::Deadline::Duration> timeout = std::nullopt;
};
void send(const Tensor& tensor, int dst, MessageOptions options = {}, Site site = Site::current());
/// @param src -1: from any rank. @return the sender's global rank
int recv(const Tensor& tensor, int src = -1, MessageOptions options = {},
         Site site = Site::current());
Work isend(const Tensor& tensor, int dst, MessageOptions options = {}, Site site = Site::current());
Work irecv(const Tensor& tensor, int src = -1, MessageOptions options = {},
           Site site = Site::current());

struct P2POp {
  using Kind = collectives::P2POp::Kind;
  Kind kind;
  Tensor tensor;
  int peer = 0;  ///< global rank
  std::uint32_t tag = 0;
};
std::vector<Work> batch_isend_irecv(const std::vector<P2POp>& operations,
                                    const ProcessGroup& group = {}, Site site = Site::current());

}  // namespace dtrun::dist
