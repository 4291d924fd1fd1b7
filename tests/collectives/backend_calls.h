// A backend's calls by name, for tests that call it without a ProcessGroup: each sets what its
// arguments say in the call's fingerprint, as ProcessGroup does.
#pragma once

#include <utility>
#include <vector>

#include "dtrun/collectives/backend.h"

namespace dtrun::test {

using collectives::Backend;
using collectives::Buffer;
using collectives::Call;
using collectives::OpKind;
using collectives::ReduceOp;
using collectives::Work;
using Buffers = std::vector<Buffer>;

inline Work broadcast(Backend& backend, Buffer buffer, int root, Call call) {
  call.fingerprint.root = root;
  if (backend.rank() == root)
    return backend.start(collectives::Collective{{buffer}, {}, std::move(call)});
  return backend.start(collectives::Collective{{}, {buffer}, std::move(call)});
}
inline Work all_reduce(Backend& backend, Buffer input, Buffer output, ReduceOp op, Call call) {
  call.fingerprint.reduce_op = op;
  return backend.start(collectives::Collective{{input}, {output}, std::move(call)});
}
/// @param output left alone but at the root
inline Work reduce(Backend& backend, Buffer input, Buffer output, int root, ReduceOp op,
                   Call call) {
  call.fingerprint.root = root;
  call.fingerprint.reduce_op = op;
  if (backend.rank() == root)
    return backend.start(collectives::Collective{{input}, {output}, std::move(call)});
  return backend.start(collectives::Collective{{input}, {}, std::move(call)});
}
inline Work all_gather(Backend& backend, Buffer input, Buffers outputs, Call call) {
  return backend.start(collectives::Collective{{input}, std::move(outputs), std::move(call)});
}
inline Work gather(Backend& backend, Buffer input, Buffers outputs, int root, Call call) {
  call.fingerprint.root = root;
  return backend.start(collectives::Collective{{input}, std::move(outputs), std::move(call)});
}
inline Work scatter(Backend& backend, Buffer output, Buffers inputs, int root, Call call) {
  call.fingerprint.root = root;
  return backend.start(collectives::Collective{std::move(inputs), {output}, std::move(call)});
}
inline Work reduce_scatter(Backend& backend, Buffer output, Buffers inputs, ReduceOp op,
                           Call call) {
  call.fingerprint.reduce_op = op;
  return backend.start(collectives::Collective{std::move(inputs), {output}, std::move(call)});
}
inline Work all_to_all(Backend& backend, Buffers outputs, Buffers inputs, Call call) {
  return backend.start(
      collectives::Collective{std::move(inputs), std::move(outputs), std::move(call)});
}
inline Work barrier(Backend& backend, Call call) {
  return backend.start(collectives::Collective{{}, {}, std::move(call)});
}
inline Work send(Backend& backend, Buffer buffer, int peer, std::uint32_t tag, Call call) {
  return backend.start(collectives::Message{OpKind::send, buffer, peer, tag, std::move(call)});
}
inline Work receive(Backend& backend, Buffer buffer, int peer, std::uint32_t tag, Call call) {
  return backend.start(collectives::Message{OpKind::receive, buffer, peer, tag, std::move(call)});
}

}  // namespace dtrun::test
