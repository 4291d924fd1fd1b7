#include "adapter/adapter_backend.h"

#include <fmt/core.h>

#include <cstring>
#include <utility>

#include "combine_op.h"
#include "dtrun/base/check.h"
#include "dtrun/base/error.h"
#include "dtrun/rendezvous/prefix_store.h"
#include "dtrun/tensor/reduce_kernel.h"
#include "group_failure_texts.h"
#include "reduction.h"

namespace dtrun::collectives::adapter {

using base::Deadline;
using base::Error;
using base::ErrorCode;

namespace {

/// Memory that the operation needs besides the caller's.
std::shared_ptr<std::byte[]> scratch(Call& call, std::size_t bytes) {
  std::shared_ptr<std::byte[]> memory(new std::byte[bytes]);
  call.keep_alive = std::make_shared<std::pair<std::shared_ptr<void>, std::shared_ptr<void>>>(
      std::move(call.keep_alive), memory);
  return memory;
}

/// Room for as many f32.
Buffer wide_copy(Call& call, const Buffer& halves) {
  const std::size_t bytes = static_cast<std::size_t>(halves.count) * sizeof(float);
  return {scratch(call, bytes).get(), halves.count, tensors::DType::f32};
}

void copy(const Buffer& from, const Buffer& to) {
  if (to.count > 0 && from.data != to.data) std::memmove(to.data, from.data, to.bytes());
}

std::size_t total_bytes(const std::vector<Buffer>& pieces) {
  std::size_t bytes = 0;
  for (const Buffer& piece : pieces) bytes += piece.bytes();
  return bytes;
}

std::size_t index_of(int rank) {
  return static_cast<std::size_t>(rank);
}

}  // namespace

AdapterBackend::AdapterBackend(std::unique_ptr<MessageLibrary> library, GroupOptions options,
                               std::vector<Card> members)
    : options_(std::move(options)),
      recorded_group_(options_.name, options_.rank, options_.global_ranks),
      members_(std::move(members)),
      record_(record_of(options_)),
      library_(std::move(library)),
      messages_sent_(members_.size()),
      threads_("dtrun-" + library_->name()) {}

AdapterBackend::~AdapterBackend() {
  shutdown();
  // What speaks on connections, and the threads, are the parent's.
  if (fork_mark_.in_child()) static_cast<void>(library_.release());
}

/// Before any lock, which a thread may have held that the child does not have.
void AdapterBackend::require_own_process() const {
  if (fork_mark_.in_child())
    throw forked_child_error(options_.name, "connections and shared memory");
}

void AdapterBackend::narrow_mean(const Buffer& sums, const Buffer& halves) const {
  tensors::divide(sums.dtype, sums.data, sums.count, size());
  tensors::narrow(halves.dtype, halves.data, static_cast<const float*>(sums.data), sums.count);
}

// ---- collectives

Work AdapterBackend::start(Collective given) {
  const auto only = [&](int other, const Buffer& buffer) {
    Pieces pieces(members_.size());
    pieces[index_of(other)] = buffer;
    return pieces;
  };
  Pieces inputs = std::move(given.inputs), outputs = std::move(given.outputs);
  const int root = given.root();
  switch (given.kind()) {
    case OpKind::broadcast:
      return broadcast(rank() == root ? inputs.front() : outputs.front(), std::move(given.call));
    case OpKind::all_reduce:
      return all_reduce(inputs.front(), outputs.front(), std::move(given.call));
    case OpKind::reduce:
      return reduce(inputs.front(), outputs.empty() ? Buffer() : outputs.front(),
                    std::move(given.call));
    case OpKind::all_gather:
      return exchange_pieces(std::move(given.call), Pieces(members_.size(), inputs.front()),
                             std::move(outputs));
    case OpKind::gather:
      return exchange_pieces(std::move(given.call), only(root, inputs.front()), std::move(outputs));
    case OpKind::scatter:
      return exchange_pieces(std::move(given.call), std::move(inputs), only(root, outputs.front()));
    case OpKind::reduce_scatter:
      return reduce_scatter(outputs.front(), std::move(inputs), std::move(given.call));
    case OpKind::all_to_all:
      return exchange_pieces(std::move(given.call), std::move(inputs), std::move(outputs));
    case OpKind::barrier:
      // Nobody has all cards before everybody has come.
      return collective(std::move(given.call), {}, {}, [](Deadline) { return -1; });
    default:
      break;
  }
  DT_CHECK(false);
  return {};
}

Work AdapterBackend::broadcast(Buffer buffer, Call call) {
  const int source = call.fingerprint.root;
  return collective(std::move(call), {}, {}, [=, this](Deadline deadline) {
    if (size() > 1 && buffer.count > 0) library_->broadcast(buffer, source, deadline);
    return -1;
  });
}

// Halves are averaged in f32: their sum may be more than a half can be.
Work AdapterBackend::all_reduce(Buffer input, Buffer output, Call call) {
  const ReduceOp op = call.fingerprint.reduce_op;
  if (op == ReduceOp::avg && tensors::is_half(input.dtype) && size() > 1) {
    const Buffer wide = wide_copy(call, input);
    return collective(std::move(call), {}, {}, [=, this](Deadline deadline) {
      if (input.count == 0) return -1;
      tensors::widen(input.dtype, static_cast<float*>(wide.data), input.data, input.count);
      library_->all_reduce(wide, tensors::CombineOp::sum, deadline);
      narrow_mean(wide, output);
      return -1;
    });
  }
  return collective(std::move(call), {}, {}, [=, this](Deadline deadline) {
    copy(input, output);
    if (size() == 1 || output.count == 0) return -1;
    library_->all_reduce(output, combine_op(op), deadline);
    if (op == ReduceOp::avg) tensors::divide(output.dtype, output.data, output.count, size());
    return -1;
  });
}

Work AdapterBackend::reduce(Buffer input, Buffer output, Call call) {
  const int destination = call.fingerprint.root;
  const ReduceOp op = call.fingerprint.reduce_op;
  Buffer target = output;
  if (rank() != destination)
    target = {scratch(call, input.bytes()).get(), input.count, input.dtype};
  if (op == ReduceOp::avg && tensors::is_half(input.dtype)) {
    const Buffer terms = wide_copy(call, input);
    const Buffer sums = wide_copy(call, input);
    return collective(std::move(call), {}, {}, [=, this](Deadline deadline) {
      if (size() == 1) copy(input, target);
      if (size() == 1 || input.count == 0) return -1;
      tensors::widen(input.dtype, static_cast<float*>(terms.data), input.data, input.count);
      library_->reduce(terms, sums, destination, tensors::CombineOp::sum, deadline);
      if (rank() == destination) narrow_mean(sums, target);
      return -1;
    });
  }
  return collective(std::move(call), {}, {}, [=, this](Deadline deadline) {
    if (size() == 1) copy(input, target);
    if (size() == 1 || input.count == 0) return -1;
    library_->reduce(input, target, destination, combine_op(op), deadline);
    if (op == ReduceOp::avg && rank() == destination)
      tensors::divide(target.dtype, target.data, target.count, size());
    return -1;
  });
}

// Everybody sends everybody its part, and combines what it gets in rank order: always the same
// bits.
Work AdapterBackend::reduce_scatter(Buffer output, Pieces inputs, Call call) {
  const ReduceOp op = call.fingerprint.reduce_op;
  const std::shared_ptr<std::byte[]> memory = scratch(call, output.bytes() * members_.size());
  Pieces parts(members_.size());
  for (std::size_t peer = 0; peer < parts.size(); ++peer)
    parts[peer] = {memory.get() + peer * output.bytes(), output.count, output.dtype};
  return collective(std::move(call), inputs, parts, [=, this](Deadline deadline) {
    transfer(inputs, parts, deadline);
    std::vector<const void*> sources;
    for (const Buffer& part : parts) sources.push_back(part.data);
    if (output.count == 0) return -1;
    reduce_pieces(op, output.dtype, output.data, sources.data(), size(), output.count);
    return -1;
  });
}

std::unique_ptr<Backend> AdapterBackend::split(const std::vector<int>& ranks, int list_index,
                                               const std::string& name, Call call) {
  GroupOptions child = options_;
  child.record = record_;
  child.name = name;
  child.store = rendezvous::make_prefix_store(
      fmt::format("split/{}/{}", call.fingerprint.sequence, list_index), options_.store);
  child.rank = -1;
  child.global_ranks.clear();
  std::vector<Card> members;
  for (const int parent_rank : ranks) {
    if (parent_rank == rank()) child.rank = static_cast<int>(members.size());
    members.push_back(members_[index_of(parent_rank)]);
    child.global_ranks.push_back(global_rank(parent_rank));
  }
  std::unique_ptr<MessageLibrary> library;
  call.async = false;
  collective(std::move(call), {}, {}, [&](Deadline deadline) {
    library = library_->split(child, ranks, list_index, deadline);
    return -1;
  });
  if (!library) return nullptr;
  return std::make_unique<AdapterBackend>(std::move(library), std::move(child), std::move(members));
}

Work AdapterBackend::exchange_pieces(Call call, Pieces inputs, Pieces outputs) {
  inputs.resize(members_.size());
  outputs.resize(members_.size());
  return collective(std::move(call), inputs, outputs, [=, this](Deadline deadline) {
    transfer(inputs, outputs, deadline);
    return -1;
  });
}

Work AdapterBackend::collective(Call call, Pieces inputs, Pieces outputs, Body body) {
  require_own_process();
  if (const std::exception_ptr failed = failure()) std::rethrow_exception(failed);
  if (!call.async) HeldOrder::require_free(this, call.fingerprint);
  const auto operation = std::make_shared<AdapterOperation>(std::move(call), this);
  inputs.resize(members_.size());
  outputs.resize(members_.size());
  const std::size_t bytes = total_bytes(inputs) + total_bytes(outputs);
  track(operation);
  run_in_order(
      [=, this, body = std::move(body)] {
        perform(operation, bytes, [&](Deadline deadline) {
          agree(operation->fingerprint(), inputs, outputs, deadline);
          return body(deadline);
        });
      },
      operation);
  if (operation->call().async) return Work(operation);
  operation->wait(Deadline::never());
  return {};
}

// A blocking call that has nobody before it needs no thread but its own.
void AdapterBackend::run_in_order(std::function<void()> job, const Operation& operation) {
  {
    const std::scoped_lock lock(mutex_);
    if (running_) {
      waiting_.push_back(std::move(job));
      return;
    }
    running_ = true;
    if (operation->call().async) waiting_.push_back(std::move(job));
  }
  if (operation->call().async) return threads_.run([this] { drain(); });
  {
    const HeldOrder held(this);
    job();
  }
  drain();
}

void AdapterBackend::drain() {
  for (;;) {
    std::function<void()> job;
    {
      const std::scoped_lock lock(mutex_);
      running_ = !waiting_.empty();
      if (!running_) return;
      job = std::move(waiting_.front());
      waiting_.pop_front();
    }
    const HeldOrder held(this);
    job();
  }
}

// ---- messages

Work AdapterBackend::start(Message given) {
  return given.kind == OpKind::send ? send(std::move(given)) : receive(std::move(given));
}

Work AdapterBackend::send(Message given) {
  const Buffer buffer = given.buffer;
  const int destination = given.peer;
  const std::uint32_t tag = given.tag;
  require_peer(destination, tag);
  struct Outgoing {
    MessageCard card;
    std::unique_ptr<MessageInFlight> header;
    std::unique_ptr<MessageInFlight> payload;
  };
  const auto message_out = std::make_shared<Outgoing>();
  // A message is a header under the caller's tag and a payload under a number of its own. So a
  // receive from any rank learns from the header which payload is its. The numbers begin again
  // after the library's largest tag: so many messages of a pair are not in flight.
  message_out->card.bytes = buffer.bytes();
  message_out->card.number = messages_sent_[index_of(destination)]++ % library_->largest_tag();
  message_out->card.fingerprint = given.call.fingerprint;
  return message(
      std::move(given.call), message_out, buffer.bytes(),
      [=, this] {
        message_out->header = library_->send(&message_out->card, sizeof(MessageCard), destination,
                                             MessageKind::header, tag);
        if (buffer.count > 0)
          message_out->payload = library_->send(buffer.data, buffer.bytes(), destination,
                                                MessageKind::payload, message_out->card.number);
      },
      [=, this](Deadline deadline) {
        message_out->header->wait(deadline);
        if (message_out->payload) message_out->payload->wait(deadline);
        bytes_sent_ += buffer.bytes();
        return -1;
      });
}

Work AdapterBackend::receive(Message given) {
  const Buffer buffer = given.buffer;
  const int source = given.peer;
  const std::uint32_t tag = given.tag;
  require_peer(source, tag);
  struct Incoming {
    MessageCard card;
    std::unique_ptr<MessageInFlight> header;
    std::unique_ptr<MessageInFlight> payload;
  };
  const auto message_in = std::make_shared<Incoming>();
  const Fingerprint ours = given.call.fingerprint;
  return message(
      std::move(given.call), message_in, buffer.bytes(),
      [=, this] {
        message_in->header = library_->receive(&message_in->card, sizeof(MessageCard), source,
                                               MessageKind::header, tag);
      },
      [=, this](Deadline deadline) {
        const int peer = message_in->header->wait(deadline);
        const MessageCard& card = message_in->card;
        if (card.fingerprint.dtype != ours.dtype || card.bytes != buffer.bytes())
          throw Disagreement{peer, card.fingerprint, ours};
        if (buffer.count > 0) {
          message_in->payload = library_->receive(buffer.data, buffer.bytes(), peer,
                                                  MessageKind::payload, card.number);
          message_in->payload->wait(deadline);
        }
        bytes_received_ += buffer.bytes();
        return peer;
      });
}

void AdapterBackend::require_peer(int peer, std::uint32_t tag) const {
  if (peer == rank())
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("rank {} sends to, or receives from, itself; backend '{}' cannot",
                            global_rank(rank()), name()),
                "", "copy the tensor");
  if (tag > library_->largest_tag())
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("tag {} is too large for backend '{}', whose largest is {}", tag,
                            name(), library_->largest_tag()));
}

Work AdapterBackend::message(Call call, std::shared_ptr<void> state, std::size_t bytes,
                             const std::function<void()>& start, Body finish) {
  require_own_process();
  if (const std::exception_ptr failed = failure()) std::rethrow_exception(failed);
  call.keep_alive = std::make_shared<std::pair<std::shared_ptr<void>, std::shared_ptr<void>>>(
      std::move(call.keep_alive), std::move(state));
  const auto operation = std::make_shared<AdapterOperation>(std::move(call));
  track(operation);
  try {
    start();
  } catch (...) {
    operation->fail(fail(explain(*operation, std::current_exception())));
  }
  if (operation->is_completed()) {
    operation->wait(Deadline::never());
  } else if (operation->call().async) {
    threads_.run([=, this, finish = std::move(finish)] { perform(operation, bytes, finish); });
  } else {
    perform(operation, bytes, finish);
    operation->wait(Deadline::never());
  }
  return Work(operation);
}

// ---- any operation

void AdapterBackend::perform(const Operation& operation, std::size_t bytes, const Body& body) {
  if (const std::exception_ptr failed = failure()) return operation->fail(failed);
  const std::uint64_t number = record_->begin(operation->fingerprint(), recorded_group_, bytes);
  int source = -1;
  std::exception_ptr error;
  try {
    source = body(operation->call().deadline);
  } catch (...) {
    error = fail(explain(*operation, std::current_exception()));
    // The library may still work on the memory of what has failed.
    library_->keep(operation->call().keep_alive);
  }
  record_->end(number, error ? RankRecord::Outcome::failed : RankRecord::Outcome::done);
  if (error) return operation->fail(error);
  operation->succeed(source);
}

void AdapterBackend::track(const Operation& operation) {
  const std::scoped_lock lock(mutex_);
  std::erase_if(in_flight_, [](const std::weak_ptr<AdapterOperation>& other) {
    const Operation there = other.lock();
    return !there || there->is_completed();
  });
  in_flight_.push_back(operation);
}

TransportCounters AdapterBackend::counters() const {
  TransportCounters counters;
  counters.tcp_bytes_sent = bytes_sent_;
  counters.tcp_bytes_received = bytes_received_;
  return counters;
}

void AdapterBackend::wait_for_operations(Deadline deadline) {
  std::vector<std::weak_ptr<AdapterOperation>> operations;
  {
    const std::scoped_lock lock(mutex_);
    operations = in_flight_;
  }
  for (const std::weak_ptr<AdapterOperation>& weak : operations) {
    const Operation operation = weak.lock();
    // A receive may wait for a message that nobody will send.
    if (!operation || operation->fingerprint().kind == OpKind::receive) continue;
    try {
      operation->wait(deadline);
    } catch (const Error&) {
      // The group has failed or its time is over: leaving goes on either way.
    }
  }
}

void AdapterBackend::shutdown() {
  if (fork_mark_.in_child()) return threads_.forget();
  {
    const std::scoped_lock lock(mutex_);
    if (std::exchange(shut_down_, true)) return;
  }
  wait_for_operations(Deadline::after(options_.timeout));
  if (!failure()) say_farewell();
  {
    const std::scoped_lock lock(mutex_);
    if (!failure_) failure_ = std::make_exception_ptr(left_error(options_.name));
  }
  library_->leave();
  threads_.join();
}

}  // namespace dtrun::collectives::adapter
