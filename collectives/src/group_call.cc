#include "group_call.h"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "algorithm.h"
#include "short_call.h"

namespace dtrun::collectives {

void GroupCall::refuse(const base::Error& error) const {
  // A message that was never sent concerns no other rank, so the group stays usable.
  if (print.kind != OpKind::send && print.kind != OpKind::receive) core_.reject(print, error);
}

void GroupCall::tell_of_exception() const noexcept {
  try {
    refuse(base::Error(base::ErrorCode::kSystem, "the call ended with an exception",
                       "memory may have run out", "look at that rank's output"));
  } catch (...) {
    // Without memory for the text the members run into their deadline.
  }
}

void GroupCall::show_to_observers(const ObservedCall& seen) {
  for (CallObserver* observer = CallObserver::innermost(); observer != nullptr;
       observer = observer->outer()) {
    observer->on_call(seen);
    if (std::function<void()> end = observer->at_end(seen)) kept().at_end.push_back(std::move(end));
  }
}

namespace {

/// The buffers of tensors that need no copies, without an allocation.
class ContiguousBuffers {
 public:
  /// @return nullopt: one needs a copy, or they are more than go the short way
  std::optional<std::span<const Buffer>> add(const TensorList& list) {
    return list.parts == nullptr ? add(list.tensors) : add(*list.parts);
  }
  std::optional<std::span<const Buffer>> add(std::span<const LocalTensor> tensors) {
    if (tensors.size() > kMost - count_) return std::nullopt;
    Buffer* const begin = buffers() + count_;
    Buffer* at = begin;
    for (const LocalTensor& tensor : tensors) {
      if (!tensor.is_contiguous()) return std::nullopt;
      std::construct_at(at++, buffer_of(tensor));
    }
    count_ += tensors.size();
    return std::span<const Buffer>(begin, at);
  }

 private:
  std::optional<std::span<const Buffer>> add(const Parts& parts) {
    if (parts.size() > kMost - count_ || !parts.whole().is_contiguous()) return std::nullopt;
    Buffer* const begin = buffers() + count_;
    Buffer part = buffer_of(parts.whole());
    const std::size_t item_bytes = tensors::item_size(part.dtype);
    auto* at = static_cast<std::byte*>(part.data);
    for (std::size_t rank = 0; rank < parts.size(); ++rank) {
      part.count = parts.count(rank);
      part.data = part.count == 0 ? nullptr : at;
      at += static_cast<std::size_t>(part.count) * item_bytes;
      std::construct_at(begin + rank, part);
    }
    count_ += parts.size();
    return std::span<const Buffer>(begin, parts.size());
  }

  static constexpr std::size_t kMost = 32;  ///< two lists of 16
  Buffer* buffers() { return reinterpret_cast<Buffer*>(memory_); }

  std::size_t count_ = 0;
  /// Not an array of buffers: to make them all would take as long as a part of a small collective.
  alignas(Buffer) std::byte memory_[kMost * sizeof(Buffer)];
};

}  // namespace

Work GroupCall::run_long(const TensorList& inputs, const TensorList& outputs) {
  const bool may_scale = print.reduce_op == ReduceOp::premul_sum;
  const bool scales = may_scale && !backend_->scales_inputs();
  if (may_scale && !scales && !options_.async && run_now(inputs, outputs)) return Work();
  arm();
  const auto tensors_of = [](const TensorList& list) {
    return list.parts != nullptr ? list.parts->tensors() : std::vector<LocalTensor>();
  };
  const std::vector<LocalTensor> input_parts = tensors_of(inputs),
                                 output_parts = tensors_of(outputs);
  const auto from = inputs.parts != nullptr ? std::span(input_parts) : inputs.tensors;
  const auto to = outputs.parts != nullptr ? std::span(output_parts) : outputs.tensors;
  return scales ? hand_over_scaled(from, to) : hand_over(from, to);
}

Work GroupCall::run(const AgreedExchange& exchange) {
  if (!options_.async && run_now(exchange)) [[likely]]
    return Work();
  arm();
  // A backend may take the device of any buffer for that of all.
  const Buffer empty{.dtype = print.dtype, .device_index = exchange.device.index};
  const auto all = [&](const PeerParts& parts, const std::vector<Buffer>& buffers) {
    return for_all_ranks(buffers, parts.peers, core_.size(), empty);
  };
  return start({all(exchange.inputs, buffers().inputs(exchange.inputs.tensors)),
                all(exchange.outputs, buffers().outputs(exchange.outputs.tensors)),
                {}});
}

Work GroupCall::hand_over_scaled(std::span<const LocalTensor> inputs,
                                 std::span<const LocalTensor> outputs) {
  std::vector<LocalTensor> copies;
  std::span<const LocalTensor> terms = outputs;
  // In place the result is written over the terms anyway, so no copy is made, and counted.
  if (inputs.size() == 1 && outputs.size() == 1 &&
      inputs.front().data() == outputs.front().data()) {
    scale_in_place(outputs.front(), *options_.factor);
  } else {
    terms = copies = scaled_copies(inputs, *options_.factor);
  }
  if (!options_.async && run_now(terms, outputs)) return Work();
  return hand_over(terms, outputs);
}

Work GroupCall::hand_over(std::span<const LocalTensor> inputs,
                          std::span<const LocalTensor> outputs) {
  Collective collective;
  if (inputs.size() == 1 && inputs.data() == outputs.data()) {
    collective.inputs.push_back(buffers().in_place(inputs.front()));
    collective.outputs = collective.inputs;
  } else {
    collective.inputs = buffers().inputs(inputs);
    collective.outputs = buffers().outputs(outputs);
  }
  return start(std::move(collective));
}

void GroupCall::require_each_apart(const CollectiveView& collective) const {
  try {
    collectives::require_each_apart(collective, core_.rank(), core_.size());
  } catch (const base::Error& error) {
    refuse(error);
    throw;
  }
}

Work GroupCall::start(Collective collective) {
  collective.call.fingerprint = print;
  if (!are_apart(collective.view())) require_each_apart(collective.view());
  collective.call = take(collective.view().bytes());
  return backend_->start(std::move(collective));
}

bool GroupCall::run_lists_now(const TensorList& inputs, const TensorList& outputs) {
  ContiguousBuffers buffers;
  const auto from = buffers.add(inputs);
  if (!from) return false;
  const bool in_place = inputs.parts == nullptr && outputs.parts == nullptr &&
                        inputs.tensors.data() == outputs.tensors.data() &&
                        inputs.tensors.size() == outputs.tensors.size();
  const auto to = in_place ? from : buffers.add(outputs);
  if (!to) return false;
  return go_short_way(*from, *to, nullptr);
}

inline bool GroupCall::run_single_now(std::span<const LocalTensor> inputs,
                                      std::span<const LocalTensor> outputs,
                                      const PartPeers* peers) {
  Buffer input, output;
  const auto is_taken = [](std::span<const LocalTensor> list, Buffer& buffer) {
    if (list.empty()) return true;
    if (!list.front().is_contiguous()) return false;
    buffer = buffer_of(list.front());
    return true;
  };
  if (!is_taken(inputs, input)) return false;
  if (inputs.data() == outputs.data() && inputs.size() == outputs.size())
    return go_short_way({&input, inputs.size()}, {&input, inputs.size()}, peers);
  if (!is_taken(outputs, output)) return false;
  return go_short_way({&input, inputs.size()}, {&output, outputs.size()}, peers);
}

bool GroupCall::run_singles_now(std::span<const LocalTensor> inputs,
                                std::span<const LocalTensor> outputs) {
  return run_single_now(inputs, outputs);
}

inline bool GroupCall::run_now(const AgreedExchange& exchange) {
  const std::span<const LocalTensor> inputs = exchange.inputs.tensors,
                                     outputs = exchange.outputs.tensors;
  const PartPeers peers{exchange.inputs.peers, exchange.outputs.peers};
  if (inputs.size() <= 1 && outputs.size() <= 1) return run_single_now(inputs, outputs, &peers);
  ContiguousBuffers buffers;
  const auto from = buffers.add(inputs), to = buffers.add(outputs);
  return from && to && go_short_way(*from, *to, &peers);
}

inline bool GroupCall::go_short_way(std::span<const Buffer> inputs, std::span<const Buffer> outputs,
                                    const PartPeers* peers) {
  ShortCall call(core_.meter(), print.kind);
  const CollectiveView collective{print, inputs, outputs, &call, peers};
  const bool has_both_sides = !inputs.empty() && !outputs.empty();
  // One tensor that is both is worked on in place; a list of several may not be.
  const bool is_in_place = inputs.data() == outputs.data() && inputs.size() == 1;
  if (has_both_sides && !is_in_place && !are_apart(collective)) require_each_apart(collective);
  try {
    if (!backend_->run_now(collective, options_.timeout.value_or(core_.timeout()))) return false;
    if (!call.is_counted()) call.count(collective.bytes());
    call.succeed();
    end_now();
    return true;
  } catch (...) {
    call.count(collective.bytes());
    call.fail();
    tell_of_exception();
    throw;
  }
}

Call GroupCall::take(std::uint64_t bytes) {
  arm();
  core_.meter().count(print.kind, bytes);
  Call call;
  call.fingerprint = print;
  call.deadline = base::Deadline::after(options_.timeout.value_or(core_.timeout()));
  call.async = options_.async;
  call.timer = core_.timer_of(print.kind);
  call.factor = options_.factor.value_or(1);
  std::move(kept().buffers).attach_to(call);
  if (!kept().at_end.empty()) {
    call.finish = [first = std::move(call.finish), ends = std::move(kept().at_end)] {
      if (first) first();
      for (const auto& end : ends) end();
    };
  }
  return call;
}

}  // namespace dtrun::collectives
