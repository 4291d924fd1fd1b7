// The collectives of a ProcessGroup: what each one's arguments must be, on what of it the ranks
// must agree, and which tensors a rank gives and gets.
#include <algorithm>
#include <span>
#include <utility>

#include "dtrun/collectives/agreed_exchange.h"
#include "dtrun/collectives/process_group.h"
#include "group_call.h"

namespace dtrun::collectives {

namespace {

constexpr std::span<const LocalTensor> kNone;

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

std::int64_t bytes_for_others(const Parts& parts, int own) {
  const std::int64_t elements = parts.whole().numel() - parts.count(static_cast<std::size_t>(own));
  return elements * static_cast<std::int64_t>(tensors::item_size(parts.whole().dtype()));
}

/// Of an all_reduce: the parts that others reduce, and the own part's result to each of them.
std::int64_t bytes_of_all_reduce(const LocalTensor& tensor, int ranks, int rank) {
  const std::int64_t whole = tensor.numel(), most = (whole + ranks - 1) / ranks;
  const std::int64_t part = std::min(most, std::max<std::int64_t>(0, whole - most * rank));
  return (whole - part + part * (ranks - 1)) *
         static_cast<std::int64_t>(tensors::item_size(tensor.dtype()));
}

}  // namespace

Work ProcessGroup::broadcast(const LocalTensor& tensor, int source, const CallOptions& options,
                             Site site) const {
  GroupCall call(core(), OpKind::broadcast, options, site);
  call.check(tensor, "the tensor",
             [&](const GroupShape& group) { require_rank(group, source, "source"); });
  call.print.root = source;
  call.show([&] { return rank() == source ? bytes_of(tensor) * (size() - 1) : 0; });
  agree_on_shape(call.print, tensor);
  return call.rank() == source ? call.run(tensor, kNone) : call.run(kNone, tensor);
}

Work ProcessGroup::all_reduce(const LocalTensor& tensor, ReduceOp op, const CallOptions& options,
                              Site site) const {
  GroupCall call(core(), OpKind::all_reduce, options, site);
  call.print.reduce_op = op;
  call.check(tensor, "the tensor",
             [&](const GroupShape&) { require_reduce_op(op, tensor.dtype()); });
  call.show([&] { return bytes_of_all_reduce(tensor, size(), rank()); });
  agree_on_shape(call.print, tensor);
  return call.run(tensor, tensor);
}

Work ProcessGroup::all_reduce_into_tensor(const LocalTensor& output, const LocalTensor& input,
                                          ReduceOp op, const CallOptions& options,
                                          Site site) const {
  GroupCall call(core(), OpKind::all_reduce, options, site);
  call.print.reduce_op = op;
  call.check(input, "the input", [&](const GroupShape& group) {
    require_reduce_op(op, input.dtype());
    require_tensor(group, output, input.dtype(), "the output");
    require_image({output, "the output"}, {input, "the input"});
  });
  call.show([&] { return bytes_of_all_reduce(input, size(), rank()); });
  agree_on_shape(call.print, input);
  return call.run(input, output);
}

Work ProcessGroup::reduce(const LocalTensor& tensor, int destination, ReduceOp op,
                          const CallOptions& options, Site site) const {
  GroupCall call(core(), OpKind::reduce, options, site);
  call.print.reduce_op = op;
  call.check(tensor, "the tensor", [&](const GroupShape& group) {
    require_rank(group, destination, "destination");
    require_reduce_op(op, tensor.dtype());
  });
  call.show([&] { return rank() == destination ? 0 : bytes_of(tensor); });
  call.print.root = destination;
  agree_on_shape(call.print, tensor);
  return call.rank() == destination ? call.run(tensor, tensor) : call.run(tensor, kNone);
}

Work ProcessGroup::all_gather(const std::vector<LocalTensor>& outputs, const LocalTensor& input,
                              const CallOptions& options, Site site) const {
  GroupCall call(core(), OpKind::all_gather, options, site);
  call.check(input, "the input", [&](const GroupShape& group) {
    require_pieces(group, {input, "the input"}, {outputs, "outputs"});
  });
  call.show([&] { return bytes_of(input) * (size() - 1); });
  call.print.counts = hash_counts(outputs);
  return call.run(input, outputs);
}

Work ProcessGroup::gather(const LocalTensor& input, const std::vector<LocalTensor>& outputs,
                          int destination, const CallOptions& options, Site site) const {
  GroupCall call(core(), OpKind::gather, options, site);
  call.check(input, "the input", [&](const GroupShape& group) {
    require_rooted_pieces(group, {input, "the input"}, {outputs, "outputs"},
                          {destination, "destination"});
  });
  call.show([&] { return rank() == destination ? 0 : bytes_of(input); });
  call.print.root = destination;
  return call.run(input, outputs);
}

Work ProcessGroup::scatter(const LocalTensor& output, const std::vector<LocalTensor>& inputs,
                           int source, const CallOptions& options, Site site) const {
  GroupCall call(core(), OpKind::scatter, options, site);
  call.check(output, "the output", [&](const GroupShape& group) {
    require_rooted_pieces(group, {output, "the output"}, {inputs, "inputs"}, {source, "source"});
  });
  call.show([&] { return bytes_for_others(inputs, rank()); });
  call.print.root = source;
  return call.run(inputs, output);
}

Work ProcessGroup::reduce_scatter(const LocalTensor& output, const std::vector<LocalTensor>& inputs,
                                  ReduceOp op, const CallOptions& options, Site site) const {
  GroupCall call(core(), OpKind::reduce_scatter, options, site);
  call.print.reduce_op = op;
  call.check(output, "the output", [&](const GroupShape& group) {
    require_reduce_op(op, output.dtype());
    require_pieces(group, {output, "the output"}, {inputs, "inputs"});
  });
  call.show([&] { return bytes_for_others(inputs, rank()); });
  call.print.counts = hash_counts(inputs);
  return call.run(inputs, output);
}

Work ProcessGroup::all_to_all(const std::vector<LocalTensor>& outputs,
                              const std::vector<LocalTensor>& inputs, const CallOptions& options,
                              Site site) const {
  GroupCall call(core(), OpKind::all_to_all, options, site);
  call.check(inputs, "inputs", [&](const GroupShape& group) {
    const std::size_t own = static_cast<std::size_t>(group.rank);
    require_list(group, inputs, inputs[own].dtype(), "inputs");
    require_pieces(group, {inputs[own], "this rank's own input"}, {outputs, "outputs"});
  });
  call.show([&] { return bytes_for_others(inputs, rank()); });
  return call.run(inputs, outputs);
}

Work ProcessGroup::all_to_all_agreed(const AgreedExchange& exchange, const CallOptions& options,
                                     Site site) const {
  GroupCall call(core(), OpKind::all_to_all, options, site);
  // In the 32 bits that a fingerprint has for shapes; 0 there would mean that there is no plan.
  call.print.shape = std::max(1U, static_cast<std::uint32_t>(exchange.plan ^ exchange.plan >> 32));
  call.print.dtype = exchange.dtype;
  call.check(exchange.device, "the exchange", [&](const GroupShape& group) {
    if (!is_sound(exchange, group, exchange.outputs)) [[unlikely]]
      refuse_parts(exchange, group, exchange.outputs, "outputs");
    if (!is_sound(exchange, group, exchange.inputs)) [[unlikely]]
      refuse_parts(exchange, group, exchange.inputs, "inputs");
  });
  call.show([&] {
    std::int64_t bytes = 0;
    for (const LocalTensor& part : exchange.inputs.tensors) bytes += bytes_of(part);
    return bytes;
  });
  return call.run(exchange);
}

Work ProcessGroup::all_gather_into_tensor(const LocalTensor& output, const LocalTensor& input,
                                          const CallOptions& options, Site site) const {
  GroupCall call(core(), OpKind::all_gather, options, site);
  Parts parts;
  call.check(input, "the input", [&](const GroupShape& group) {
    require_tensor(group, output, input.dtype(), "the output");
    parts = Parts::equal(group, {output, "the output"}, {input, "the input"});
  });
  call.show([&] { return bytes_of(input) * (size() - 1); });
  call.print.counts = hash_counts(parts);
  return call.run(input, parts);
}

Work ProcessGroup::reduce_scatter_tensor(const LocalTensor& output, const LocalTensor& input,
                                         ReduceOp op, const CallOptions& options, Site site) const {
  GroupCall call(core(), OpKind::reduce_scatter, options, site);
  call.print.reduce_op = op;
  Parts parts;
  call.check(output, "the output", [&](const GroupShape& group) {
    require_reduce_op(op, output.dtype());
    require_tensor(group, input, output.dtype(), "the input");
    parts = Parts::equal(group, {input, "the input"}, {output, "the output"});
  });
  call.show([&] { return bytes_for_others(parts, rank()); });
  call.print.counts = hash_counts(parts);
  return call.run(parts, output);
}

Work ProcessGroup::all_to_all_single(const LocalTensor& output, const LocalTensor& input,
                                     const std::vector<std::int64_t>& output_split_sizes,
                                     const std::vector<std::int64_t>& input_split_sizes,
                                     const CallOptions& options, Site site) const {
  GroupCall call(core(), OpKind::all_to_all, options, site);
  Parts outputs, inputs;
  call.check(input, "the input", [&](const GroupShape& group) {
    require_tensor(group, output, input.dtype(), "the output");
    inputs = Parts::split(group, {input, "the input"}, input_split_sizes, "input_split_sizes");
    outputs = Parts::split(group, {output, "the output"}, output_split_sizes, "output_split_sizes");
    require_same_rows({output, "the output"}, {input, "the input"});
    const std::size_t own = static_cast<std::size_t>(group.rank);
    require_same_count({"this rank's own input", inputs.count(own)},
                       {"this rank's own output", outputs.count(own)});
  });
  call.show([&] { return bytes_for_others(inputs, rank()); });
  return call.run(inputs, outputs);
}

Work ProcessGroup::barrier(const CallOptions& options, Site site) const {
  GroupCall call(core(), OpKind::barrier, options, site);
  call.check([](const GroupShape&) {});
  call.show([] { return std::int64_t{0}; });
  return call.run(kNone, kNone);
}

}  // namespace dtrun::collectives
