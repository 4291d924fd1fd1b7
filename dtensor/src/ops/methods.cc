// The functions of each element as methods.
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/index.h"

namespace dtrun::dtensor {

Tensor Tensor::add(const Tensor& other) const {
  return dtensor::add(*this, other);
}
Tensor Tensor::add(Scalar other) const {
  return dtensor::add(*this, other);
}
Tensor Tensor::sub(const Tensor& other) const {
  return dtensor::sub(*this, other);
}
Tensor Tensor::sub(Scalar other) const {
  return dtensor::sub(*this, other);
}
Tensor Tensor::mul(const Tensor& other) const {
  return dtensor::mul(*this, other);
}
Tensor Tensor::mul(Scalar other) const {
  return dtensor::mul(*this, other);
}
Tensor Tensor::div(const Tensor& other) const {
  return dtensor::div(*this, other);
}
Tensor Tensor::div(Scalar other) const {
  return dtensor::div(*this, other);
}
Tensor Tensor::pow(const Tensor& other) const {
  return dtensor::pow(*this, other);
}
Tensor Tensor::pow(Scalar other) const {
  return dtensor::pow(*this, other);
}
Tensor Tensor::maximum(const Tensor& other) const {
  return dtensor::maximum(*this, other);
}
Tensor Tensor::maximum(Scalar other) const {
  return dtensor::maximum(*this, other);
}
Tensor Tensor::minimum(const Tensor& other) const {
  return dtensor::minimum(*this, other);
}
Tensor Tensor::minimum(Scalar other) const {
  return dtensor::minimum(*this, other);
}
Tensor Tensor::eq(const Tensor& other) const {
  return dtensor::eq(*this, other);
}
Tensor Tensor::eq(Scalar other) const {
  return dtensor::eq(*this, other);
}
Tensor Tensor::ne(const Tensor& other) const {
  return dtensor::ne(*this, other);
}
Tensor Tensor::ne(Scalar other) const {
  return dtensor::ne(*this, other);
}
Tensor Tensor::lt(const Tensor& other) const {
  return dtensor::lt(*this, other);
}
Tensor Tensor::lt(Scalar other) const {
  return dtensor::lt(*this, other);
}
Tensor Tensor::le(const Tensor& other) const {
  return dtensor::le(*this, other);
}
Tensor Tensor::le(Scalar other) const {
  return dtensor::le(*this, other);
}
Tensor Tensor::gt(const Tensor& other) const {
  return dtensor::gt(*this, other);
}
Tensor Tensor::gt(Scalar other) const {
  return dtensor::gt(*this, other);
}
Tensor Tensor::ge(const Tensor& other) const {
  return dtensor::ge(*this, other);
}
Tensor Tensor::ge(Scalar other) const {
  return dtensor::ge(*this, other);
}
Tensor Tensor::logical_and(const Tensor& other) const {
  return dtensor::logical_and(*this, other);
}
Tensor Tensor::logical_or(const Tensor& other) const {
  return dtensor::logical_or(*this, other);
}
Tensor Tensor::matmul(const Tensor& other) const {
  return dtensor::matmul(*this, other);
}
Tensor Tensor::abs() const {
  return dtensor::abs(*this);
}
Tensor Tensor::neg() const {
  return dtensor::neg(*this);
}
Tensor Tensor::sign() const {
  return dtensor::sign(*this);
}
Tensor Tensor::square() const {
  return dtensor::square(*this);
}
Tensor Tensor::exp() const {
  return dtensor::exp(*this);
}
Tensor Tensor::log() const {
  return dtensor::log(*this);
}
Tensor Tensor::log2() const {
  return dtensor::log2(*this);
}
Tensor Tensor::log1p() const {
  return dtensor::log1p(*this);
}
Tensor Tensor::expm1() const {
  return dtensor::expm1(*this);
}
Tensor Tensor::sqrt() const {
  return dtensor::sqrt(*this);
}
Tensor Tensor::rsqrt() const {
  return dtensor::rsqrt(*this);
}
Tensor Tensor::reciprocal() const {
  return dtensor::reciprocal(*this);
}
Tensor Tensor::sin() const {
  return dtensor::sin(*this);
}
Tensor Tensor::cos() const {
  return dtensor::cos(*this);
}
Tensor Tensor::tanh() const {
  return dtensor::tanh(*this);
}
Tensor Tensor::erf() const {
  return dtensor::erf(*this);
}
Tensor Tensor::sigmoid() const {
  return dtensor::sigmoid(*this);
}
Tensor Tensor::relu() const {
  return dtensor::relu(*this);
}
Tensor Tensor::floor() const {
  return dtensor::floor(*this);
}
Tensor Tensor::ceil() const {
  return dtensor::ceil(*this);
}
Tensor Tensor::round() const {
  return dtensor::round(*this);
}
Tensor Tensor::trunc() const {
  return dtensor::trunc(*this);
}
Tensor Tensor::isnan() const {
  return dtensor::isnan(*this);
}
Tensor Tensor::logical_not() const {
  return dtensor::logical_not(*this);
}
Tensor Tensor::clamp(std::optional<Scalar> low, std::optional<Scalar> high) const {
  return dtensor::clamp(*this, low, high);
}
Tensor Tensor::masked_fill(const Tensor& mask, Scalar value) const {
  return dtensor::masked_fill(*this, mask, value);
}

Tensor Tensor::operator[](const Tensor& positions) const {
  return dtensor::index(*this, positions);
}

}  // namespace dtrun::dtensor
