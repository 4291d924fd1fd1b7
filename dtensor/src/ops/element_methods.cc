// The functions of each element, and products, as methods.
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/products.h"

namespace dtrun::dtensor {

const Tensor& ElementMethods::self() const {
  return static_cast<const Tensor&>(*this);
}

Tensor ElementMethods::add(const Tensor& other) const {
  return dtensor::add(self(), other);
}
Tensor ElementMethods::add(Scalar other) const {
  return dtensor::add(self(), other);
}
Tensor ElementMethods::sub(const Tensor& other) const {
  return dtensor::sub(self(), other);
}
Tensor ElementMethods::sub(Scalar other) const {
  return dtensor::sub(self(), other);
}
Tensor ElementMethods::mul(const Tensor& other) const {
  return dtensor::mul(self(), other);
}
Tensor ElementMethods::mul(Scalar other) const {
  return dtensor::mul(self(), other);
}
Tensor ElementMethods::div(const Tensor& other) const {
  return dtensor::div(self(), other);
}
Tensor ElementMethods::div(Scalar other) const {
  return dtensor::div(self(), other);
}
Tensor ElementMethods::pow(const Tensor& other) const {
  return dtensor::pow(self(), other);
}
Tensor ElementMethods::pow(Scalar other) const {
  return dtensor::pow(self(), other);
}
Tensor ElementMethods::maximum(const Tensor& other) const {
  return dtensor::maximum(self(), other);
}
Tensor ElementMethods::maximum(Scalar other) const {
  return dtensor::maximum(self(), other);
}
Tensor ElementMethods::minimum(const Tensor& other) const {
  return dtensor::minimum(self(), other);
}
Tensor ElementMethods::minimum(Scalar other) const {
  return dtensor::minimum(self(), other);
}
Tensor ElementMethods::eq(const Tensor& other) const {
  return dtensor::eq(self(), other);
}
Tensor ElementMethods::eq(Scalar other) const {
  return dtensor::eq(self(), other);
}
Tensor ElementMethods::ne(const Tensor& other) const {
  return dtensor::ne(self(), other);
}
Tensor ElementMethods::ne(Scalar other) const {
  return dtensor::ne(self(), other);
}
Tensor ElementMethods::lt(const Tensor& other) const {
  return dtensor::lt(self(), other);
}
Tensor ElementMethods::lt(Scalar other) const {
  return dtensor::lt(self(), other);
}
Tensor ElementMethods::le(const Tensor& other) const {
  return dtensor::le(self(), other);
}
Tensor ElementMethods::le(Scalar other) const {
  return dtensor::le(self(), other);
}
Tensor ElementMethods::gt(const Tensor& other) const {
  return dtensor::gt(self(), other);
}
Tensor ElementMethods::gt(Scalar other) const {
  return dtensor::gt(self(), other);
}
Tensor ElementMethods::ge(const Tensor& other) const {
  return dtensor::ge(self(), other);
}
Tensor ElementMethods::ge(Scalar other) const {
  return dtensor::ge(self(), other);
}
Tensor ElementMethods::logical_and(const Tensor& other) const {
  return dtensor::logical_and(self(), other);
}
Tensor ElementMethods::logical_or(const Tensor& other) const {
  return dtensor::logical_or(self(), other);
}
Tensor ElementMethods::matmul(const Tensor& other) const {
  return dtensor::matmul(self(), other);
}
Tensor ElementMethods::abs() const {
  return dtensor::abs(self());
}
Tensor ElementMethods::neg() const {
  return dtensor::neg(self());
}
Tensor ElementMethods::sign() const {
  return dtensor::sign(self());
}
Tensor ElementMethods::square() const {
  return dtensor::square(self());
}
Tensor ElementMethods::exp() const {
  return dtensor::exp(self());
}
Tensor ElementMethods::log() const {
  return dtensor::log(self());
}
Tensor ElementMethods::log2() const {
  return dtensor::log2(self());
}
Tensor ElementMethods::log1p() const {
  return dtensor::log1p(self());
}
Tensor ElementMethods::expm1() const {
  return dtensor::expm1(self());
}
Tensor ElementMethods::sqrt() const {
  return dtensor::sqrt(self());
}
Tensor ElementMethods::rsqrt() const {
  return dtensor::rsqrt(self());
}
Tensor ElementMethods::reciprocal() const {
  return dtensor::reciprocal(self());
}
Tensor ElementMethods::sin() const {
  return dtensor::sin(self());
}
Tensor ElementMethods::cos() const {
  return dtensor::cos(self());
}
Tensor ElementMethods::tanh() const {
  return dtensor::tanh(self());
}
Tensor ElementMethods::erf() const {
  return dtensor::erf(self());
}
Tensor ElementMethods::sigmoid() const {
  return dtensor::sigmoid(self());
}
Tensor ElementMethods::relu() const {
  return dtensor::relu(self());
}
Tensor ElementMethods::floor() const {
  return dtensor::floor(self());
}
Tensor ElementMethods::ceil() const {
  return dtensor::ceil(self());
}
Tensor ElementMethods::round() const {
  return dtensor::round(self());
}
Tensor ElementMethods::round(int decimals) const {
  return dtensor::round(self(), decimals);
}
Tensor ElementMethods::trunc() const {
  return dtensor::trunc(self());
}
Tensor ElementMethods::isnan() const {
  return dtensor::isnan(self());
}
Tensor ElementMethods::logical_not() const {
  return dtensor::logical_not(self());
}
Tensor ElementMethods::clamp(std::optional<Scalar> low, std::optional<Scalar> high) const {
  return dtensor::clamp(self(), low, high);
}
Tensor ElementMethods::masked_fill(const Tensor& mask, Scalar value) const {
  return dtensor::masked_fill(self(), mask, value);
}
Tensor ElementMethods::floor_divide(const Tensor& other) const {
  return dtensor::floor_divide(self(), other);
}
Tensor ElementMethods::floor_divide(Scalar other) const {
  return dtensor::floor_divide(self(), other);
}
Tensor ElementMethods::remainder(const Tensor& other) const {
  return dtensor::remainder(self(), other);
}
Tensor ElementMethods::remainder(Scalar other) const {
  return dtensor::remainder(self(), other);
}
Tensor ElementMethods::fmod(const Tensor& other) const {
  return dtensor::fmod(self(), other);
}
Tensor ElementMethods::fmod(Scalar other) const {
  return dtensor::fmod(self(), other);
}
Tensor ElementMethods::bitwise_and(const Tensor& other) const {
  return dtensor::bitwise_and(self(), other);
}
Tensor ElementMethods::bitwise_and(Scalar other) const {
  return dtensor::bitwise_and(self(), other);
}
Tensor ElementMethods::bitwise_or(const Tensor& other) const {
  return dtensor::bitwise_or(self(), other);
}
Tensor ElementMethods::bitwise_or(Scalar other) const {
  return dtensor::bitwise_or(self(), other);
}
Tensor ElementMethods::bitwise_xor(const Tensor& other) const {
  return dtensor::bitwise_xor(self(), other);
}
Tensor ElementMethods::bitwise_xor(Scalar other) const {
  return dtensor::bitwise_xor(self(), other);
}
Tensor ElementMethods::bitwise_left_shift(const Tensor& other) const {
  return dtensor::bitwise_left_shift(self(), other);
}
Tensor ElementMethods::bitwise_left_shift(Scalar other) const {
  return dtensor::bitwise_left_shift(self(), other);
}
Tensor ElementMethods::bitwise_right_shift(const Tensor& other) const {
  return dtensor::bitwise_right_shift(self(), other);
}
Tensor ElementMethods::bitwise_right_shift(Scalar other) const {
  return dtensor::bitwise_right_shift(self(), other);
}
Tensor ElementMethods::atan2(const Tensor& other) const {
  return dtensor::atan2(self(), other);
}
Tensor ElementMethods::logaddexp(const Tensor& other) const {
  return dtensor::logaddexp(self(), other);
}
Tensor ElementMethods::logical_xor(const Tensor& other) const {
  return dtensor::logical_xor(self(), other);
}
Tensor ElementMethods::mm(const Tensor& other) const {
  return dtensor::mm(self(), other);
}
Tensor ElementMethods::bmm(const Tensor& other) const {
  return dtensor::bmm(self(), other);
}
Tensor ElementMethods::mv(const Tensor& other) const {
  return dtensor::mv(self(), other);
}
Tensor ElementMethods::dot(const Tensor& other) const {
  return dtensor::dot(self(), other);
}
Tensor ElementMethods::log10() const {
  return dtensor::log10(self());
}
Tensor ElementMethods::tan() const {
  return dtensor::tan(self());
}
Tensor ElementMethods::sinh() const {
  return dtensor::sinh(self());
}
Tensor ElementMethods::cosh() const {
  return dtensor::cosh(self());
}
Tensor ElementMethods::asin() const {
  return dtensor::asin(self());
}
Tensor ElementMethods::acos() const {
  return dtensor::acos(self());
}
Tensor ElementMethods::atan() const {
  return dtensor::atan(self());
}
Tensor ElementMethods::asinh() const {
  return dtensor::asinh(self());
}
Tensor ElementMethods::acosh() const {
  return dtensor::acosh(self());
}
Tensor ElementMethods::atanh() const {
  return dtensor::atanh(self());
}
Tensor ElementMethods::erfc() const {
  return dtensor::erfc(self());
}
Tensor ElementMethods::isinf() const {
  return dtensor::isinf(self());
}
Tensor ElementMethods::isfinite() const {
  return dtensor::isfinite(self());
}
Tensor ElementMethods::bitwise_not() const {
  return dtensor::bitwise_not(self());
}
Tensor ElementMethods::clamp(const Tensor& low, const Tensor& high) const {
  return dtensor::clamp(self(), low, high);
}
Tensor ElementMethods::where(const Tensor& condition, const Tensor& other) const {
  return dtensor::where(condition, self(), other);
}
Tensor ElementMethods::where(const Tensor& condition, Scalar other) const {
  return dtensor::where(condition, self(), other);
}
Tensor ElementMethods::lerp(const Tensor& end, const Tensor& weight) const {
  return dtensor::lerp(self(), end, weight);
}
Tensor ElementMethods::lerp(const Tensor& end, Scalar weight) const {
  return dtensor::lerp(self(), end, weight);
}
Tensor ElementMethods::addcmul(const Tensor& b, const Tensor& c, Scalar value) const {
  return dtensor::addcmul(self(), b, c, value);
}
Tensor ElementMethods::addcdiv(const Tensor& b, const Tensor& c, Scalar value) const {
  return dtensor::addcdiv(self(), b, c, value);
}
Tensor ElementMethods::addmm(const Tensor& a, const Tensor& b, ProductSum factors) const {
  return dtensor::addmm(self(), a, b, factors);
}
Tensor ElementMethods::baddbmm(const Tensor& a, const Tensor& b, ProductSum factors) const {
  return dtensor::baddbmm(self(), a, b, factors);
}

}  // namespace dtrun::dtensor
