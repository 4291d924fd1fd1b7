// What the definitions of functions of each element by itself have in common.
#pragma once

#include "autograd/call.h"
#include "dtrun/dtensor/ops/basic.h"
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
template <typename A, typename V>
Tensor back_to(const Context<A, V>& c, std::size_t which, const Tensor& gradient) {
  return sum_to(gradient, c.shape(which)).to(c.dtype(which));
}

/// A gradient that a piecewise straight function's operand decides, but whose own gradient is 0:
/// while a graph of gradients is made, it is part of it, as in PyTorch.
inline Tensor depending_on(const Tensor& operand, const Tensor& gradient) {
  if (!Graph::is_on() || gradient.requires_grad() || !operand.requires_grad()) return gradient;
  const Tensor everywhere = ones_like(operand).to(DType::boolean);
  return gradient + masked_fill(operand, everywhere, 0);
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

// Of a tensor and a number.

/// Its kind decides the dtype, its value nothing.
/// What the ranks have yet to add up may be multiplied by a finite factor first. Infinity times 2
/// and infinity times -1 have no sum.
enum class Factor { finite, infinite };

struct Kind {
  Scalar::Kind kind;
  Factor factor = Factor::finite;
};
inline void append_key(CallKey& key, const Kind& a) {
  key.push_back(static_cast<std::int64_t>(a.kind) * 2 + static_cast<std::int64_t>(a.factor));
}

struct Number {
  Scalar value;
};

inline Scalar of_kind(Scalar::Kind kind) {
  if (kind == Scalar::Kind::boolean) return true;
  return kind == Scalar::Kind::integer ? Scalar(1) : Scalar(1.0);
}

inline Meta with_number(Metas in, const Kind& a) {
  return {in[0].shape, tensors::result_type(typed(in[0]), of_kind(a.kind))};
}

using NumberOp = Op<Kind, Number>;
using NumberContext = Context<Kind, Number>;

inline Tensor with_number(const NumberOp& op, const Tensor& a, Scalar number) {
  return call(op, a, Kind{number.kind()}, Number{number});
}
inline Tensor with_factor(const NumberOp& op, const Tensor& a, Scalar number, Factor factor) {
  return call(op, a, Kind{number.kind(), factor}, Number{number});
}

/// A kernel of two operands, as an operator's.
template <LocalTensor (*kKernel)(const tensors::Operand&, const tensors::Operand&)>
LocalTensor run_binary(Locals in, const None&, const None&, const Site&) {
  return kKernel(in[0], in[1]);
}
template <LocalTensor (*kKernel)(const tensors::Operand&, const tensors::Operand&)>
LocalTensor run_with_number(Locals in, const Kind&, const Number& v, const Site&) {
  return kKernel(in[0], v.value);
}
inline void elementwise_number_rules(Rules& r, Metas, const Kind&) {
  r.pointwise().cut_all();
}

}  // namespace dtrun::dtensor
