#include "nccl/nccl_backend.h"

#include <fmt/core.h>

#include <map>
#include <optional>
#include <span>
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

std::optional<Error> NcclBackend::lacks(const Fingerprint& fingerprint) const {
  if (!is_reduction(fingerprint.kind)) return std::nullopt;
  try {
    reduction(fingerprint.reduce_op, fingerprint.dtype);
    return std::nullopt;
  } catch (const Error& error) {
    return error;
  }
}

Composer NcclBackend::composer(int device) const {
  return {group_->world().nccl, group_->world().device, device, rank()};
}

int NcclBackend::device_of(const CollectiveView& collective) const {
  std::optional<int> device;
  for (const std::span<const Buffer> list : {collective.inputs, collective.outputs})
    for (const Buffer& buffer : list)
      if (const int other = buffer.device_index; device.value_or(other) != other) {
        throw Error(ErrorCode::kInvalidArgument,
                    fmt::format("one call has tensors on cuda:{} and on cuda:{}", *device, other),
                    "a collective runs on one GPU per rank", "move them to one device");
      } else {
        device = other;
      }
  return device ? *device : group_->default_device();
}

Work NcclBackend::start(Collective collective) {
  const Composer compose = composer(device_of(collective.view()));
  Call call = std::move(collective.call);
  const CollectiveView view{call.fingerprint, collective.inputs, collective.outputs};
  Launch launch = compose.collective(view, call.factor);
  launch.bytes = view.bytes();
  return group_->run(std::move(launch), std::move(call));
}

void NcclBackend::require_possible(const Message& message) {
  if (message.kind == OpKind::receive && message.peer < 0)
    throw Error(ErrorCode::kUnavailable, "backend 'nccl' cannot receive from any rank",
                "NCCL must know the sender", "name the source, or use backend 'staged'");
  if (message.tag != 0)
    throw Error(ErrorCode::kUnavailable,
                fmt::format("backend 'nccl' has no tags, and got {}", message.tag),
                "NCCL matches the messages between two ranks in their order",
                "leave the tag out, or use backend 'staged'");
}

Work NcclBackend::start(Message message) {
  require_possible(message);
  const bool sends = message.kind == OpKind::send;
  const Buffer& buffer = message.buffer;
  const Composer compose = composer(buffer.device_index);
  message.call.fingerprint.kind = message.kind;
  Launch launch = sends ? compose.send(buffer, {buffer.device_index, rank(), message.peer})
                        : compose.receive(buffer, {buffer.device_index, message.peer, rank()});
  launch.bytes = buffer.bytes();
  return group_->run(std::move(launch), std::move(message.call));
}

std::vector<Work> NcclBackend::exchange(std::vector<Message> messages) {
  for (const Message& message : messages) require_possible(message);
  std::map<int, std::vector<std::size_t>> of_devices;
  for (std::size_t i = 0; i < messages.size(); ++i)
    of_devices[messages[i].buffer.device_index].push_back(i);
  std::vector<Work> works(messages.size());
  for (const auto& [device, places] : of_devices) {
    // All ranks answer alike: a batch stands in the same place among the group's calls everywhere.
    if (!group_->has_communicator(device)) {
      for (const std::size_t place : places) works[place] = start(std::move(messages[place]));
      continue;
    }
    std::vector<Message> batch;
    for (const std::size_t place : places) batch.push_back(std::move(messages[place]));
    std::vector<Launch> launches = composer(device).batch(batch);
    std::vector<Call> calls;
    for (Message& message : batch) {
      message.call.fingerprint.kind = message.kind;
      calls.push_back(std::move(message.call));
    }
    std::vector<Work> started = group_->run_batch(std::move(launches), std::move(calls));
    for (std::size_t i = 0; i < places.size(); ++i) works[places[i]] = std::move(started[i]);
  }
  return works;
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
