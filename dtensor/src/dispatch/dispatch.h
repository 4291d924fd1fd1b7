// Dispatch: prepares a call on distributed tensors: it chooses layouts by the rules, redistributes
// the inputs, and determines the result's spec. The plan is cached in the mesh by operator,
// attributes and specs.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dispatch/call_key.h"
#include "dispatch/op.h"

namespace dtrun::dtensor {

/// An operator without its template types.
struct OpView {
  const void* op;
  const void* attributes;
  std::string_view name;
  Meta (*meta)(const void* op, const void* attributes, Metas inputs);
  void (*rules)(const void* op, const void* attributes, Rules& rules, Metas inputs);
  Weighed weighed;
  Saves saves;
};

template <typename A, typename V>
OpView view_of(const Op<A, V>& op, const A& attributes) {
  return {&op,
          &attributes,
          op.name,
          [](const void* o, const void* a, Metas inputs) {
            return static_cast<const Op<A, V>*>(o)->meta(inputs, *static_cast<const A*>(a));
          },
          [](const void* o, const void* a, Rules& rules, Metas inputs) {
            static_cast<const Op<A, V>*>(o)->rules(rules, inputs, *static_cast<const A*>(a));
          },
          op.weighed,
          op.saves};
}

/// A tensor without its graph: this rank's part and its spec. A local tensor has no spec.
class Placed {
 public:
  Placed() = default;
  /// @param wants_gradient that the operation is going to give back
  Placed(const LocalTensor& local, const Spec& spec, bool wants_gradient = false)
      : local_(&local), spec_(&spec), wants_gradient_(wants_gradient) {}

  const LocalTensor& local() const { return *local_; }
  const Spec& spec() const { return *spec_; }
  bool is_distributed() const { return static_cast<bool>(*spec_); }
  bool wants_gradient() const { return wants_gradient_; }
  const Shape& shape() const { return is_distributed() ? spec_->shape() : local_->shape(); }
  tensors::DType dtype() const { return local_->dtype(); }

 private:
  const LocalTensor* local_ = nullptr;
  const Spec* spec_ = nullptr;
  bool wants_gradient_ = false;
};

/// The kernel's inputs, and the spec of its result.
struct PreparedCall {
  std::vector<LocalTensor> locals;
  std::vector<Spec> inputs;
  Spec output;
};

/// Collective where inputs have to be redistributed. A one-element local tensor joins as Replicate.
/// @param key the attributes' @throws Error kInvalidArgument for different meshes, a local tensor
/// of many elements, and what meta throws
PreparedCall prepare_call(const OpView& op, std::span<const Placed> inputs, CallKey key);

/// The layouts of the operands that cost least to come to, the cheapest first: "matmul takes [R]
/// and [S(1)] for 4.0 us, [S(1)] and [S(0)] for 4.2 us".
std::string nearest_layouts(const OpView& op, std::span<const Placed> inputs);

/// @throws Error kInvalidArgument naming the operator and the argument
[[noreturn]] void refuse_undefined(std::string_view op, std::size_t argument);
/// @param which "its weight"
[[noreturn]] void refuse_undefined(std::string_view op, const std::string& which);

}  // namespace dtrun::dtensor
