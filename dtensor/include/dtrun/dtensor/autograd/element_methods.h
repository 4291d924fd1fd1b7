// Functions of each element, and products, as methods of Tensor. What they mean stands with the
// functions of the same names: ops/basic.h, ops/elementwise.h, ops/products.h.
#pragma once

#include <optional>

#include "dtrun/tensor/ops/matmul.h"
#include "dtrun/tensor/scalar.h"

namespace dtrun::dtensor {

using tensors::ProductSum;
using tensors::Scalar;

class Tensor;

class ElementMethods {
 public:
  Tensor add(const Tensor& other) const;
  Tensor add(Scalar other) const;
  Tensor sub(const Tensor& other) const;
  Tensor sub(Scalar other) const;
  Tensor mul(const Tensor& other) const;
  Tensor mul(Scalar other) const;
  Tensor div(const Tensor& other) const;
  Tensor div(Scalar other) const;
  Tensor pow(const Tensor& other) const;
  Tensor pow(Scalar other) const;
  Tensor floor_divide(const Tensor& other) const;
  Tensor floor_divide(Scalar other) const;
  Tensor remainder(const Tensor& other) const;
  Tensor remainder(Scalar other) const;
  Tensor fmod(const Tensor& other) const;
  Tensor fmod(Scalar other) const;
  Tensor atan2(const Tensor& other) const;
  Tensor logaddexp(const Tensor& other) const;
  Tensor maximum(const Tensor& other) const;
  Tensor maximum(Scalar other) const;
  Tensor minimum(const Tensor& other) const;
  Tensor minimum(Scalar other) const;
  Tensor eq(const Tensor& other) const;
  Tensor eq(Scalar other) const;
  Tensor ne(const Tensor& other) const;
  Tensor ne(Scalar other) const;
  Tensor lt(const Tensor& other) const;
  Tensor lt(Scalar other) const;
  Tensor le(const Tensor& other) const;
  Tensor le(Scalar other) const;
  Tensor gt(const Tensor& other) const;
  Tensor gt(Scalar other) const;
  Tensor ge(const Tensor& other) const;
  Tensor ge(Scalar other) const;
  Tensor logical_and(const Tensor& other) const;
  Tensor logical_or(const Tensor& other) const;
  Tensor logical_xor(const Tensor& other) const;
  Tensor bitwise_and(const Tensor& other) const;
  Tensor bitwise_and(Scalar other) const;
  Tensor bitwise_or(const Tensor& other) const;
  Tensor bitwise_or(Scalar other) const;
  Tensor bitwise_xor(const Tensor& other) const;
  Tensor bitwise_xor(Scalar other) const;
  Tensor bitwise_left_shift(const Tensor& other) const;
  Tensor bitwise_left_shift(Scalar other) const;
  Tensor bitwise_right_shift(const Tensor& other) const;
  Tensor bitwise_right_shift(Scalar other) const;
  Tensor abs() const;
  Tensor neg() const;
  Tensor sign() const;
  Tensor square() const;
  Tensor exp() const;
  Tensor log() const;
  Tensor log2() const;
  Tensor log1p() const;
  Tensor expm1() const;
  Tensor sqrt() const;
  Tensor rsqrt() const;
  Tensor reciprocal() const;
  Tensor sin() const;
  Tensor cos() const;
  Tensor tanh() const;
  Tensor erf() const;
  Tensor sigmoid() const;
  Tensor relu() const;
  Tensor floor() const;
  Tensor ceil() const;
  Tensor round() const;
  Tensor round(int decimals) const;
  Tensor trunc() const;
  Tensor isnan() const;
  Tensor logical_not() const;
  Tensor log10() const;
  Tensor tan() const;
  Tensor sinh() const;
  Tensor cosh() const;
  Tensor asin() const;
  Tensor acos() const;
  Tensor atan() const;
  Tensor asinh() const;
  Tensor acosh() const;
  Tensor atanh() const;
  Tensor erfc() const;
  Tensor isinf() const;
  Tensor isfinite() const;
  Tensor bitwise_not() const;
  Tensor clamp(std::optional<Scalar> low, std::optional<Scalar> high = {}) const;
  Tensor masked_fill(const Tensor& mask, Scalar value) const;
  Tensor clamp(const Tensor& low, const Tensor& high) const;
  Tensor where(const Tensor& condition, const Tensor& other) const;  ///< itself where it is true
  Tensor where(const Tensor& condition, Scalar other) const;
  Tensor lerp(const Tensor& end, const Tensor& weight) const;
  Tensor lerp(const Tensor& end, Scalar weight) const;
  Tensor addcmul(const Tensor& b, const Tensor& c, Scalar value = 1) const;
  Tensor addcdiv(const Tensor& b, const Tensor& c, Scalar value = 1) const;

  // Products, in ops/products.h.
  Tensor matmul(const Tensor& other) const;
  Tensor mm(const Tensor& other) const;
  Tensor bmm(const Tensor& other) const;
  Tensor mv(const Tensor& other) const;
  Tensor dot(const Tensor& other) const;
  Tensor addmm(const Tensor& a, const Tensor& b, ProductSum factors = {}) const;
  Tensor baddbmm(const Tensor& a, const Tensor& b, ProductSum factors = {}) const;

 private:
  const Tensor& self() const;
};

}  // namespace dtrun::dtensor
