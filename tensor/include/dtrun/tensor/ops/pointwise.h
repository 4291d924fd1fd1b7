// Pointwise operations: values, dtypes and errors as PyTorch's. Shapes broadcast, dtypes promote:
// a number has the dtype of its kind as it is written, and widens a tensor only where its kind is
// higher (bool, integer, floating point): i64 * 2 is i64, i64 * 2.0 is f32. f16 and bf16 are
// computed in f32 and rounded once. A name that ends in '_' writes into its first tensor, whose
// shape and kind of dtype must be able to take the result.
// On a CUDA device a tensor of the CPU without dims is a number. Integer quotients by a tensor wait
// there, for a divisor of 0 is an error.
#pragma once

#include <optional>

#include "dtrun/tensor/ops/operand.h"

namespace dtrun::tensors {

// Arithmetic.
LocalTensor add(const Operand& a, const Operand& b);
LocalTensor sub(const Operand& a, const Operand& b);
LocalTensor mul(const Operand& a, const Operand& b);
/// Integers give f32.
LocalTensor div(const Operand& a, const Operand& b);
/// Towards minus infinity, as Python's //; integers by 0: Error kInvalidArgument.
LocalTensor floor_divide(const Operand& a, const Operand& b);
LocalTensor trunc_divide(const Operand& a, const Operand& b);  ///< towards 0
LocalTensor remainder(const Operand& a, const Operand& b);     ///< has the sign of b
LocalTensor fmod(const Operand& a, const Operand& b);          ///< has the sign of a
LocalTensor pow(const Operand& base, const Operand& exponent);
LocalTensor atan2(const Operand& y, const Operand& x);
/// log(exp(a) + exp(b)), of floating point.
LocalTensor logaddexp(const Operand& a, const Operand& b);
LocalTensor maximum(const Operand& a, const Operand& b);  ///< nan wins
LocalTensor minimum(const Operand& a, const Operand& b);

// Comparisons, which give bool; nan equals nothing.
LocalTensor eq(const Operand& a, const Operand& b);
LocalTensor ne(const Operand& a, const Operand& b);
LocalTensor lt(const Operand& a, const Operand& b);
LocalTensor le(const Operand& a, const Operand& b);
LocalTensor gt(const Operand& a, const Operand& b);
LocalTensor ge(const Operand& a, const Operand& b);
LocalTensor logical_and(const Operand& a, const Operand& b);
LocalTensor logical_or(const Operand& a, const Operand& b);
LocalTensor logical_xor(const Operand& a, const Operand& b);
LocalTensor logical_not(const LocalTensor& a);
LocalTensor isnan(const LocalTensor& a);
LocalTensor isinf(const LocalTensor& a);
LocalTensor isfinite(const LocalTensor& a);

// Bits, of integers and bool; shifts of integers.
LocalTensor bitwise_and(const Operand& a, const Operand& b);
LocalTensor bitwise_or(const Operand& a, const Operand& b);
LocalTensor bitwise_xor(const Operand& a, const Operand& b);
LocalTensor bitwise_not(const LocalTensor& a);
LocalTensor bitwise_left_shift(const Operand& a, const Operand& b);
LocalTensor bitwise_right_shift(const Operand& a, const Operand& b);

// One operand. Those that no integer could hold give f32 for integers.
LocalTensor neg(const LocalTensor& a);
LocalTensor abs(const LocalTensor& a);
LocalTensor sign(const LocalTensor& a);
LocalTensor square(const LocalTensor& a);
LocalTensor floor(const LocalTensor& a);
LocalTensor ceil(const LocalTensor& a);
LocalTensor round(const LocalTensor& a);  ///< ties to even
/// To so many decimal places, negative: to tens, hundreds, and so on. @param a floating point
LocalTensor round(const LocalTensor& a, int decimals);
LocalTensor trunc(const LocalTensor& a);
LocalTensor reciprocal(const LocalTensor& a);
LocalTensor sqrt(const LocalTensor& a);
LocalTensor rsqrt(const LocalTensor& a);
LocalTensor exp(const LocalTensor& a);
LocalTensor log(const LocalTensor& a);
LocalTensor log2(const LocalTensor& a);
LocalTensor log10(const LocalTensor& a);
LocalTensor log1p(const LocalTensor& a);
LocalTensor expm1(const LocalTensor& a);
LocalTensor sin(const LocalTensor& a);
LocalTensor cos(const LocalTensor& a);
LocalTensor tan(const LocalTensor& a);
LocalTensor sinh(const LocalTensor& a);
LocalTensor cosh(const LocalTensor& a);
LocalTensor tanh(const LocalTensor& a);
LocalTensor asin(const LocalTensor& a);
LocalTensor acos(const LocalTensor& a);
LocalTensor atan(const LocalTensor& a);
LocalTensor asinh(const LocalTensor& a);
LocalTensor acosh(const LocalTensor& a);
LocalTensor atanh(const LocalTensor& a);
LocalTensor erf(const LocalTensor& a);
LocalTensor erfc(const LocalTensor& a);
LocalTensor sigmoid(const LocalTensor& a);

// Activations, of floating point; relu and hardtanh of integers, too.
enum class GeluForm : std::uint8_t { erf, tanh };
LocalTensor relu(const LocalTensor& a);
LocalTensor leaky_relu(const LocalTensor& a, double slope = 0.01);
LocalTensor elu(const LocalTensor& a, double alpha = 1);
LocalTensor gelu(const LocalTensor& a, GeluForm form = GeluForm::erf);
LocalTensor silu(const LocalTensor& a);
LocalTensor mish(const LocalTensor& a);
LocalTensor hardsigmoid(const LocalTensor& a);
LocalTensor softplus(const LocalTensor& a, double beta = 1, double threshold = 20);
LocalTensor hardtanh(const LocalTensor& a, Scalar low = -1.0, Scalar high = 1.0);

// Gradients, in one pass: of the result's gradient and the result, or what it was computed from.
LocalTensor sigmoid_backward(const Operand& gradient, const Operand& result);
LocalTensor tanh_backward(const Operand& gradient, const Operand& result);
LocalTensor silu_backward(const Operand& gradient, const Operand& a);
LocalTensor gelu_backward(const Operand& gradient, const Operand& a);
LocalTensor gelu_tanh_backward(const Operand& gradient, const Operand& a);

// Three operands.
/// One bound at least.
LocalTensor clamp(const LocalTensor& a, std::optional<Operand> low, std::optional<Operand> high);
/// @param condition bool
LocalTensor where(const LocalTensor& condition, const Operand& a, const Operand& b);
/// start + weight * (end - start); all of one dtype, but that a weight without dims may have
/// another.
LocalTensor lerp(const LocalTensor& start, const LocalTensor& end, const Operand& weight);
LocalTensor addcmul(const LocalTensor& a, const LocalTensor& b, const LocalTensor& c,
                    Scalar value = 1);  ///< a + value * b * c
LocalTensor addcdiv(const LocalTensor& a, const LocalTensor& b, const LocalTensor& c,
                    Scalar value = 1);  ///< a + value * b / c

// In place.
const LocalTensor& add_(const LocalTensor& a, const Operand& b);
const LocalTensor& sub_(const LocalTensor& a, const Operand& b);
const LocalTensor& mul_(const LocalTensor& a, const Operand& b);
const LocalTensor& div_(const LocalTensor& a, const Operand& b);
const LocalTensor& floor_divide_(const LocalTensor& a, const Operand& b);
const LocalTensor& remainder_(const LocalTensor& a, const Operand& b);
const LocalTensor& fmod_(const LocalTensor& a, const Operand& b);
const LocalTensor& pow_(const LocalTensor& a, const Operand& exponent);
const LocalTensor& bitwise_and_(const LocalTensor& a, const Operand& b);
const LocalTensor& bitwise_or_(const LocalTensor& a, const Operand& b);
const LocalTensor& bitwise_xor_(const LocalTensor& a, const Operand& b);
const LocalTensor& neg_(const LocalTensor& a);
const LocalTensor& abs_(const LocalTensor& a);
const LocalTensor& sqrt_(const LocalTensor& a);
const LocalTensor& rsqrt_(const LocalTensor& a);
const LocalTensor& reciprocal_(const LocalTensor& a);
const LocalTensor& exp_(const LocalTensor& a);
const LocalTensor& log_(const LocalTensor& a);
const LocalTensor& tanh_(const LocalTensor& a);
const LocalTensor& sigmoid_(const LocalTensor& a);
const LocalTensor& relu_(const LocalTensor& a);
const LocalTensor& clamp_(const LocalTensor& a, std::optional<Operand> low,
                          std::optional<Operand> high);
const LocalTensor& lerp_(const LocalTensor& a, const LocalTensor& end, const Operand& weight);
const LocalTensor& addcmul_(const LocalTensor& a, const LocalTensor& b, const LocalTensor& c,
                            Scalar value = 1);
const LocalTensor& addcdiv_(const LocalTensor& a, const LocalTensor& b, const LocalTensor& c,
                            Scalar value = 1);

// Operators.
inline LocalTensor operator+(const LocalTensor& a, const Operand& b) {
  return add(a, b);
}
inline LocalTensor operator-(const LocalTensor& a, const Operand& b) {
  return sub(a, b);
}
inline LocalTensor operator*(const LocalTensor& a, const Operand& b) {
  return mul(a, b);
}
inline LocalTensor operator/(const LocalTensor& a, const Operand& b) {
  return div(a, b);
}
inline LocalTensor operator+(Scalar a, const LocalTensor& b) {
  return add(b, a);
}
inline LocalTensor operator-(Scalar a, const LocalTensor& b) {
  return sub(a, b);
}
inline LocalTensor operator*(Scalar a, const LocalTensor& b) {
  return mul(b, a);
}
inline LocalTensor operator/(Scalar a, const LocalTensor& b) {
  return div(a, b);
}

}  // namespace dtrun::tensors
