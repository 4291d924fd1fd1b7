// The reductions and scans as methods.
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/reduction.h"

namespace dtrun::dtensor {

Tensor Tensor::sum() const {
  return dtensor::sum(*this);
}
Tensor Tensor::sum(const std::vector<int>& dims, bool keepdim) const {
  return dtensor::sum(*this, dims, keepdim);
}
Tensor Tensor::mean() const {
  return dtensor::mean(*this);
}
Tensor Tensor::mean(const std::vector<int>& dims, bool keepdim) const {
  return dtensor::mean(*this, dims, keepdim);
}
Tensor Tensor::prod() const {
  return dtensor::prod(*this);
}
Tensor Tensor::prod(int dim, bool keepdim) const {
  return dtensor::prod(*this, dim, keepdim);
}
Tensor Tensor::any(const std::vector<int>& dims, bool keepdim) const {
  return dtensor::any(*this, dims, keepdim);
}
Tensor Tensor::all(const std::vector<int>& dims, bool keepdim) const {
  return dtensor::all(*this, dims, keepdim);
}
Tensor Tensor::amax(const std::vector<int>& dims, bool keepdim) const {
  return dtensor::amax(*this, dims, keepdim);
}
Tensor Tensor::amin(const std::vector<int>& dims, bool keepdim) const {
  return dtensor::amin(*this, dims, keepdim);
}
Tensor Tensor::max() const {
  return dtensor::max(*this);
}
Tensor Tensor::min() const {
  return dtensor::min(*this);
}
Extremes Tensor::max(int dim, bool keepdim) const {
  return dtensor::max(*this, dim, keepdim);
}
Extremes Tensor::min(int dim, bool keepdim) const {
  return dtensor::min(*this, dim, keepdim);
}
Tensor Tensor::argmax() const {
  return dtensor::argmax(*this);
}
Tensor Tensor::argmin() const {
  return dtensor::argmin(*this);
}
Tensor Tensor::argmax(int dim, bool keepdim) const {
  return dtensor::argmax(*this, dim, keepdim);
}
Tensor Tensor::argmin(int dim, bool keepdim) const {
  return dtensor::argmin(*this, dim, keepdim);
}
Tensor Tensor::var(const std::vector<int>& dims, double correction, bool keepdim) const {
  return dtensor::var(*this, dims, correction, keepdim);
}
Tensor Tensor::stddev(const std::vector<int>& dims, double correction, bool keepdim) const {
  return dtensor::stddev(*this, dims, correction, keepdim);
}
Tensor Tensor::norm(double power, const std::vector<int>& dims, bool keepdim) const {
  return dtensor::norm(*this, power, dims, keepdim);
}
Tensor Tensor::logsumexp(const std::vector<int>& dims, bool keepdim) const {
  return dtensor::logsumexp(*this, dims, keepdim);
}
Tensor Tensor::cumsum(int dim) const {
  return dtensor::cumsum(*this, dim);
}
Tensor Tensor::cumprod(int dim) const {
  return dtensor::cumprod(*this, dim);
}

}  // namespace dtrun::dtensor
