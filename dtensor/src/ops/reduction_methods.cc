// The reductions and scans as methods.
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/reduction.h"
#include "dtrun/dtensor/ops/rows.h"

namespace dtrun::dtensor {

const Tensor& ReductionMethods::self() const {
  return static_cast<const Tensor&>(*this);
}

Tensor ReductionMethods::sum() const {
  return dtensor::sum(self());
}
Tensor ReductionMethods::sum(const std::vector<int>& dims, bool keepdim) const {
  return dtensor::sum(self(), dims, keepdim);
}
Tensor ReductionMethods::mean() const {
  return dtensor::mean(self());
}
Tensor ReductionMethods::mean(const std::vector<int>& dims, bool keepdim) const {
  return dtensor::mean(self(), dims, keepdim);
}
Tensor ReductionMethods::prod() const {
  return dtensor::prod(self());
}
Tensor ReductionMethods::prod(int dim, bool keepdim) const {
  return dtensor::prod(self(), dim, keepdim);
}
Tensor ReductionMethods::sum(const std::vector<int>& dims, bool keepdim, DType dtype) const {
  return dtensor::sum(self(), dims, keepdim, dtype);
}
template <std::same_as<DType> D>
Tensor ReductionMethods::sum(D dtype) const {
  return dtensor::sum(self(), dtype);
}
template Tensor ReductionMethods::sum(DType dtype) const;
Tensor ReductionMethods::mean(const std::vector<int>& dims, bool keepdim, DType dtype) const {
  return dtensor::mean(self(), dims, keepdim, dtype);
}
template <std::same_as<DType> D>
Tensor ReductionMethods::mean(D dtype) const {
  return dtensor::mean(self(), dtype);
}
template Tensor ReductionMethods::mean(DType dtype) const;
Tensor ReductionMethods::prod(DType dtype) const {
  return dtensor::prod(self(), dtype);
}
Tensor ReductionMethods::prod(int dim, bool keepdim, DType dtype) const {
  return dtensor::prod(self(), dim, keepdim, dtype);
}
Tensor ReductionMethods::cumsum(int dim, DType dtype) const {
  return dtensor::cumsum(self(), dim, dtype);
}
Tensor ReductionMethods::cumprod(int dim, DType dtype) const {
  return dtensor::cumprod(self(), dim, dtype);
}
Tensor ReductionMethods::softmax(int dim, DType dtype) const {
  return dtensor::softmax(self(), dim, dtype);
}
Tensor ReductionMethods::log_softmax(int dim, DType dtype) const {
  return dtensor::log_softmax(self(), dim, dtype);
}
Tensor ReductionMethods::any(const std::vector<int>& dims, bool keepdim) const {
  return dtensor::any(self(), dims, keepdim);
}
Tensor ReductionMethods::all(const std::vector<int>& dims, bool keepdim) const {
  return dtensor::all(self(), dims, keepdim);
}
Tensor ReductionMethods::amax(const std::vector<int>& dims, bool keepdim) const {
  return dtensor::amax(self(), dims, keepdim);
}
Tensor ReductionMethods::amin(const std::vector<int>& dims, bool keepdim) const {
  return dtensor::amin(self(), dims, keepdim);
}
Tensor ReductionMethods::max() const {
  return dtensor::max(self());
}
Tensor ReductionMethods::min() const {
  return dtensor::min(self());
}
Extremes ReductionMethods::max(int dim, bool keepdim) const {
  return dtensor::max(self(), dim, keepdim);
}
Extremes ReductionMethods::min(int dim, bool keepdim) const {
  return dtensor::min(self(), dim, keepdim);
}
Tensor ReductionMethods::argmax() const {
  return dtensor::argmax(self());
}
Tensor ReductionMethods::argmin() const {
  return dtensor::argmin(self());
}
Tensor ReductionMethods::argmax(int dim, bool keepdim) const {
  return dtensor::argmax(self(), dim, keepdim);
}
Tensor ReductionMethods::argmin(int dim, bool keepdim) const {
  return dtensor::argmin(self(), dim, keepdim);
}
Tensor ReductionMethods::var(const std::vector<int>& dims, double correction, bool keepdim) const {
  return dtensor::var(self(), dims, correction, keepdim);
}
Tensor ReductionMethods::stddev(const std::vector<int>& dims, double correction,
                                bool keepdim) const {
  return dtensor::stddev(self(), dims, correction, keepdim);
}
Tensor ReductionMethods::std(const std::vector<int>& dims, double correction, bool keepdim) const {
  return dtensor::std(self(), dims, correction, keepdim);
}
Tensor ReductionMethods::norm(double power, const std::vector<int>& dims, bool keepdim) const {
  return dtensor::norm(self(), power, dims, keepdim);
}
Tensor ReductionMethods::logsumexp(const std::vector<int>& dims, bool keepdim) const {
  return dtensor::logsumexp(self(), dims, keepdim);
}
Tensor ReductionMethods::cumsum(int dim) const {
  return dtensor::cumsum(self(), dim);
}
Tensor ReductionMethods::cumprod(int dim) const {
  return dtensor::cumprod(self(), dim);
}
Tensor ReductionMethods::softmax(int dim) const {
  return dtensor::softmax(self(), dim);
}
Tensor ReductionMethods::log_softmax(int dim) const {
  return dtensor::log_softmax(self(), dim);
}

}  // namespace dtrun::dtensor
