#include "nccl/nccl_backend.h"

#include <fmt/core.h>

#include <utility>

#include "nccl/nccl_types.h"

namespace dtrun::collectives::nccl {

using base::Error;
using base::ErrorCode;

NcclBackend::NcclBackend(std::shared_ptr<NcclGroup> group) : group_(std::move(group)) {}

// Before the group's last handle can be one that a Work holds: the group is left now.
NcclBackend::~NcclBackend() {
  group_->shutdown();
}

std::optional<Error> NcclBackend::lacks(OpKind kind, tensors::DType dtype, ReduceOp op) const {
  if (kind != OpKind::all_reduce && kind != OpKind::reduce && kind != OpKind::reduce_scatter)
    return std::nullopt;
  try {
    reduction(op, dtype);
    return std::nullopt;
  } catch (const Error& error) {
    return error;
  }
}

Composer NcclBackend::composer(const Buffer& buffer, const std::vector<Buffer>& list) const {
  for (const Buffer& other : list)
    if (other.device_index != buffer.device_index)
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("one call has tensors on cuda:{} and on cuda:{}", buffer.device_index,
                              other.device_index),
                  "a collective runs on one GPU per rank", "move them to one device");
  return {group_->world().nccl, group_->world().device, buffer.device_index, rank()};
}

Work NcclBackend::broadcast(Buffer buffer, int source, Call call) {
  return group_->run(composer(buffer).broadcast(buffer, source), std::move(call));
}

Work NcclBackend::all_reduce(Buffer input, Buffer output, ReduceOp op, Call call) {
  const Reduction combine = reduction(op, input.dtype);
  return group_->run(composer(input).all_reduce(input, output, combine), std::move(call));
}

Work NcclBackend::reduce(Buffer input, Buffer output, int destination, ReduceOp op, Call call) {
  const Reduction combine = reduction(op, input.dtype);
  return group_->run(composer(input).reduce(input, output, destination, combine), std::move(call));
}

Work NcclBackend::all_gather(Buffer input, std::vector<Buffer> outputs, Call call) {
  const Composer compose = composer(input, outputs);
  return group_->run(compose.all_gather(input, std::move(outputs)), std::move(call));
}

Work NcclBackend::gather(Buffer input, std::vector<Buffer> outputs, int destination, Call call) {
  const Composer compose = composer(input, outputs);
  return group_->run(compose.gather(input, std::move(outputs), destination), std::move(call));
}

Work NcclBackend::scatter(Buffer output, std::vector<Buffer> inputs, int source, Call call) {
  const Composer compose = composer(output, inputs);
  return group_->run(compose.scatter(output, std::move(inputs), source), std::move(call));
}

Work NcclBackend::reduce_scatter(Buffer output, std::vector<Buffer> inputs, ReduceOp op,
                                 Call call) {
  const Reduction combine = reduction(op, output.dtype);
  const Composer compose = composer(output, inputs);
  return group_->run(compose.reduce_scatter(output, std::move(inputs), combine), std::move(call));
}

Work NcclBackend::all_to_all(std::vector<Buffer> outputs, std::vector<Buffer> inputs, Call call) {
  const Composer compose = composer(inputs.front(), outputs);
  return group_->run(compose.all_to_all(std::move(outputs), std::move(inputs)), std::move(call));
}

Work NcclBackend::barrier(Call call) {
  Buffer nothing;
  nothing.device_index = group_->default_device();
  return group_->run(composer(nothing).barrier(), std::move(call));
}

Work NcclBackend::message(Buffer buffer, LaneKey lane, std::uint32_t tag, Call call) {
  if (tag != 0)
    throw Error(ErrorCode::kUnavailable, fmt::format("backend 'nccl' has no tags, and got {}", tag),
                "NCCL matches the messages between two ranks in their order",
                "leave the tag out, or use backend 'staged'");
  const Composer compose = composer(buffer);
  const bool sends = call.fingerprint.kind == OpKind::send;
  return group_->run(sends ? compose.send(buffer, lane) : compose.receive(buffer, lane),
                     std::move(call));
}

Work NcclBackend::send(Buffer buffer, int destination, std::uint32_t tag, Call call) {
  call.fingerprint.kind = OpKind::send;
  return message(buffer, {buffer.device_index, rank(), destination}, tag, std::move(call));
}

Work NcclBackend::receive(Buffer buffer, int source, std::uint32_t tag, Call call) {
  if (source < 0)
    throw Error(ErrorCode::kUnavailable, "backend 'nccl' cannot receive from any rank",
                "NCCL must know the sender", "name the source, or use backend 'staged'");
  call.fingerprint.kind = OpKind::receive;
  return message(buffer, {buffer.device_index, source, rank()}, tag, std::move(call));
}

std::unique_ptr<Backend> NcclBackend::split(const std::vector<int>& ranks, int list_index,
                                            const std::string& name, Call call) {
  const NcclGroupSpec& parent = group_->spec();
  NcclGroupSpec child;
  child.key = fmt::format("{}/{}.{}", parent.key, call.fingerprint.sequence, list_index);
  child.name = name;
  child.timeout = parent.timeout;
  for (const int rank_in_parent : ranks) {
    if (rank_in_parent == rank()) child.rank = static_cast<int>(child.global_ranks.size());
    child.global_ranks.push_back(parent.global_ranks[static_cast<std::size_t>(rank_in_parent)]);
  }
  std::optional<int> color;
  if (!ranks.empty()) color = list_index;
  const std::shared_ptr<NcclGroup> group = group_->split(std::move(child), color, call);
  if (!group) return nullptr;
  return std::make_unique<NcclBackend>(group);
}

void NcclBackend::reject(const Fingerprint& fingerprint, const Error& error) {
  group_->reject(fingerprint, error);
}

}  // namespace dtrun::collectives::nccl
