// Operand: an argument that may be a tensor or a number. Borrows the tensor: only for calls.
#pragma once

#include <type_traits>

#include "dtrun/tensor/result_type.h"
#include "dtrun/tensor/scalar.h"
#include "dtrun/tensor/tensor.h"

namespace dtrun::tensors {

class Operand {
 public:
  Operand(const LocalTensor& tensor) : tensor_(&tensor), number_(0) {}  // NOLINT: both convert
  Operand(Scalar number) : number_(number) {}                           // NOLINT
  template <typename T>
  requires std::is_arithmetic_v<T> Operand(T number) : number_(number) {}  // NOLINT

  bool is_number() const { return tensor_ == nullptr; }
  const LocalTensor& tensor() const { return *tensor_; }
  Scalar number() const { return number_; }
  DType dtype() const { return is_number() ? number_.dtype() : tensor_->dtype(); }
  TypedOperand typed() const {
    return is_number() ? TypedOperand(number_) : TypedOperand(*tensor_);
  }

 private:
  const LocalTensor* tensor_ = nullptr;
  Scalar number_;
};

}  // namespace dtrun::tensors
