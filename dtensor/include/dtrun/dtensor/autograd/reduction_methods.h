// Reductions and scans as methods of Tensor. What they mean stands with the functions of the same
// names: ops/basic.h, ops/reduction.h.
#pragma once

#include <vector>

namespace dtrun::dtensor {

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
