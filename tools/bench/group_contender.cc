#include "bench/group_contender.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "dtrun/tensor/ops.h"

namespace dtrun::bench {

using tensors::LocalTensor;

namespace {

std::string_view bytes_of(const std::vector<double>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double)};
}

void append_numbers(std::vector<double>& all, std::string_view bytes, std::size_t count) {
  std::vector<double> values(count);
  std::memcpy(values.data(), bytes.data(), std::min(bytes.size(), count * sizeof(double)));
  all.insert(all.end(), values.begin(), values.end());
}

}  // namespace

GroupContender::GroupContender(collectives::ProcessGroup group,
                               std::shared_ptr<rendezvous::Store> store, tensors::Device device)
    : group_(std::move(group)), store_(std::move(store)), device_(device) {}

void GroupContender::prepare(const Call& call, const std::vector<Buffers>& buffers) {
  call_ = call;
  reduction_ = options_of(call);
  buffers_ = buffers;
  parts_.assign(buffers.size(), {});
  messages_.clear();
  if (call.operation == Operation::send_recv) {
    using collectives::P2POp;
    const int next = (rank() + 1) % size();
    const int before = (rank() + size() - 1) % size();
    for (const Buffers& of_call : buffers)
      messages_.push_back({{P2POp::Kind::send, of_call.input, next},
                           {P2POp::Kind::receive, of_call.output, before}});
  }
  if (rank() != call.root) return;
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    if (call.operation == Operation::gather)
      parts_[i] = tensors::chunk(buffers[i].output, size());
    else if (call.operation == Operation::scatter)
      parts_[i] = tensors::chunk(buffers[i].input, size());
  }
}

collectives::CallOptions GroupContender::options_of(const Call& call) const {
  collectives::CallOptions options;
  if (call.reduction == collectives::ReduceOp::premul_sum) options.factor = premul_factor(rank());
  return options;
}

void GroupContender::run(std::size_t buffer) {
  const LocalTensor& input = buffers_[buffer].input;
  const LocalTensor& output = buffers_[buffer].output;
  switch (call_.operation) {
    case Operation::all_reduce:
      group_.all_reduce(output, call_.reduction, reduction_);
      return;
    case Operation::reduce:
      group_.reduce(output, call_.root, call_.reduction, reduction_);
      return;
    case Operation::broadcast:
      group_.broadcast(output, call_.root);
      return;
    case Operation::all_gather:
      group_.all_gather_into_tensor(output, input);
      return;
    case Operation::reduce_scatter:
      group_.reduce_scatter_tensor(output, input, call_.reduction, reduction_);
      return;
    case Operation::all_to_all:
      group_.all_to_all_single(output, input);
      return;
    case Operation::gather:
      group_.gather(input, parts_[buffer], call_.root);
      return;
    case Operation::scatter:
      group_.scatter(output, parts_[buffer], call_.root);
      return;
    case Operation::barrier:
      group_.barrier();
      return;
    case Operation::send_recv:
      for (const collectives::Work& work : group_.batch_isend_irecv(messages_[buffer])) work.wait();
      return;
  }
}

std::string GroupContender::key_of(const std::string& what, int rank) const {
  // Groups along one axis of a mesh have one name.
  return "dtrun-bench/" + group_.name() + "/" + std::to_string(group_.global_ranks().front()) +
         "/" + what + "/" + std::to_string(rank);
}

std::vector<double> GroupContender::collect(const std::vector<double>& values) {
  const std::string what = std::to_string(collected_++);
  if (rank() != 0) {
    store_->set(key_of(what, rank()), bytes_of(values));
    return {};
  }
  std::vector<double> all = values;
  for (int peer = 1; peer < size(); ++peer) {
    const std::string key = key_of(what, peer);
    append_numbers(all, store_->get(key), values.size());
    store_->delete_key(key);
  }
  return all;
}

std::vector<double> GroupContender::share(const std::vector<double>& values) {
  rendezvous::Store::Keys keys;
  for (int peer = 0; peer < size(); ++peer) keys.push_back(key_of("shared", peer));
  const std::string& own = keys[static_cast<std::size_t>(rank())];
  store_->set(own, bytes_of(values));
  std::vector<double> all;
  for (const std::string& bytes : store_->multi_get(keys))
    append_numbers(all, bytes, values.size());
  // All have read, and then none is left that the next share() could take for its own.
  barrier();
  store_->delete_key(own);
  barrier();
  return all;
}

}  // namespace dtrun::bench
