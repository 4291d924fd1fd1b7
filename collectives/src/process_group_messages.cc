// The messages of a ProcessGroup between two ranks, and what is made of them.
#include <fmt/core.h>
#include <fmt/format.h>

#include <utility>

#include "dtrun/base/error.h"
#include "dtrun/collectives/process_group.h"
#include "group_call.h"

namespace dtrun::collectives {

using base::Error;
using base::ErrorCode;

namespace {

struct Address {
  OpKind kind;
  int peer;
  std::uint32_t tag;
};

void require_address(const GroupShape& group, const Address& address) {
  const bool sends = address.kind == OpKind::send;
  if (sends || address.peer != -1)
    require_rank(group, address.peer, sends ? "destination" : "source");
  if (address.peer == group.rank)
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("rank {} cannot {} itself", group.rank,
                            sends ? "send a message to" : "receive a message from"),
                "messages are between two ranks", "copy the tensor instead");
  if (address.tag > ProcessGroup::kLastTag)
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("the tag {} is the group's own", address.tag), "",
                fmt::format("use tags up to {}", ProcessGroup::kLastTag));
}

/// A message that is checked and counted, not yet started.
Message message_of(GroupCall& call, const LocalTensor& tensor, const Address& address) {
  call.check(tensor, "the tensor",
             [&](const GroupShape& group) { require_address(group, address); });
  call.print.counts = static_cast<std::uint64_t>(tensor.numel());
  call.print.root = address.peer;
  call.print.shape = address.tag;
  call.show([&] {
    const std::size_t bytes =
        static_cast<std::size_t>(tensor.numel()) * tensors::item_size(tensor.dtype());
    return address.kind == OpKind::send ? static_cast<std::int64_t>(bytes) : 0;
  });
  Message message{address.kind, {}, address.peer, address.tag, {}};
  message.buffer =
      address.kind == OpKind::send ? call.buffers().input(tensor) : call.buffers().output(tensor);
  message.call = call.take(message.buffer.bytes());
  return message;
}

Work start(GroupCore& core, const LocalTensor& tensor, const Address& address,
           const CallOptions& options, const ProcessGroup::Site& site) {
  GroupCall call(core, address.kind, options, site);
  Message message = message_of(call, tensor, address);
  return call.backend().start(std::move(message));
}

}  // namespace

void ProcessGroup::send(const LocalTensor& tensor, int destination, std::uint32_t tag,
                        CallOptions options, Site site) const {
  options.async = false;
  start(core(), tensor, {OpKind::send, destination, tag}, options, site);
}

int ProcessGroup::recv(const LocalTensor& tensor, int source, std::uint32_t tag,
                       CallOptions options, Site site) const {
  options.async = false;
  return start(core(), tensor, {OpKind::receive, source, tag}, options, site).source_rank();
}

Work ProcessGroup::isend(const LocalTensor& tensor, int destination, std::uint32_t tag,
                         CallOptions options, Site site) const {
  options.async = true;
  return start(core(), tensor, {OpKind::send, destination, tag}, options, site);
}

Work ProcessGroup::irecv(const LocalTensor& tensor, int source, std::uint32_t tag,
                         CallOptions options, Site site) const {
  options.async = true;
  return start(core(), tensor, {OpKind::receive, source, tag}, options, site);
}

std::vector<Work> ProcessGroup::batch_isend_irecv(const std::vector<P2POp>& operations,
                                                  Site site) const {
  std::vector<Message> messages;
  Backend* backend = nullptr;
  // None is started before all are checked.
  for (const P2POp& operation : operations) {
    const OpKind kind = operation.kind == P2POp::Kind::send ? OpKind::send : OpKind::receive;
    GroupCall call(core(), kind, {.async = true}, site);
    messages.push_back(message_of(call, operation.tensor, {kind, operation.peer, operation.tag}));
    if (backend != nullptr && backend != &call.backend())
      throw Error(ErrorCode::kInvalidArgument,
                  "the tensors of a batch of messages are on different devices", "",
                  "make one batch per device");
    backend = &call.backend();
  }
  if (backend == nullptr) return {};
  return backend->exchange(std::move(messages));
}

}  // namespace dtrun::collectives
