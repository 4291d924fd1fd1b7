// Elementwise functions with PyTorch's values, dtypes and gradients. Integers become f32 where the
// result is not an integer.
#pragma once

#include <optional>

#include "dtrun/dtensor/autograd/tensor.h"
#include "dtrun/tensor/ops/pointwise.h"

namespace dtrun::dtensor {

using tensors::GeluForm;

Tensor abs(const Tensor& a);
Tensor sign(const Tensor& a);
Tensor square(const Tensor& a);
Tensor floor(const Tensor& a);
Tensor ceil(const Tensor& a);
Tensor round(const Tensor& a);  ///< ties to even
/// To so many decimal places; negative: to tens, hundreds, and so on. Floating point only.
Tensor round(const Tensor& a, int decimals);
Tensor trunc(const Tensor& a);
Tensor reciprocal(const Tensor& a);
Tensor sqrt(const Tensor& a);
Tensor rsqrt(const Tensor& a);
Tensor exp(const Tensor& a);
Tensor log(const Tensor& a);
Tensor log2(const Tensor& a);
Tensor log10(const Tensor& a);
Tensor log1p(const Tensor& a);
Tensor expm1(const Tensor& a);
Tensor sin(const Tensor& a);
Tensor cos(const Tensor& a);
Tensor tan(const Tensor& a);
Tensor sinh(const Tensor& a);
Tensor cosh(const Tensor& a);
Tensor tanh(const Tensor& a);
Tensor asin(const Tensor& a);
Tensor acos(const Tensor& a);
Tensor atan(const Tensor& a);
Tensor asinh(const Tensor& a);
Tensor acosh(const Tensor& a);
Tensor atanh(const Tensor& a);
Tensor erf(const Tensor& a);
Tensor erfc(const Tensor& a);
Tensor sigmoid(const Tensor& a);

Tensor relu(const Tensor& a);
Tensor leaky_relu(const Tensor& a, double slope = 0.01);
Tensor gelu(const Tensor& a, GeluForm form = GeluForm::erf);
Tensor silu(const Tensor& a);
Tensor elu(const Tensor& a, double alpha = 1);
Tensor mish(const Tensor& a);
Tensor hardsigmoid(const Tensor& a);
Tensor relu6(const Tensor& a);
Tensor hardtanh(const Tensor& a, Scalar low = -1.0, Scalar high = 1.0);
Tensor softplus(const Tensor& a, double beta = 1, double threshold = 20);

Tensor pow(const Tensor& base, const Tensor& exponent);
Tensor pow(const Tensor& base, Scalar exponent);
Tensor pow(Scalar base, const Tensor& exponent);
/// Towards minus infinity, as Python's //; no gradient. Integers by 0: Error kInvalidArgument.
Tensor floor_divide(const Tensor& a, const Tensor& b);
Tensor floor_divide(const Tensor& a, Scalar b);
Tensor trunc_divide(const Tensor& a, const Tensor& b);  ///< towards 0; no gradient
Tensor trunc_divide(const Tensor& a, Scalar b);
Tensor remainder(const Tensor& a, const Tensor& b);  ///< has the sign of b
Tensor remainder(const Tensor& a, Scalar b);
Tensor remainder(Scalar a, const Tensor& b);
/// torch.div's rounding_mode.
enum class Rounding { trunc, floor };
Tensor div(const Tensor& a, const Tensor& b, Rounding rounding);
Tensor div(const Tensor& a, Scalar b, Rounding rounding);
Tensor fmod(const Tensor& a, const Tensor& b);  ///< has the sign of a
Tensor fmod(const Tensor& a, Scalar b);
Tensor atan2(const Tensor& y, const Tensor& x);
/// log(exp(a) + exp(b)), of floating point.
Tensor logaddexp(const Tensor& a, const Tensor& b);
/// One bound at least. The gradient flows where a is between them; at a bound it is 0, as PyTorch's
/// since 2.15 and relu's (before it was 1).
Tensor clamp(const Tensor& a, std::optional<Scalar> low, std::optional<Scalar> high = {});
/// minimum(maximum(a, low), high), with their gradients; one bound may be undefined.
Tensor clamp(const Tensor& a, const Tensor& low, const Tensor& high);
/// start + weight * (end - start), of one floating-point dtype.
Tensor lerp(const Tensor& start, const Tensor& end, const Tensor& weight);
Tensor lerp(const Tensor& start, const Tensor& end, Scalar weight);
Tensor addcmul(const Tensor& a, const Tensor& b, const Tensor& c,
               Scalar value = 1);  ///< a + value * b * c
Tensor addcdiv(const Tensor& a, const Tensor& b, const Tensor& c,
               Scalar value = 1);  ///< a + value * b / c

// Bits, of integers and bool; shifts of integers.
Tensor bitwise_and(const Tensor& a, const Tensor& b);
Tensor bitwise_and(const Tensor& a, Scalar b);
Tensor bitwise_or(const Tensor& a, const Tensor& b);
Tensor bitwise_or(const Tensor& a, Scalar b);
Tensor bitwise_xor(const Tensor& a, const Tensor& b);
Tensor bitwise_xor(const Tensor& a, Scalar b);
Tensor bitwise_not(const Tensor& a);
Tensor bitwise_left_shift(const Tensor& a, const Tensor& b);
Tensor bitwise_left_shift(const Tensor& a, Scalar b);
Tensor bitwise_right_shift(const Tensor& a, const Tensor& b);
Tensor bitwise_right_shift(const Tensor& a, Scalar b);

// bool results; no gradient.
Tensor eq(const Tensor& a, const Tensor& b);
Tensor ne(const Tensor& a, const Tensor& b);
Tensor lt(const Tensor& a, const Tensor& b);
Tensor le(const Tensor& a, const Tensor& b);
Tensor gt(const Tensor& a, const Tensor& b);
Tensor ge(const Tensor& a, const Tensor& b);
Tensor eq(const Tensor& a, Scalar b);
Tensor ne(const Tensor& a, Scalar b);
Tensor lt(const Tensor& a, Scalar b);
Tensor le(const Tensor& a, Scalar b);
Tensor gt(const Tensor& a, Scalar b);
Tensor ge(const Tensor& a, Scalar b);
Tensor isnan(const Tensor& a);
Tensor isinf(const Tensor& a);
Tensor isfinite(const Tensor& a);
Tensor logical_not(const Tensor& a);
Tensor logical_and(const Tensor& a, const Tensor& b);
Tensor logical_and(const Tensor& a, Scalar b);
Tensor logical_or(const Tensor& a, const Tensor& b);
Tensor logical_or(const Tensor& a, Scalar b);
Tensor logical_xor(const Tensor& a, const Tensor& b);
Tensor logical_xor(const Tensor& a, Scalar b);

/// a where the bool `condition` is true, else b.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
Tensor where(const Tensor& condition, const Tensor& a, Scalar b);
Tensor where(const Tensor& condition, Scalar a, const Tensor& b);
Tensor where(const Tensor& condition, Scalar a, Scalar b);
/// `a` with the value, in a's dtype, wherever the bool `mask` is true.
Tensor masked_fill(const Tensor& a, const Tensor& mask, Scalar value);
/// nan if either is nan. Equal elements share the gradient.
Tensor maximum(const Tensor& a, const Tensor& b);
Tensor maximum(const Tensor& a, Scalar b);
Tensor minimum(const Tensor& a, const Tensor& b);
Tensor minimum(const Tensor& a, Scalar b);

// Tensors of a's shape, mesh, device and placements, but Replicate where `a` is Partial. No
// gradient, no communication.
Tensor zeros_like(const Tensor& a);
Tensor ones_like(const Tensor& a);
Tensor full_like(const Tensor& a, Scalar value);
Tensor empty_like(const Tensor& a);

// Comparisons, element by element: the result is a bool tensor. equal() (basic.h) tells whether all
// elements are equal, same() (tensor.h) whether both are one tensor.
inline Tensor operator==(const Tensor& a, const Tensor& b) {
  return eq(a, b);
}
inline Tensor operator==(const Tensor& a, Scalar b) {
  return eq(a, b);
}
inline Tensor operator==(Scalar a, const Tensor& b) {
  return eq(b, a);
}
inline Tensor operator!=(const Tensor& a, const Tensor& b) {
  return ne(a, b);
}
inline Tensor operator!=(const Tensor& a, Scalar b) {
  return ne(a, b);
}
inline Tensor operator!=(Scalar a, const Tensor& b) {
  return ne(b, a);
}
inline Tensor operator<(const Tensor& a, const Tensor& b) {
  return lt(a, b);
}
inline Tensor operator<(const Tensor& a, Scalar b) {
  return lt(a, b);
}
inline Tensor operator<(Scalar a, const Tensor& b) {
  return gt(b, a);
}
inline Tensor operator<=(const Tensor& a, const Tensor& b) {
  return le(a, b);
}
inline Tensor operator<=(const Tensor& a, Scalar b) {
  return le(a, b);
}
inline Tensor operator<=(Scalar a, const Tensor& b) {
  return ge(b, a);
}
inline Tensor operator>(const Tensor& a, const Tensor& b) {
  return gt(a, b);
}
inline Tensor operator>(const Tensor& a, Scalar b) {
  return gt(a, b);
}
inline Tensor operator>(Scalar a, const Tensor& b) {
  return lt(b, a);
}
inline Tensor operator>=(const Tensor& a, const Tensor& b) {
  return ge(a, b);
}
inline Tensor operator>=(const Tensor& a, Scalar b) {
  return ge(a, b);
}
inline Tensor operator>=(Scalar a, const Tensor& b) {
  return le(b, a);
}

// Bits; of bool tensors: and, or, exclusive or, not. As in C++ they bind less than comparisons.
inline Tensor operator&(const Tensor& a, const Tensor& b) {
  return bitwise_and(a, b);
}
inline Tensor operator&(const Tensor& a, Scalar b) {
  return bitwise_and(a, b);
}
inline Tensor operator&(Scalar a, const Tensor& b) {
  return bitwise_and(b, a);
}
inline Tensor operator|(const Tensor& a, const Tensor& b) {
  return bitwise_or(a, b);
}
inline Tensor operator|(const Tensor& a, Scalar b) {
  return bitwise_or(a, b);
}
inline Tensor operator|(Scalar a, const Tensor& b) {
  return bitwise_or(b, a);
}
inline Tensor operator^(const Tensor& a, const Tensor& b) {
  return bitwise_xor(a, b);
}
inline Tensor operator^(const Tensor& a, Scalar b) {
  return bitwise_xor(a, b);
}
inline Tensor operator^(Scalar a, const Tensor& b) {
  return bitwise_xor(b, a);
}
inline Tensor operator~(const Tensor& a) {
  return bitwise_not(a);
}

}  // namespace dtrun::dtensor
