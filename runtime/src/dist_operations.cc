// dist's collectives and messages: each finds the group that it means, and says the ranks in it.
#include <fmt/core.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "all_works.h"
#include "current_world.h"
#include "dtrun/base/error.h"
#include "dtrun/runtime/dist.h"
#include "recording.h"

namespace dtrun::dist {
namespace {

using collectives::OpKind;

collectives::CallOptions call_options(const OpOptions& options) {
  return {.async = options.async_op, .timeout = options.timeout, .factor = options.factor};
}
collectives::CallOptions call_options(const MessageOptions& options) {
  return {.timeout = options.timeout};
}

/// A root outside the group fails the collective on all members: they would wait for this rank.
int root_in(const ProcessGroup& group, OpKind kind, int global_rank, const Site& site) {
  const int rank = find_in(group, global_rank);
  if (rank < 0) group.refuse(kind, not_in_group(group, global_rank), site);
  return rank;
}

/// A message has no other members that wait. -1 stays what it is: any rank.
int peer_in(const ProcessGroup& group, int global_rank) {
  return global_rank == -1 ? -1 : get_group_rank(group, global_rank);
}

/// One call of dist::, for the errors about its tensors: a collective, or a message of no kind.
struct Call {
  const char* name;
  std::optional<OpKind> kind;
  const ProcessGroup& group;
  const Site& site;
};

constexpr std::size_t kNoList = SIZE_MAX;

/// @throws Error kInvalidArgument for a distributed one. It fails the collective on all members,
/// which would wait for this rank. @param place in the list that the argument is
const tensors::LocalTensor& read(const Call& call, const Tensor& tensor, const char* argument,
                                 std::size_t place = kNoList) {
  if (!tensor.defined() || !tensor.is_distributed()) return tensor.plain_local();
  const base::Error error(
      base::ErrorCode::kInvalidArgument,
      fmt::format("{} of a distributed {}{}: {}", call.name, argument,
                  place == kNoList ? "" : fmt::format("[{}]", place), tensor.spec().to_string()),
      "each rank holds only its part, and dist:: moves what the ranks hold",
      "to_local() for the part, full_tensor() for the whole, redistribute() for another layout");
  if (call.kind) call.group.refuse(*call.kind, error, call.site);
  throw error;
}
std::vector<tensors::LocalTensor> read(const Call& call, const std::vector<Tensor>& tensors,
                                       const char* argument) {
  std::vector<tensors::LocalTensor> locals;
  for (const Tensor& tensor : tensors)
    locals.push_back(read(call, tensor, argument, locals.size()));
  return locals;
}

/// The elements are going to be written: what a gradient saved of them is stale. To be called when
/// no argument can be refused any more.
void count_write(const tensors::LocalTensor& local) {
  if (local.defined()) local.storage()->count_write();
}
const tensors::LocalTensor& written(const Call& call, const Tensor& tensor, const char* argument) {
  const tensors::LocalTensor& local = read(call, tensor, argument);
  count_write(local);
  return local;
}
std::vector<tensors::LocalTensor> written(const Call& call, const std::vector<Tensor>& tensors,
                                          const char* argument) {
  std::vector<tensors::LocalTensor> locals = read(call, tensors, argument);
  for (const tensors::LocalTensor& local : locals) count_write(local);
  return locals;
}

}  // namespace

Work broadcast(const Tensor& tensor, int src, OpOptions options, Site site) {
  if (Recording* recording = recording_of(options.group))
    return recording->record(OpKind::broadcast, options, [=](const OpOptions& again) {
      return broadcast(tensor, src, again, site);
    });
  const ProcessGroup& group = chosen(options.group);
  const int source = root_in(group, OpKind::broadcast, src, site);
  const Call call{"broadcast", OpKind::broadcast, group, site};
  return group.broadcast(written(call, tensor, "tensor"), source, call_options(options), site);
}

Work all_reduce(const Tensor& tensor, ReduceOp op, OpOptions options, Site site) {
  if (Recording* recording = recording_of(options.group))
    return recording->record(OpKind::all_reduce, options, [=](const OpOptions& again) {
      return all_reduce(tensor, op, again, site);
    });
  const ProcessGroup& group = chosen(options.group);
  const Call call{"all_reduce", OpKind::all_reduce, group, site};
  return group.all_reduce(written(call, tensor, "tensor"), op, call_options(options), site);
}

Work reduce(const Tensor& tensor, int dst, ReduceOp op, OpOptions options, Site site) {
  if (Recording* recording = recording_of(options.group))
    return recording->record(OpKind::reduce, options, [=](const OpOptions& again) {
      return reduce(tensor, dst, op, again, site);
    });
  const ProcessGroup& group = chosen(options.group);
  const int destination = root_in(group, OpKind::reduce, dst, site);
  const Call call{"reduce", OpKind::reduce, group, site};
  return group.reduce(written(call, tensor, "tensor"), destination, op, call_options(options),
                      site);
}

Work all_gather(const std::vector<Tensor>& tensor_list, const Tensor& tensor, OpOptions options,
                Site site) {
  if (Recording* recording = recording_of(options.group))
    return recording->record(OpKind::all_gather, options, [=](const OpOptions& again) {
      return all_gather(tensor_list, tensor, again, site);
    });
  const ProcessGroup& group = chosen(options.group);
  const Call call{"all_gather", OpKind::all_gather, group, site};
  return group.all_gather(written(call, tensor_list, "tensor_list"), read(call, tensor, "tensor"),
                          call_options(options), site);
}

Work gather(const Tensor& tensor, const std::vector<Tensor>& gather_list, int dst,
            OpOptions options, Site site) {
  if (Recording* recording = recording_of(options.group))
    return recording->record(OpKind::gather, options, [=](const OpOptions& again) {
      return gather(tensor, gather_list, dst, again, site);
    });
  const ProcessGroup& group = chosen(options.group);
  const int destination = root_in(group, OpKind::gather, dst, site);
  const Call call{"gather", OpKind::gather, group, site};
  return group.gather(read(call, tensor, "tensor"), written(call, gather_list, "gather_list"),
                      destination, call_options(options), site);
}

Work scatter(const Tensor& tensor, const std::vector<Tensor>& scatter_list, int src,
             OpOptions options, Site site) {
  if (Recording* recording = recording_of(options.group))
    return recording->record(OpKind::scatter, options, [=](const OpOptions& again) {
      return scatter(tensor, scatter_list, src, again, site);
    });
  const ProcessGroup& group = chosen(options.group);
  const int source = root_in(group, OpKind::scatter, src, site);
  const Call call{"scatter", OpKind::scatter, group, site};
  return group.scatter(written(call, tensor, "tensor"), read(call, scatter_list, "scatter_list"),
                       source, call_options(options), site);
}

Work reduce_scatter(const Tensor& output, const std::vector<Tensor>& input_list, ReduceOp op,
                    OpOptions options, Site site) {
  if (Recording* recording = recording_of(options.group))
    return recording->record(OpKind::reduce_scatter, options, [=](const OpOptions& again) {
      return reduce_scatter(output, input_list, op, again, site);
    });
  const ProcessGroup& group = chosen(options.group);
  const Call call{"reduce_scatter", OpKind::reduce_scatter, group, site};
  return group.reduce_scatter(written(call, output, "output"), read(call, input_list, "input_list"),
                              op, call_options(options), site);
}

Work all_to_all(const std::vector<Tensor>& output_list, const std::vector<Tensor>& input_list,
                OpOptions options, Site site) {
  if (Recording* recording = recording_of(options.group))
    return recording->record(OpKind::all_to_all, options, [=](const OpOptions& again) {
      return all_to_all(output_list, input_list, again, site);
    });
  const ProcessGroup& group = chosen(options.group);
  const Call call{"all_to_all", OpKind::all_to_all, group, site};
  return group.all_to_all(written(call, output_list, "output_list"),
                          read(call, input_list, "input_list"), call_options(options), site);
}

namespace {

Call coalesced_call(const char* name, OpKind kind, const OpOptions& options, const Site& site) {
  require_no_recording(options.group, "a coalesced call");
  return {name, kind, chosen(options.group), site};
}

/// Before the first of them is under way. @param place of the list in a list of lists
void require_none_distributed(const Call& call, const std::vector<Tensor>& tensors,
                              const char* argument, std::size_t place = kNoList) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].defined() || !tensors[i].is_distributed()) continue;
    const std::string list = place == kNoList ? argument : fmt::format("{}[{}]", argument, place);
    read(call, tensors[i], list.c_str(), i);
  }
}

/// Starts `count` of them; waits for all, unless the caller will.
template <typename Start>
Work coalesced(std::size_t count, const OpOptions& options, const Start& start) {
  const Work::State::Clock::time_point started = Work::State::Clock::now();
  OpOptions each = options;
  each.async_op = true;
  std::vector<Work> works;
  for (std::size_t i = 0; i < count; ++i) works.push_back(start(i, each));
  Work all = all_of(std::move(works), started);
  if (!options.async_op) all.wait();
  return all;
}

void check_lists(const char* call, std::size_t outputs, std::size_t inputs) {
  if (outputs == inputs) return;
  throw base::Error(base::ErrorCode::kInvalidArgument,
                    fmt::format("{} with {} outputs for {} inputs", call, outputs, inputs), "",
                    "an output for each input");
}

}  // namespace

Work all_reduce_coalesced(const std::vector<Tensor>& tensors, ReduceOp op, OpOptions options,
                          Site site) {
  require_none_distributed(
      coalesced_call("all_reduce_coalesced", OpKind::all_reduce, options, site), tensors,
      "tensors");
  return coalesced(tensors.size(), options, [&](std::size_t i, const OpOptions& each) {
    return all_reduce(tensors[i], op, each, site);
  });
}

Work all_gather_coalesced(const std::vector<std::vector<Tensor>>& output_tensor_lists,
                          const std::vector<Tensor>& input_tensor_list, OpOptions options,
                          Site site) {
  const Call call = coalesced_call("all_gather_coalesced", OpKind::all_gather, options, site);
  check_lists(call.name, output_tensor_lists.size(), input_tensor_list.size());
  for (std::size_t i = 0; i < output_tensor_lists.size(); ++i)
    require_none_distributed(call, output_tensor_lists[i], "output_tensor_lists", i);
  require_none_distributed(call, input_tensor_list, "input_tensor_list");
  return coalesced(input_tensor_list.size(), options, [&](std::size_t i, const OpOptions& each) {
    return all_gather(output_tensor_lists[i], input_tensor_list[i], each, site);
  });
}

Work all_gather_into_tensor_coalesced(const std::vector<Tensor>& outputs,
                                      const std::vector<Tensor>& inputs, OpOptions options,
                                      Site site) {
  const Call call =
      coalesced_call("all_gather_into_tensor_coalesced", OpKind::all_gather, options, site);
  check_lists(call.name, outputs.size(), inputs.size());
  require_none_distributed(call, outputs, "outputs");
  require_none_distributed(call, inputs, "inputs");
  return coalesced(inputs.size(), options, [&](std::size_t i, const OpOptions& each) {
    return all_gather_into_tensor(outputs[i], inputs[i], each, site);
  });
}

Work reduce_scatter_tensor_coalesced(const std::vector<Tensor>& outputs,
                                     const std::vector<Tensor>& inputs, ReduceOp op,
                                     OpOptions options, Site site) {
  const Call call =
      coalesced_call("reduce_scatter_tensor_coalesced", OpKind::reduce_scatter, options, site);
  check_lists(call.name, outputs.size(), inputs.size());
  require_none_distributed(call, outputs, "outputs");
  require_none_distributed(call, inputs, "inputs");
  return coalesced(inputs.size(), options, [&](std::size_t i, const OpOptions& each) {
    return reduce_scatter_tensor(outputs[i], inputs[i], op, each, site);
  });
}

Work barrier(OpOptions options, Site site) {
  require_no_recording(options.group, "barrier");
  return chosen(options.group).barrier(call_options(options), site);
}

void send(const Tensor& tensor, int dst, MessageOptions options, Site site) {
  require_no_recording(options.group, "send");
  const ProcessGroup& group = chosen(options.group);
  const tensors::LocalTensor& local = read({"send", {}, group, site}, tensor, "tensor");
  group.send(local, get_group_rank(group, dst), options.tag, call_options(options), site);
}

int recv(const Tensor& tensor, int src, MessageOptions options, Site site) {
  require_no_recording(options.group, "recv");
  const ProcessGroup& group = chosen(options.group);
  const int peer = peer_in(group, src);
  const tensors::LocalTensor& local = written({"recv", {}, group, site}, tensor, "tensor");
  const int source = group.recv(local, peer, options.tag, call_options(options), site);
  return get_global_rank(group, source);
}

Work isend(const Tensor& tensor, int dst, MessageOptions options, Site site) {
  if (Recording* recording = recording_of(options.group)) {
    read({"isend", {}, recording->group(), site}, tensor, "tensor");
    return recording->record({P2POp::Kind::send, tensor, dst, options.tag}, options);
  }
  const ProcessGroup& group = chosen(options.group);
  const tensors::LocalTensor& local = read({"isend", {}, group, site}, tensor, "tensor");
  return group.isend(local, get_group_rank(group, dst), options.tag, call_options(options), site);
}

Work irecv(const Tensor& tensor, int src, MessageOptions options, Site site) {
  if (Recording* recording = recording_of(options.group)) {
    read({"irecv", {}, recording->group(), site}, tensor, "tensor");
    return recording->record({P2POp::Kind::receive, tensor, src, options.tag}, options);
  }
  const ProcessGroup& group = chosen(options.group);
  const int peer = peer_in(group, src);
  const tensors::LocalTensor& local = written({"irecv", {}, group, site}, tensor, "tensor");
  return group.irecv(local, peer, options.tag, call_options(options), site);
}

Work all_gather_into_tensor(const Tensor& output, const Tensor& input, OpOptions options,
                            Site site) {
  if (Recording* recording = recording_of(options.group))
    return recording->record(OpKind::all_gather, options, [=](const OpOptions& again) {
      return all_gather_into_tensor(output, input, again, site);
    });
  const ProcessGroup& group = chosen(options.group);
  const Call call{"all_gather_into_tensor", OpKind::all_gather, group, site};
  return group.all_gather_into_tensor(written(call, output, "output"), read(call, input, "input"),
                                      call_options(options), site);
}

Work reduce_scatter_tensor(const Tensor& output, const Tensor& input, ReduceOp op,
                           OpOptions options, Site site) {
  if (Recording* recording = recording_of(options.group))
    return recording->record(OpKind::reduce_scatter, options, [=](const OpOptions& again) {
      return reduce_scatter_tensor(output, input, op, again, site);
    });
  const ProcessGroup& group = chosen(options.group);
  const Call call{"reduce_scatter_tensor", OpKind::reduce_scatter, group, site};
  return group.reduce_scatter_tensor(written(call, output, "output"), read(call, input, "input"),
                                     op, call_options(options), site);
}

Work all_to_all_single(const Tensor& output, const Tensor& input,
                       const std::vector<std::int64_t>& output_split_sizes,
                       const std::vector<std::int64_t>& input_split_sizes, OpOptions options,
                       Site site) {
  if (Recording* recording = recording_of(options.group))
    return recording->record(OpKind::all_to_all, options, [=](const OpOptions& again) {
      return all_to_all_single(output, input, output_split_sizes, input_split_sizes, again, site);
    });
  const ProcessGroup& group = chosen(options.group);
  const Call call{"all_to_all_single", OpKind::all_to_all, group, site};
  return group.all_to_all_single(written(call, output, "output"), read(call, input, "input"),
                                 output_split_sizes, input_split_sizes, call_options(options),
                                 site);
}

void monitored_barrier(MonitoredBarrier options, Site site) {
  require_no_recording(options.group, "monitored_barrier");
  chosen(options.group)
      .monitored_barrier({.timeout = options.timeout, .wait_all_ranks = options.wait_all_ranks},
                         site);
}

std::vector<Work> batch_isend_irecv(const std::vector<P2POp>& operations, const ProcessGroup& group,
                                    Site site) {
  const Call call{"batch_isend_irecv", {}, chosen(group), site};
  const ProcessGroup& meant = call.group;
  std::vector<tensors::LocalTensor> locals;
  for (const P2POp& one : operations)
    locals.push_back(read(call, one.tensor, "operation", locals.size()));
  if (Recording* recording = recording_of(group)) {
    std::vector<Work> works;
    for (const P2POp& one : operations) works.push_back(recording->record(one, {}));
    return works;
  }
  std::vector<collectives::P2POp> batch;
  for (const P2POp& one : operations) {
    const bool receives = one.kind == collectives::P2POp::Kind::receive;
    const int peer = receives ? peer_in(meant, one.peer) : get_group_rank(meant, one.peer);
    batch.push_back({one.kind, std::move(locals[batch.size()]), peer, one.tag});
  }
  for (const collectives::P2POp& one : batch) {
    if (one.kind == collectives::P2POp::Kind::receive) count_write(one.tensor);
  }
  return meant.batch_isend_irecv(batch, site);
}

}  // namespace dtrun::dist
