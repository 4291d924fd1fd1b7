// What the definitions of functions of each element by itself have in common.
#pragma once

#include "dispatch/call.h"
#include "dtrun/dtensor/ops.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/tensor/result_type.h"

namespace dtrun::dtensor {

inline tensors::TypedOperand typed(const Meta& meta) {
  return {meta.dtype, meta.shape};
}
/// Two operands, broadcast and promoted.
inline Meta promoted(Metas in, const None&) {
  return {tensors::broadcast_shapes(in[0].shape, in[1].shape),
          tensors::result_type(typed(in[0]), typed(in[1]))};
}
/// What an operand's gradient is before broadcasting and promotion.
inline Tensor back_to(const Context<None, None>& c, std::size_t which, const Tensor& gradient) {
  return sum_to(gradient, c.shape(which)).to(c.dtype(which));
}

using Gradient = Tensors (*)(const Context<None, None>&);

inline Meta same_dtype(Metas in, const None&) {
  return in[0];
}
inline Meta floating_dtype(Metas in, const None&) {
  return {in[0].shape, tensors::is_floating_point(in[0].dtype) ? in[0].dtype : DType::f32};
}
inline Meta boolean_dtype(Metas in, const None&) {
  return {in[0].shape, DType::boolean};
}
inline void elementwise_rules(Rules& r, Metas, const None&) {
  r.pointwise().cut_all();
}

/// A kernel of one tensor, as an operator's.
template <LocalTensor (*kKernel)(const LocalTensor&)>
LocalTensor run_unary(Locals in, const None&, const None&, const Site&) {
  return kKernel(in[0]);
}

/// A function whose gradient is that of its result, times the derivative.
template <LocalTensor (*kKernel)(const LocalTensor&)>
constexpr Op<> unary(std::string_view name, Meta (*meta)(Metas, const None&), Gradient gradient,
                     Saves saves = {}) {
  return {.name = name,
          .meta = meta,
          .rules = elementwise_rules,
          .local = run_unary<kKernel>,
          .backward = gradient,
          .saves = saves};
}

}  // namespace dtrun::dtensor
