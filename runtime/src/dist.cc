#include "dtrun/runtime/dist.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "dtrun/base/error.h"

namespace dtrun::dist {
namespace {

using base::Error;
using base::ErrorCode;

thread_local std::optional<runtime::Worker> the_worker;

/// The group that a call means: none given is the world.
const ProcessGroup& chosen(const ProcessGroup& group) {
  return group.valid() ? group : world();
}

collectives::CallOptions call_options(const OpOptions& options) {
  return {.async = options.async_op, .timeout = options.timeout};
}

collectives::CallOptions call_options(const MessageOptions& options) {
  return {.timeout = options.timeout};
}

/// -1, any rank, stays what it is.
int peer_in(const ProcessGroup& group, int global_rank) {
  return global_rank == -1 ? -1 : get_group_rank(group, global_rank);
}

}  // namespace

void init_process_group(InitProcessGroup options) {
  if (the_worker)
    throw Error(ErrorCode::kUsage, "trying to initialize the default process group twice", "",
                "call dist::destroy_process_group() first");
  runtime::InitOptions init;
  init.backend = std::move(options.backend);
  init.timeout = options.timeout;
  the_worker.emplace(runtime::init(std::move(init)));
}

void init_process_group(const std::string& backend) {
  init_process_group(InitProcessGroup{.backend = backend});
}

void destroy_process_group() {
  current_worker();
  the_worker.reset();
}

bool is_initialized() {
  return the_worker.has_value();
}

runtime::Worker& current_worker() {
  if (!the_worker)
    throw Error(ErrorCode::kUsage, "the default process group has not been initialized", "",
                "call dist::init_process_group() first, on this thread");
  return *the_worker;
}

const ProcessGroup& world() {
  return current_worker().world();
}
tensors::Device device() {
  return current_worker().device();
}

int get_rank(const ProcessGroup& group) {
  const std::vector<int> ranks = chosen(group).global_ranks();
  const auto found = std::find(ranks.begin(), ranks.end(), current_worker().rank());
  return found == ranks.end() ? -1 : static_cast<int>(found - ranks.begin());
}
int get_world_size(const ProcessGroup& group) {
  return chosen(group).size();
}
std::string get_backend(const ProcessGroup& group) {
  return chosen(group).backend_name();
}
std::vector<int> get_process_group_ranks(const ProcessGroup& group) {
  return chosen(group).global_ranks();
}

int get_group_rank(const ProcessGroup& group, int global_rank) {
  const std::vector<int>& ranks = chosen(group).global_ranks();
  const auto found = std::find(ranks.begin(), ranks.end(), global_rank);
  if (found == ranks.end())
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("rank {} is not in {}", global_rank, chosen(group).to_string()), "",
                "dist:: names ranks by their global rank, also within a group");
  return static_cast<int>(found - ranks.begin());
}

int get_global_rank(const ProcessGroup& group, int group_rank) {
  const std::vector<int>& ranks = chosen(group).global_ranks();
  if (group_rank < 0 || static_cast<std::size_t>(group_rank) >= ranks.size())
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("no rank {} in {}", group_rank, chosen(group).to_string()));
  return ranks[static_cast<std::size_t>(group_rank)];
}

dtensor::DeviceMesh init_device_mesh(const std::string& device_type, std::vector<int> shape,
                                     std::vector<std::string> axis_names) {
  return {world(), std::move(shape), std::move(axis_names),
          tensors::Device::parse(device_type).type};
}

Work broadcast(const Tensor& tensor, int src, OpOptions options, Site site) {
  const ProcessGroup& group = chosen(options.group);
  return group.broadcast(tensor, get_group_rank(group, src), call_options(options), site);
}
Work all_reduce(const Tensor& tensor, ReduceOp op, OpOptions options, Site site) {
  return chosen(options.group).all_reduce(tensor, op, call_options(options), site);
}
void send(const Tensor& tensor, int dst, MessageOptions options, Site site) {
  const ProcessGroup& group = chosen(options.group);
  group.send(tensor, get_group_rank(group, dst), options.tag, call_options(options), site);
}
int recv(const Tensor& tensor, int src, MessageOptions options, Site site) {
  const ProcessGroup& group = chosen(options.group);
  return get_global_rank(
      group, group.recv(tensor, peer_in(group, src), options.tag, call_options(options), site));
}
Work barrier(OpOptions options, Site site) {
  return chosen(options.group).barrier(call_options(options), site);
}

}  // namespace dtrun::dist
