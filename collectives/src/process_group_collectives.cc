// The collectives of a ProcessGroup: each is counted, checked, made contiguous, and handed to the
// backend of its tensors.
#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "dtrun/collectives/process_group.h"
#include "group_call.h"

namespace dtrun::collectives {

namespace {

/// For calls in which all ranks' tensors have one shape.
void agree_on_shape(Fingerprint& print, const LocalTensor& tensor) {
  print.counts = static_cast<std::uint64_t>(tensor.numel());
  print.shape = hash_shape(tensor);
}

std::int64_t bytes_of(const LocalTensor& tensor) {
  return tensor.numel() * static_cast<std::int64_t>(tensors::item_size(tensor.dtype()));
}

/// Of the parts that are another rank's.
std::int64_t bytes_for_others(const std::vector<LocalTensor>& parts, int own) {
  std::int64_t bytes = 0;
  for (std::size_t r = 0; r < parts.size(); ++r) {
    if (static_cast<int>(r) != own) bytes += bytes_of(parts[r]);
  }
  return bytes;
}

/// Of an all_reduce: the parts that others reduce, and the own part's result to each of them.
std::int64_t bytes_of_all_reduce(const LocalTensor& tensor, int ranks, int rank) {
  const std::int64_t whole = tensor.numel(), most = (whole + ranks - 1) / ranks;
  const std::int64_t part = std::min(most, std::max<std::int64_t>(0, whole - most * rank));
  return (whole - part + part * (ranks - 1)) *
         static_cast<std::int64_t>(tensors::item_size(tensor.dtype()));
}

/// The buffers of tensors that need no copies, without an allocation.
class ContiguousBuffers {
 public:
  explicit ContiguousBuffers(const std::vector<LocalTensor>& tensors) {
    if (tensors.size() > buffers_.size()) return;
    for (const LocalTensor& tensor : tensors) {
      if (!tensor.is_contiguous()) return;
      buffers_[count_++] = buffer_of(tensor);
    }
    is_complete_ = true;
  }
  bool is_complete() const { return is_complete_; }
  std::span<const Buffer> get() const { return {buffers_.data(), count_}; }

 private:
  std::array<Buffer, 16> buffers_;
  std::size_t count_ = 0;
  bool is_complete_ = false;
};

bool gather_now(GroupCall& call, const LocalTensor& input,
                const std::vector<LocalTensor>& outputs) {
  if (!input.is_contiguous()) return false;
  const ContiguousBuffers to(outputs);
  const Buffer from = buffer_of(input);
  return to.is_complete() && call.run_now({&from, 1}, to.get());
}

bool scatter_now(GroupCall& call, const LocalTensor& output,
                 const std::vector<LocalTensor>& inputs) {
  if (!output.is_contiguous()) return false;
  const ContiguousBuffers from(inputs);
  const Buffer to = buffer_of(output);
  return from.is_complete() && call.run_now(from.get(), {&to, 1});
}

}  // namespace

Work ProcessGroup::broadcast(const LocalTensor& tensor, int source, CallOptions options,
                             Site site) const {
  GroupCall call(core(), OpKind::broadcast, options, site);
  call.check(tensor, "the tensor",
             [&](const GroupShape& group) { require_rank(group, source, "source"); });
  call.print.root = source;
  call.show([&] { return rank() == source ? bytes_of(tensor) * (size() - 1) : 0; });
  agree_on_shape(call.print, tensor);
  if (tensor.is_contiguous() && call.run_now({}, {buffer_of(tensor)})) return Work();
  const Buffer buffer =
      rank() == source ? call.staging().input(tensor) : call.staging().output(tensor);
  return call.backend().broadcast(buffer, source, call.take());
}

Work ProcessGroup::all_reduce(const LocalTensor& tensor, ReduceOp op, CallOptions options,
                              Site site) const {
  GroupCall call(core(), OpKind::all_reduce, options, site);
  call.print.reduce_op = op;
  call.check(tensor, "the tensor",
             [&](const GroupShape&) { require_reduce_op(op, tensor.dtype()); });
  call.show([&] { return bytes_of_all_reduce(tensor, size(), rank()); });
  agree_on_shape(call.print, tensor);
  if (tensor.is_contiguous()) {
    const Buffer buffer = buffer_of(tensor);
    if (call.run_now({buffer}, {buffer})) return Work();
  }
  const Buffer buffer = call.staging().in_place(tensor);
  return call.backend().all_reduce(buffer, buffer, op, call.take());
}

Work ProcessGroup::all_reduce_into_tensor(const LocalTensor& output, const LocalTensor& input,
                                          ReduceOp op, CallOptions options, Site site) const {
  GroupCall call(core(), OpKind::all_reduce, options, site);
  call.print.reduce_op = op;
  call.check(input, "the input", [&](const GroupShape& group) {
    require_reduce_op(op, input.dtype());
    require_tensor(group, output, input.dtype(), "the output");
    require_image({output, "the output"}, {input, "the input"});
  });
  call.show([&] { return bytes_of_all_reduce(input, size(), rank()); });
  agree_on_shape(call.print, input);
  if (input.is_contiguous() && output.is_contiguous() &&
      call.run_now({buffer_of(input)}, {buffer_of(output)})) {
    return Work();
  }
  const Buffer from = call.staging().input(input);
  const Buffer to = call.staging().output(output);
  return call.backend().all_reduce(from, to, op, call.take());
}

Work ProcessGroup::reduce(const LocalTensor& tensor, int destination, ReduceOp op,
                          CallOptions options, Site site) const {
  GroupCall call(core(), OpKind::reduce, options, site);
  call.print.reduce_op = op;
  call.check(tensor, "the tensor", [&](const GroupShape& group) {
    require_rank(group, destination, "destination");
    require_reduce_op(op, tensor.dtype());
  });
  call.show([&] { return rank() == destination ? 0 : bytes_of(tensor); });
  call.print.root = destination;
  agree_on_shape(call.print, tensor);
  const Buffer input = call.staging().input(tensor);
  Buffer output{nullptr, 0, tensor.dtype()};
  if (rank() == destination) output = call.staging().output(tensor);
  return call.backend().reduce(input, output, destination, op, call.take());
}

Work ProcessGroup::all_gather(const std::vector<LocalTensor>& outputs, const LocalTensor& input,
                              CallOptions options, Site site) const {
  GroupCall call(core(), OpKind::all_gather, options, site);
  call.check(input, "the input", [&](const GroupShape& group) {
    require_pieces(group, {input, "the input"}, {outputs, "outputs"});
  });
  call.show([&] { return bytes_of(input) * (size() - 1); });
  call.print.counts = hash_counts(outputs);
  if (gather_now(call, input, outputs)) return Work();
  const Buffer own = call.staging().input(input);
  std::vector<Buffer> buffers = call.staging().outputs(outputs);
  return call.backend().all_gather(own, std::move(buffers), call.take());
}

Work ProcessGroup::gather(const LocalTensor& input, const std::vector<LocalTensor>& outputs,
                          int destination, CallOptions options, Site site) const {
  GroupCall call(core(), OpKind::gather, options, site);
  call.check(input, "the input", [&](const GroupShape& group) {
    require_rooted_pieces(group, {input, "the input"}, {outputs, "outputs"},
                          {destination, "destination"});
  });
  call.show([&] { return rank() == destination ? 0 : bytes_of(input); });
  call.print.root = destination;
  const Buffer own = call.staging().input(input);
  std::vector<Buffer> buffers = call.staging().outputs(outputs);
  return call.backend().gather(own, std::move(buffers), destination, call.take());
}

Work ProcessGroup::scatter(const LocalTensor& output, const std::vector<LocalTensor>& inputs,
                           int source, CallOptions options, Site site) const {
  GroupCall call(core(), OpKind::scatter, options, site);
  call.check(output, "the output", [&](const GroupShape& group) {
    require_rooted_pieces(group, {output, "the output"}, {inputs, "inputs"}, {source, "source"});
  });
  call.show([&] { return bytes_for_others(inputs, rank()); });
  call.print.root = source;
  const Buffer own = call.staging().output(output);
  std::vector<Buffer> buffers = call.staging().inputs(inputs);
  return call.backend().scatter(own, std::move(buffers), source, call.take());
}

Work ProcessGroup::reduce_scatter(const LocalTensor& output, const std::vector<LocalTensor>& inputs,
                                  ReduceOp op, CallOptions options, Site site) const {
  GroupCall call(core(), OpKind::reduce_scatter, options, site);
  call.print.reduce_op = op;
  call.check(output, "the output", [&](const GroupShape& group) {
    require_reduce_op(op, output.dtype());
    require_pieces(group, {output, "the output"}, {inputs, "inputs"});
  });
  call.show([&] { return bytes_for_others(inputs, rank()); });
  call.print.counts = hash_counts(inputs);
  if (scatter_now(call, output, inputs)) return Work();
  const Buffer own = call.staging().output(output);
  std::vector<Buffer> buffers = call.staging().inputs(inputs);
  return call.backend().reduce_scatter(own, std::move(buffers), op, call.take());
}

Work ProcessGroup::all_to_all(const std::vector<LocalTensor>& outputs,
                              const std::vector<LocalTensor>& inputs, CallOptions options,
                              Site site) const {
  GroupCall call(core(), OpKind::all_to_all, options, site);
  call.print.shape = static_cast<std::uint32_t>(options.agreed ^ options.agreed >> 32);
  call.check(inputs, "inputs", [&](const GroupShape& group) {
    const std::size_t own = static_cast<std::size_t>(group.rank);
    require_list(group, inputs, inputs[own].dtype(), "inputs");
    require_pieces(group, {inputs[own], "this rank's own input"}, {outputs, "outputs"});
  });
  call.show([&] { return bytes_for_others(inputs, rank()); });
  std::vector<Buffer> targets = call.staging().outputs(outputs);
  std::vector<Buffer> sources = call.staging().inputs(inputs);
  return call.backend().all_to_all(std::move(targets), std::move(sources), call.take());
}

Work ProcessGroup::all_gather_into_tensor(const LocalTensor& output, const LocalTensor& input,
                                          CallOptions options, Site site) const {
  GroupCall call(core(), OpKind::all_gather, options, site);
  std::vector<LocalTensor> parts;
  call.check(input, "the input", [&](const GroupShape& group) {
    require_tensor(group, output, input.dtype(), "the output");
    parts = equal_parts(group, {output, "the output"}, {input, "the input"});
  });
  call.show([&] { return bytes_of(input) * (size() - 1); });
  call.print.counts = hash_counts(parts);
  if (gather_now(call, input, parts)) return Work();
  const Buffer own = call.staging().input(input);
  std::vector<Buffer> buffers = call.staging().outputs(parts);
  return call.backend().all_gather(own, std::move(buffers), call.take());
}

Work ProcessGroup::reduce_scatter_tensor(const LocalTensor& output, const LocalTensor& input,
                                         ReduceOp op, CallOptions options, Site site) const {
  GroupCall call(core(), OpKind::reduce_scatter, options, site);
  call.print.reduce_op = op;
  std::vector<LocalTensor> parts;
  call.check(output, "the output", [&](const GroupShape& group) {
    require_reduce_op(op, output.dtype());
    require_tensor(group, input, output.dtype(), "the input");
    parts = equal_parts(group, {input, "the input"}, {output, "the output"});
  });
  call.show([&] { return bytes_for_others(parts, rank()); });
  call.print.counts = hash_counts(parts);
  if (scatter_now(call, output, parts)) return Work();
  const Buffer own = call.staging().output(output);
  std::vector<Buffer> buffers = call.staging().inputs(parts);
  return call.backend().reduce_scatter(own, std::move(buffers), op, call.take());
}

Work ProcessGroup::all_to_all_single(const LocalTensor& output, const LocalTensor& input,
                                     const std::vector<std::int64_t>& output_split_sizes,
                                     const std::vector<std::int64_t>& input_split_sizes,
                                     CallOptions options, Site site) const {
  GroupCall call(core(), OpKind::all_to_all, options, site);
  std::vector<LocalTensor> outputs;
  std::vector<LocalTensor> inputs;
  call.check(input, "the input", [&](const GroupShape& group) {
    require_tensor(group, output, input.dtype(), "the output");
    inputs = split_parts(group, {input, "the input"}, input_split_sizes, "input_split_sizes");
    outputs = split_parts(group, {output, "the output"}, output_split_sizes, "output_split_sizes");
    require_same_rows({output, "the output"}, {input, "the input"});
    const std::size_t own = static_cast<std::size_t>(group.rank);
    require_same_count({inputs[own], "this rank's own input"},
                       {outputs[own], "this rank's own output"});
  });
  call.show([&] { return bytes_for_others(inputs, rank()); });
  std::vector<Buffer> targets = call.staging().outputs(outputs);
  std::vector<Buffer> sources = call.staging().inputs(inputs);
  return call.backend().all_to_all(std::move(targets), std::move(sources), call.take());
}

Work ProcessGroup::barrier(CallOptions options, Site site) const {
  GroupCall call(core(), OpKind::barrier, options, site);
  call.check([](const GroupShape&) {});
  call.show([] { return std::int64_t{0}; });
  if (call.run_now({}, {})) return Work();
  return call.backend().barrier(call.take());
}

}  // namespace dtrun::collectives
