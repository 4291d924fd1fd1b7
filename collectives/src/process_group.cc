#include "dtrun/collectives/process_group.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "arguments.h"
#include "dtrun/base/error.h"
#include "make_backend.h"

namespace dtrun::collectives {

using base::Deadline;
using base::Error;
using base::ErrorCode;

struct ProcessGroup::Impl {
  std::string name;
  std::vector<int> global_ranks;
  Deadline::Duration timeout;
  std::unique_ptr<Backend> backend;
  std::uint64_t collectives = 0;
  std::uint64_t messages = 0;

  GroupShape shape() const {
    return {backend->rank(), backend->size(), backend->device_type(), backend->name()};
  }

  Fingerprint fingerprint(OpKind kind, const Site& site) {
    Fingerprint result;
    const bool message = kind == OpKind::send || kind == OpKind::receive;
    result.sequence = message ? ++messages : ++collectives;
    result.kind = kind;
    set_site(result, site);
    return result;
  }

  Call call(const Fingerprint& fingerprint, const CallOptions& options, Staging staging) const {
    Call result;
    result.fingerprint = fingerprint;
    result.deadline = Deadline::after(options.timeout.value_or(timeout));
    result.async = options.async;
    std::move(staging).attach_to(result);
    return result;
  }

  /// A collective that this rank's arguments forbid fails on all ranks: they would wait for it.
  template <typename Check>
  void check(const Fingerprint& fingerprint, Check arguments) {
    try {
      arguments(shape());
    } catch (const Error& error) {
      backend->reject(fingerprint, error);
      throw;
    }
  }

  Work send(const Tensor& tensor, int destination, std::uint32_t tag, const CallOptions& options,
            const Site& site) {
    require_tensor(shape(), tensor, "the tensor");
    require_rank(shape(), destination, "destination");
    Fingerprint print = fingerprint(OpKind::send, site);
    print.dtype = tensor.dtype();
    print.counts = static_cast<std::uint64_t>(tensor.numel());
    Staging staging;
    const Buffer buffer = staging.input(tensor);
    return backend->send(buffer, destination, tag, call(print, options, std::move(staging)));
  }

  Work receive(const Tensor& tensor, int source, std::uint32_t tag, const CallOptions& options,
               const Site& site) {
    require_tensor(shape(), tensor, "the tensor");
    if (source != -1) require_rank(shape(), source, "source");
    Fingerprint print = fingerprint(OpKind::receive, site);
    print.dtype = tensor.dtype();
    print.counts = static_cast<std::uint64_t>(tensor.numel());
    Staging staging;
    const Buffer buffer = staging.output(tensor);
    return backend->receive(buffer, source, tag, call(print, options, std::move(staging)));
  }
};

namespace {

void check_options(const GroupOptions& options) {
  const auto refuse = [](const char* what) { throw Error(ErrorCode::kInvalidArgument, what); };
  if (!options.store) refuse("a group needs a store");
  if (options.global_ranks.empty()) refuse("a group needs at least one rank");
  if (options.rank < 0 || static_cast<std::size_t>(options.rank) >= options.global_ranks.size())
    refuse("a group's rank must be one of its members'");
}

/// The list that `rank` is in; -1: none.
int find_list(const std::vector<std::vector<int>>& lists, int rank) {
  for (std::size_t i = 0; i < lists.size(); ++i)
    if (std::find(lists[i].begin(), lists[i].end(), rank) != lists[i].end())
      return static_cast<int>(i);
  return -1;
}

void check_lists(const GroupShape& group, const std::vector<std::vector<int>>& lists) {
  std::vector<bool> seen(static_cast<std::size_t>(group.size));
  for (const std::vector<int>& list : lists) {
    for (const int rank : list) {
      require_rank(group, rank, "a rank of the split");
      if (seen[static_cast<std::size_t>(rank)])
        throw Error(ErrorCode::kInvalidArgument,
                    fmt::format("rank {} stands twice in the lists of a split", rank), "",
                    "lists must not overlap; split twice for groups that do");
      seen[static_cast<std::size_t>(rank)] = true;
    }
  }
}

std::uint64_t hash_lists(const std::vector<std::vector<int>>& lists, const std::string& name) {
  std::string text = name;
  for (const std::vector<int>& list : lists) text += fmt::format(";{}", fmt::join(list, ","));
  return hash_bytes(text);
}

}  // namespace

ProcessGroup ProcessGroup::create(GroupOptions options) {
  check_options(options);
  ProcessGroup group;
  group.impl_ = std::make_shared<Impl>();
  group.impl_->backend = make_backend(options);
  group.impl_->name = std::move(options.name);
  group.impl_->global_ranks = std::move(options.global_ranks);
  group.impl_->timeout = options.timeout;
  return group;
}

ProcessGroup::Impl& ProcessGroup::impl() const {
  if (!impl_)
    throw Error(ErrorCode::kUsage,
                stranger_to_.empty()
                    ? "there is no group here"
                    : fmt::format("this rank is no member of group '{}'", stranger_to_),
                "only the ranks of a group can take part in its calls",
                "ask valid() before using what split() or new_group() returned");
  return *impl_;
}

int ProcessGroup::rank() const {
  return impl().backend->rank();
}
int ProcessGroup::size() const {
  return impl().backend->size();
}
const std::string& ProcessGroup::name() const {
  return impl_ ? impl_->name : stranger_to_;
}
std::string ProcessGroup::backend_name() const {
  return impl().backend->name();
}
const std::vector<int>& ProcessGroup::global_ranks() const {
  return impl().global_ranks;
}
Deadline::Duration ProcessGroup::timeout() const {
  return impl().timeout;
}

std::string ProcessGroup::to_string() const {
  if (!valid())
    return stranger_to_.empty()
               ? "ProcessGroup(none)"
               : fmt::format("ProcessGroup(name={}, this rank is no member)", stranger_to_);
  return fmt::format("ProcessGroup(name={}, backend={}, rank={}, ranks=[{}])", name(),
                     backend_name(), rank(), fmt::join(global_ranks(), ", "));
}

Work ProcessGroup::broadcast(const Tensor& tensor, int source, CallOptions options,
                             Site site) const {
  Fingerprint print = impl().fingerprint(OpKind::broadcast, site);
  impl_->check(print, [&](const GroupShape& group) {
    require_tensor(group, tensor, "the tensor");
    require_rank(group, source, "source");
  });
  print.dtype = tensor.dtype();
  print.root = source;
  print.counts = static_cast<std::uint64_t>(tensor.numel());
  print.shape = hash_shape(tensor);
  Staging staging;
  const Buffer buffer = rank() == source ? staging.input(tensor) : staging.output(tensor);
  return impl_->backend->broadcast(buffer, source, impl_->call(print, options, std::move(staging)));
}

Work ProcessGroup::all_reduce(const Tensor& tensor, ReduceOp op, CallOptions options,
                              Site site) const {
  Fingerprint print = impl().fingerprint(OpKind::all_reduce, site);
  impl_->check(print, [&](const GroupShape& group) {
    require_tensor(group, tensor, "the tensor");
    require_reduce_op(op, tensor.dtype());
  });
  print.dtype = tensor.dtype();
  print.reduce_op = op;
  print.counts = static_cast<std::uint64_t>(tensor.numel());
  print.shape = hash_shape(tensor);
  Staging staging;
  const Buffer buffer = staging.in_place(tensor);
  return impl_->backend->all_reduce(buffer, op, impl_->call(print, options, std::move(staging)));
}

Work ProcessGroup::reduce(const Tensor& tensor, int destination, ReduceOp op, CallOptions options,
                          Site site) const {
  Fingerprint print = impl().fingerprint(OpKind::reduce, site);
  impl_->check(print, [&](const GroupShape& group) {
    require_tensor(group, tensor, "the tensor");
    require_rank(group, destination, "destination");
    require_reduce_op(op, tensor.dtype());
  });
  print.dtype = tensor.dtype();
  print.reduce_op = op;
  print.root = destination;
  print.counts = static_cast<std::uint64_t>(tensor.numel());
  print.shape = hash_shape(tensor);
  Staging staging;
  const Buffer input = staging.input(tensor);
  Buffer output{nullptr, 0, tensor.dtype()};
  if (rank() == destination) output = staging.output(tensor);
  return impl_->backend->reduce(input, output, destination, op,
                                impl_->call(print, options, std::move(staging)));
}

Work ProcessGroup::all_gather(const std::vector<Tensor>& outputs, const Tensor& input,
                              CallOptions options, Site site) const {
  Fingerprint print = impl().fingerprint(OpKind::all_gather, site);
  impl_->check(print, [&](const GroupShape& group) {
    require_tensor(group, input, "the input");
    require_list(group, outputs, input.dtype(), "outputs");
    require_same_count(input, "the input", outputs[static_cast<std::size_t>(group.rank)],
                       "this rank's output");
  });
  print.dtype = input.dtype();
  print.counts = hash_counts(outputs);
  Staging staging;
  const Buffer own = staging.input(input);
  std::vector<Buffer> buffers = staging.outputs(outputs);
  return impl_->backend->all_gather(own, std::move(buffers),
                                    impl_->call(print, options, std::move(staging)));
}

Work ProcessGroup::gather(const Tensor& input, const std::vector<Tensor>& outputs, int destination,
                          CallOptions options, Site site) const {
  Fingerprint print = impl().fingerprint(OpKind::gather, site);
  impl_->check(print, [&](const GroupShape& group) {
    require_tensor(group, input, "the input");
    require_rank(group, destination, "destination");
    if (group.rank != destination) return require_no_list(outputs, "outputs", "destination");
    require_list(group, outputs, input.dtype(), "outputs");
    require_same_count(input, "the input", outputs[static_cast<std::size_t>(group.rank)],
                       "this rank's output");
  });
  print.dtype = input.dtype();
  print.root = destination;
  Staging staging;
  const Buffer own = staging.input(input);
  std::vector<Buffer> buffers = staging.outputs(outputs);
  return impl_->backend->gather(own, std::move(buffers), destination,
                                impl_->call(print, options, std::move(staging)));
}

Work ProcessGroup::scatter(const Tensor& output, const std::vector<Tensor>& inputs, int source,
                           CallOptions options, Site site) const {
  Fingerprint print = impl().fingerprint(OpKind::scatter, site);
  impl_->check(print, [&](const GroupShape& group) {
    require_tensor(group, output, "the output");
    require_rank(group, source, "source");
    if (group.rank != source) return require_no_list(inputs, "inputs", "source");
    require_list(group, inputs, output.dtype(), "inputs");
    require_same_count(output, "the output", inputs[static_cast<std::size_t>(group.rank)],
                       "this rank's input");
  });
  print.dtype = output.dtype();
  print.root = source;
  Staging staging;
  const Buffer own = staging.output(output);
  std::vector<Buffer> buffers = staging.inputs(inputs);
  return impl_->backend->scatter(own, std::move(buffers), source,
                                 impl_->call(print, options, std::move(staging)));
}

Work ProcessGroup::reduce_scatter(const Tensor& output, const std::vector<Tensor>& inputs,
                                  ReduceOp op, CallOptions options, Site site) const {
  Fingerprint print = impl().fingerprint(OpKind::reduce_scatter, site);
  impl_->check(print, [&](const GroupShape& group) {
    require_tensor(group, output, "the output");
    require_reduce_op(op, output.dtype());
    require_list(group, inputs, output.dtype(), "inputs");
    require_same_count(output, "the output", inputs[static_cast<std::size_t>(group.rank)],
                       "this rank's input");
  });
  print.dtype = output.dtype();
  print.reduce_op = op;
  print.counts = hash_counts(inputs);
  Staging staging;
  const Buffer own = staging.output(output);
  std::vector<Buffer> buffers = staging.inputs(inputs);
  return impl_->backend->reduce_scatter(own, std::move(buffers), op,
                                        impl_->call(print, options, std::move(staging)));
}

Work ProcessGroup::all_to_all(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                              CallOptions options, Site site) const {
  Fingerprint print = impl().fingerprint(OpKind::all_to_all, site);
  impl_->check(print, [&](const GroupShape& group) {
    const std::size_t own = static_cast<std::size_t>(group.rank);
    if (inputs.size() > own) require_tensor(group, inputs[own], "this rank's input");
    require_list(group, inputs, inputs.size() > own ? inputs[own].dtype() : tensors::DType::u8,
                 "inputs");
    require_list(group, outputs, inputs[own].dtype(), "outputs");
    require_same_count(inputs[own], "this rank's own input", outputs[own],
                       "this rank's own output");
  });
  print.dtype = inputs.front().dtype();
  Staging staging;
  std::vector<Buffer> targets = staging.outputs(outputs);
  std::vector<Buffer> sources = staging.inputs(inputs);
  return impl_->backend->all_to_all(std::move(targets), std::move(sources),
                                    impl_->call(print, options, std::move(staging)));
}

Work ProcessGroup::barrier(CallOptions options, Site site) const {
  const Fingerprint print = impl().fingerprint(OpKind::barrier, site);
  return impl_->backend->barrier(impl_->call(print, options, {}));
}

void ProcessGroup::send(const Tensor& tensor, int destination, std::uint32_t tag,
                        CallOptions options, Site site) const {
  options.async = false;
  impl().send(tensor, destination, tag, options, site);
}

int ProcessGroup::recv(const Tensor& tensor, int source, std::uint32_t tag, CallOptions options,
                       Site site) const {
  options.async = false;
  return impl().receive(tensor, source, tag, options, site).source_rank();
}

Work ProcessGroup::isend(const Tensor& tensor, int destination, std::uint32_t tag,
                         CallOptions options, Site site) const {
  options.async = true;
  return impl().send(tensor, destination, tag, options, site);
}

Work ProcessGroup::irecv(const Tensor& tensor, int source, std::uint32_t tag, CallOptions options,
                         Site site) const {
  options.async = true;
  return impl().receive(tensor, source, tag, options, site);
}

ProcessGroup ProcessGroup::split(const std::vector<std::vector<int>>& rank_lists,
                                 const std::string& new_name, SplitOptions options,
                                 Site site) const {
  if (options.backend && *options.backend != backend_name())
    throw Error(ErrorCode::kUnavailable, "a subgroup cannot have another backend yet");
  Fingerprint print = impl().fingerprint(OpKind::split, site);
  impl_->check(print, [&](const GroupShape& group) { check_lists(group, rank_lists); });
  print.dtype = tensors::DType::i64;
  print.counts = hash_lists(rank_lists, new_name);
  const int list = find_list(rank_lists, rank());
  const std::vector<int> ranks =
      list < 0 ? std::vector<int>() : rank_lists[static_cast<std::size_t>(list)];
  std::unique_ptr<Backend> backend =
      impl_->backend->split(ranks, list, new_name, impl_->call(print, {}, {}));
  ProcessGroup group;
  if (!backend) {
    group.stranger_to_ = new_name;
    return group;
  }
  group.impl_ = std::make_shared<Impl>();
  group.impl_->backend = std::move(backend);
  group.impl_->name = new_name;
  group.impl_->timeout = options.timeout.value_or(impl_->timeout);
  for (const int member : ranks)
    group.impl_->global_ranks.push_back(impl_->global_ranks[static_cast<std::size_t>(member)]);
  return group;
}

void ProcessGroup::refuse(OpKind kind, const Error& error, Site site) const {
  impl().backend->reject(impl_->fingerprint(kind, site), error);
  throw error;
}

TransportCounters ProcessGroup::counters() const {
  return impl().backend->counters();
}

void ProcessGroup::shutdown() const {
  if (impl_) impl_->backend->shutdown();
}

}  // namespace dtrun::collectives
