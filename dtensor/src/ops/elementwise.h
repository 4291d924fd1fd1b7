// What the definitions of functions of each element by itself have in common.
#pragma once

#include "dispatch/call.h"
#include "dtrun/dtensor/ops/elementwise.h"

namespace dtrun::dtensor {

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
