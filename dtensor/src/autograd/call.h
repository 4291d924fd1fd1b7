// call: runs one operator on tensors and records it if a gradient is wanted. Local tensors go
// straight to the kernel.
#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <utility>
#include <vector>

#include "autograd/op_node.h"
#include "dispatch/dispatch.h"
#include "dtrun/base/error.h"
#include "dtrun/tensor/place_error.h"
#include "move/span.h"

namespace dtrun::dtensor {

/// One T for each of an operator's inputs, without an allocation for a few.
template <typename T>
class PerInput {
 public:
  explicit PerInput(std::size_t count)
      : many_(count > kFew ? count : 0), all_(many_.empty() ? few_.data() : many_.data(), count) {}
  PerInput(const PerInput&) = delete;
  PerInput& operator=(const PerInput&) = delete;

  T& operator[](std::size_t i) { return all_[i]; }
  std::span<const T> all() const { return all_; }

 private:
  static constexpr std::size_t kFew = 4;
  std::array<T, kFew> few_;
  std::vector<T> many_;
  const std::span<T> all_;
};

/// Rethrows the error with the operator and its operands added; within a named call, which tells
/// its own, as it is.
[[noreturn]] void tell_call(std::string_view op, std::span<const Tensor* const> inputs,
                            const base::Error& error);

/// Rethrows what a kernel says of its part of a list of positions or classes, of the whole list.
/// @param list the op's
[[noreturn]] void tell_place_in_whole(std::span<const Spec> inputs, int list,
                                      const tensors::PlaceError& error);

template <typename A, typename V>
Tensor run_local(const Op<A, V>& op, std::span<const Tensor* const> inputs, const A& attributes,
                 const V& numbers) {
  PerInput<const LocalTensor*> locals(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) locals[i] = &inputs[i]->local();
  return Tensor(op.local(Locals(locals.all()), attributes, numbers, Site{}));
}

/// The inputs that the gradient saves and that came from other ranks, as the kernel had them, so
/// that backward need not bring them again. What has become larger is not kept.
std::vector<Brought> brought_inputs(const PreparedCall& call, std::span<const Tensor* const> inputs,
                                    Saves saves);

/// @param brought filled where a gradient will be wanted
template <typename A, typename V>
Tensor run_distributed(const Op<A, V>& op, std::span<const Tensor* const> inputs,
                       const A& attributes, const V& numbers, std::vector<Brought>* brought) {
  PerInput<Placed> placed(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    placed[i] =
        Placed(inputs[i]->local(), inputs[i]->spec(),
               (brought != nullptr && inputs[i]->requires_grad()) || RunTwiceScope::stands());
  }
  CallKey key;
  append_key(key, attributes);
  PreparedCall prepared = prepare_call(view_of(op, attributes), placed.all(), std::move(key));
  if (brought != nullptr && op.saves.inputs != 0)
    *brought = brought_inputs(prepared, inputs, op.saves);
  PerInput<const LocalTensor*> locals(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) locals[i] = &prepared.locals[i];
  if (prepared.output.is_outside()) [[unlikely]]
    return Tensor::outside(std::move(prepared.output), prepared.locals.front().device());
  try {
    LocalTensor local =
        op.local(Locals(locals.all()), attributes, numbers, Site{prepared.inputs, prepared.output});
    return Tensor(std::move(prepared.output), std::move(local));
  } catch (const tensors::PlaceError& error) {
    tell_place_in_whole(prepared.inputs, op.list, error);
  }
}

template <typename A, typename V>
Tensor call(const Op<A, V>& op, std::span<const Tensor* const> inputs, const A& attributes = {},
            const V& numbers = {}) {
  bool distributed = false;
  bool wants_gradient = false;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i]->defined()) refuse_undefined(op.name, i);
    distributed = distributed || inputs[i]->is_distributed();
    wants_gradient = wants_gradient || inputs[i]->requires_grad();
  }
  wants_gradient = wants_gradient && op.backward != nullptr && Graph::is_on();
  const Span span(Span::Kind::op, op.name);
  std::vector<Brought> brought;
  Tensor result;
  try {
    result = distributed ? run_distributed(op, inputs, attributes, numbers,
                                           wants_gradient ? &brought : nullptr)
                         : run_local(op, inputs, attributes, numbers);
  } catch (const base::Error& error) {
    tell_call(op.name, inputs, error);
  }
  if (wants_gradient && tensors::is_floating_point(result.dtype())) {
    record(op, inputs, result, attributes, numbers, brought);
  }
  return result;
}

/// Records a result that was computed outside the graph as this operator's.
template <typename A, typename V>
Tensor recorded(const Op<A, V>& op, std::span<const Tensor* const> inputs, Tensor result,
                const A& attributes, const V& numbers = {}) {
  const auto wants_gradient = [](const Tensor* input) { return input->requires_grad(); };
  if (Graph::is_on() && std::ranges::any_of(inputs, wants_gradient)) {
    record(op, inputs, result, attributes, numbers);
  }
  return result;
}
template <typename A, typename V>
Tensor recorded(const Op<A, V>& op, const Tensor& input, Tensor result, const A& attributes,
                const V& numbers = {}) {
  const Tensor* const inputs[] = {&input};
  return recorded(op, std::span<const Tensor* const>(inputs), std::move(result), attributes,
                  numbers);
}

template <typename A, typename V>
Tensor call(const Op<A, V>& op, const Tensor& a, const A& attributes = {}, const V& numbers = {}) {
  const Tensor* const inputs[] = {&a};
  return call(op, std::span<const Tensor* const>(inputs), attributes, numbers);
}

template <typename A, typename V>
Tensor call(const Op<A, V>& op, const Tensor& a, const Tensor& b, const A& attributes = {},
            const V& numbers = {}) {
  const Tensor* const inputs[] = {&a, &b};
  return call(op, std::span<const Tensor* const>(inputs), attributes, numbers);
}

}  // namespace dtrun::dtensor
