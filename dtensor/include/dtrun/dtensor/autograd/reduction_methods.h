// Reductions and scans as methods of Tensor. What they mean stands with the functions of the same
// names: ops/basic.h, ops/reduction.h.
#pragma once

#include <concepts>
#include <vector>

#include "dtrun/tensor/dtype.h"

namespace dtrun::dtensor {

using tensors::DType;
class Tensor;
struct Extremes;

class ReductionMethods {
 public:
  Tensor sum() const;
  Tensor sum(const std::vector<int>& dims, bool keepdim = false) const;
  Tensor mean() const;
  Tensor mean(const std::vector<int>& dims, bool keepdim = false) const;
  Tensor prod() const;
  Tensor prod(int dim, bool keepdim = false) const;
  // Of to(dtype), in that dtype. Templates, so that sum({}) means no dims.
  template <std::same_as<DType> D>
  Tensor sum(D dtype) const;
  template <std::same_as<DType> D>
  Tensor mean(D dtype) const;
  Tensor sum(const std::vector<int>& dims, bool keepdim, DType dtype) const;
  Tensor mean(const std::vector<int>& dims, bool keepdim, DType dtype) const;
  Tensor prod(DType dtype) const;
  Tensor prod(int dim, bool keepdim, DType dtype) const;
  Tensor cumsum(int dim, DType dtype) const;
  Tensor cumprod(int dim, DType dtype) const;
  Tensor softmax(int dim, DType dtype) const;
  Tensor log_softmax(int dim, DType dtype) const;
  Tensor any(const std::vector<int>& dims = {}, bool keepdim = false) const;
  Tensor all(const std::vector<int>& dims = {}, bool keepdim = false) const;
  Tensor amax(const std::vector<int>& dims = {}, bool keepdim = false) const;
  Tensor amin(const std::vector<int>& dims = {}, bool keepdim = false) const;
  Tensor max() const;
  Tensor min() const;
  Extremes max(int dim, bool keepdim = false) const;
  Extremes min(int dim, bool keepdim = false) const;
  Tensor argmax() const;
  Tensor argmin() const;
  Tensor argmax(int dim, bool keepdim = false) const;
  Tensor argmin(int dim, bool keepdim = false) const;
  Tensor var(const std::vector<int>& dims = {}, double correction = 1, bool keepdim = false) const;
  Tensor stddev(const std::vector<int>& dims = {}, double correction = 1,
                bool keepdim = false) const;
  Tensor std(const std::vector<int>& dims = {}, double correction = 1, bool keepdim = false) const;
  Tensor norm(double power = 2, const std::vector<int>& dims = {}, bool keepdim = false) const;
  Tensor logsumexp(const std::vector<int>& dims = {}, bool keepdim = false) const;
  Tensor cumsum(int dim) const;
  Tensor cumprod(int dim) const;
  Tensor softmax(int dim) const;      ///< ops/rows.h
  Tensor log_softmax(int dim) const;  ///< ops/rows.h

 private:
  const Tensor& self() const;
};

}  // namespace dtrun::dtensor
