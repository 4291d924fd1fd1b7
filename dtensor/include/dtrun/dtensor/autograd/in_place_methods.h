// In-place forms, methods of Tensor: each writes the tensor's elements. In the graph the tensor
// becomes what the operator made. @throws Error kInvalidArgument where a gradient would be wrong:
// of a leaf that wants one, outside NoGrad; and where the result does not fit into the tensor
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "dtrun/dtensor/autograd/place_methods.h"
#include "dtrun/tensor/scalar.h"

namespace dtrun::dtensor {

using tensors::Scalar;

class Tensor;
using Tensors = std::vector<Tensor>;

class InPlaceMethods {
 public:
  const Tensor& copy_(const Tensor& source) const;
  const Tensor& fill_(Scalar value) const;
  const Tensor& zero_() const { return fill_(0); }
  const Tensor& add_(const Tensor& other) const;
  const Tensor& add_(Scalar other) const;
  const Tensor& add_(const Tensor& other, Scalar alpha) const;  ///< alpha * other
  const Tensor& sub_(const Tensor& other) const;
  const Tensor& sub_(Scalar other) const;
  const Tensor& sub_(const Tensor& other, Scalar alpha) const;
  const Tensor& mul_(const Tensor& other) const;
  const Tensor& mul_(Scalar other) const;
  const Tensor& div_(const Tensor& other) const;
  const Tensor& div_(Scalar other) const;
  const Tensor& pow_(const Tensor& exponent) const;
  const Tensor& pow_(Scalar exponent) const;
  const Tensor& floor_divide_(const Tensor& other) const;
  const Tensor& floor_divide_(Scalar other) const;
  const Tensor& remainder_(const Tensor& other) const;
  const Tensor& remainder_(Scalar other) const;
  const Tensor& fmod_(const Tensor& other) const;
  const Tensor& fmod_(Scalar other) const;
  const Tensor& bitwise_and_(const Tensor& other) const;
  const Tensor& bitwise_and_(Scalar other) const;
  const Tensor& bitwise_or_(const Tensor& other) const;
  const Tensor& bitwise_or_(Scalar other) const;
  const Tensor& bitwise_xor_(const Tensor& other) const;
  const Tensor& bitwise_xor_(Scalar other) const;
  const Tensor& bitwise_left_shift_(const Tensor& other) const;
  const Tensor& bitwise_left_shift_(Scalar other) const;
  const Tensor& bitwise_right_shift_(const Tensor& other) const;
  const Tensor& bitwise_right_shift_(Scalar other) const;
  const Tensor& logical_and_(const Tensor& other) const;
  const Tensor& logical_and_(Scalar other) const;
  const Tensor& logical_or_(const Tensor& other) const;
  const Tensor& logical_or_(Scalar other) const;
  const Tensor& logical_xor_(const Tensor& other) const;
  const Tensor& logical_xor_(Scalar other) const;
  // Comparisons write 1 where they hold, else 0, in the tensor's own dtype.
  const Tensor& eq_(const Tensor& other) const;
  const Tensor& eq_(Scalar other) const;
  const Tensor& ne_(const Tensor& other) const;
  const Tensor& ne_(Scalar other) const;
  const Tensor& lt_(const Tensor& other) const;
  const Tensor& lt_(Scalar other) const;
  const Tensor& le_(const Tensor& other) const;
  const Tensor& le_(Scalar other) const;
  const Tensor& gt_(const Tensor& other) const;
  const Tensor& gt_(Scalar other) const;
  const Tensor& ge_(const Tensor& other) const;
  const Tensor& ge_(Scalar other) const;
  const Tensor& atan2_(const Tensor& other) const;
  const Tensor& neg_() const;
  const Tensor& abs_() const;
  const Tensor& exp_() const;
  const Tensor& log_() const;
  const Tensor& sqrt_() const;
  const Tensor& rsqrt_() const;
  const Tensor& reciprocal_() const;
  const Tensor& sigmoid_() const;
  const Tensor& tanh_() const;
  const Tensor& relu_() const;
  const Tensor& floor_() const;
  const Tensor& ceil_() const;
  const Tensor& round_() const;
  const Tensor& round_(int decimals) const;
  const Tensor& trunc_() const;
  const Tensor& square_() const;
  const Tensor& sign_() const;
  const Tensor& sin_() const;
  const Tensor& cos_() const;
  const Tensor& tan_() const;
  const Tensor& sinh_() const;
  const Tensor& cosh_() const;
  const Tensor& asin_() const;
  const Tensor& acos_() const;
  const Tensor& atan_() const;
  const Tensor& asinh_() const;
  const Tensor& acosh_() const;
  const Tensor& atanh_() const;
  const Tensor& erf_() const;
  const Tensor& erfc_() const;
  const Tensor& log2_() const;
  const Tensor& log10_() const;
  const Tensor& log1p_() const;
  const Tensor& expm1_() const;
  const Tensor& logical_not_() const;
  const Tensor& bitwise_not_() const;
  const Tensor& clamp_(std::optional<Scalar> low, std::optional<Scalar> high = {}) const;
  const Tensor& clamp_(const Tensor& low, const Tensor& high) const;
  const Tensor& masked_fill_(const Tensor& mask, Scalar value) const;
  const Tensor& addcmul_(const Tensor& b, const Tensor& c, Scalar value = 1) const;
  const Tensor& addcdiv_(const Tensor& b, const Tensor& c, Scalar value = 1) const;
  const Tensor& lerp_(const Tensor& end, Scalar weight) const;
  const Tensor& lerp_(const Tensor& end, const Tensor& weight) const;
  const Tensor& index_add_(int dim, const Tensor& index, const Tensor& source,
                           Scalar alpha = 1) const;
  const Tensor& index_put_(const Tensors& positions, const Tensor& values,
                           PutMode mode = PutMode::replace) const;
  const Tensor& scatter_(int dim, const Tensor& index, const Tensor& source) const;
  const Tensor& scatter_(int dim, const Tensor& index, Scalar value) const;
  const Tensor& scatter_(int dim, const Tensor& index, const Tensor& source,
                         ScatterReduce reduce) const;
  const Tensor& scatter_(int dim, const Tensor& index, Scalar value, ScatterReduce reduce) const;
  const Tensor& scatter_add_(int dim, const Tensor& index, const Tensor& source) const;
  const Tensor& scatter_reduce_(int dim, const Tensor& index, const Tensor& source,
                                ScatterReduce reduce,
                                IncludeSelf include_self = IncludeSelf::yes) const;
  const Tensor& tril_(std::int64_t diagonal = 0) const;
  const Tensor& triu_(std::int64_t diagonal = 0) const;
  const Tensor& cumsum_(int dim) const;
  const Tensor& cumprod_(int dim) const;
  const Tensor& operator+=(const Tensor& other) const { return add_(other); }
  const Tensor& operator+=(Scalar other) const { return add_(other); }
  const Tensor& operator-=(const Tensor& other) const { return sub_(other); }
  const Tensor& operator-=(Scalar other) const { return sub_(other); }
  const Tensor& operator*=(const Tensor& other) const { return mul_(other); }
  const Tensor& operator*=(Scalar other) const { return mul_(other); }
  const Tensor& operator/=(const Tensor& other) const { return div_(other); }
  const Tensor& operator/=(Scalar other) const { return div_(other); }
  const Tensor& operator&=(const Tensor& other) const { return bitwise_and_(other); }
  const Tensor& operator&=(Scalar other) const { return bitwise_and_(other); }
  const Tensor& operator|=(const Tensor& other) const { return bitwise_or_(other); }
  const Tensor& operator|=(Scalar other) const { return bitwise_or_(other); }
  const Tensor& operator^=(const Tensor& other) const { return bitwise_xor_(other); }
  const Tensor& operator^=(Scalar other) const { return bitwise_xor_(other); }

 private:
  const Tensor& self() const;
};

}  // namespace dtrun::dtensor
