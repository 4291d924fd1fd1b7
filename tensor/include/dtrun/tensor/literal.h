// tensor({...}): a tensor from nested braces, as torch.tensor([...]).
#pragma once

#include <initializer_list>
#include <optional>
#include <type_traits>
#include <vector>

#include "dtrun/tensor/scalar.h"
#include "dtrun/tensor/tensor.h"

namespace dtrun::tensors {
namespace values {

/// A number, or a list of literals of equal shape. Made by braces; not for keeping.
class TensorLiteral {
 public:
  template <typename T>
  requires std::is_arithmetic_v<T> TensorLiteral(T value)  // NOLINT: braces convert
      : TensorLiteral(Scalar(value)) {}
  TensorLiteral(Scalar value);  // NOLINT
  /// @throws Error kInvalidArgument for ragged lists
  TensorLiteral(std::initializer_list<TensorLiteral> items);  // NOLINT

  const Shape& shape() const { return shape_; }
  /// f32 when any number is floating point, else i64, or boolean when all are bool.
  DType natural_dtype() const;
  /// Fills a new tensor. i64 values are kept exactly.
  LocalTensor make(std::optional<DType> dtype, Device device) const;

 private:
  Scalar::Kind kind_;
  Shape shape_;
  std::vector<double> doubles_;         ///< all values
  std::vector<std::int64_t> integers_;  ///< all values as long as none is floating point
};

struct LiteralOptions {
  std::optional<DType> dtype;
  Device device = kCpu;
};

}  // namespace values
using values::LiteralOptions;
using values::TensorLiteral;

/// tensor({1., 2.}) is f32, tensor({{1, 2}, {3, 4}}) is i64 [2, 2], tensor(3.5) is 0-dim.
/// @throws Error kInvalidArgument for ragged lists
LocalTensor tensor(std::initializer_list<TensorLiteral> items, LiteralOptions options = {});
LocalTensor tensor(const TensorLiteral& value, LiteralOptions options = {});

}  // namespace dtrun::tensors
