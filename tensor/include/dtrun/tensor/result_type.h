// result_type: the dtype of a binary operation's result, decided here for local and for distributed
// tensors alike, from dtypes, kinds of numbers and counts of dims; never from values.
#pragma once

#include "dtrun/tensor/scalar.h"
#include "dtrun/tensor/tensor.h"

namespace dtrun::tensors {

/// What an operand has to say about it.
struct TypedOperand {
  /// Who is of less weight does not widen the others' dtype, unless it is of a higher kind: bool,
  /// integer, floating point.
  enum class Weight : std::uint8_t { number, zero_dim, dims };

  TypedOperand(Scalar number)  // NOLINT: operands convert
      : dtype(number.dtype()), weight(Weight::number) {}
  TypedOperand(DType of, const Shape& shape)
      : dtype(of), weight(shape.empty() ? Weight::zero_dim : Weight::dims) {}
  TypedOperand(const LocalTensor& tensor)  // NOLINT
      : TypedOperand(tensor.dtype(), tensor.shape()) {}

  DType dtype;
  Weight weight;
};

/// torch.result_type: what adding the two gives. Division turns what is left an integer into f32.
DType result_type(TypedOperand a, TypedOperand b);

}  // namespace dtrun::tensors
