#include "dtrun/tensor/literal.h"

#include <fmt/core.h>

#include <algorithm>

#include "dtrun/base/error.h"
#include "dtrun/tensor/ops.h"

namespace dtrun::tensors {

TensorLiteral::TensorLiteral(double value) : kind_(Kind::floating), doubles_{value} {}

TensorLiteral::TensorLiteral(Integer value)
    : kind_(Kind::integer), doubles_{static_cast<double>(value.value)}, integers_{value.value} {}

TensorLiteral::TensorLiteral(Boolean value) : TensorLiteral(Integer{value.value ? 1 : 0}) {
  kind_ = Kind::boolean;
}

TensorLiteral::TensorLiteral(std::initializer_list<TensorLiteral> items)
    // As in PyTorch, an empty list is of the default dtype.
    : kind_(items.size() == 0 ? Kind::floating : Kind::boolean),
      shape_{static_cast<std::int64_t>(items.size())} {
  for (const TensorLiteral& item : items) {
    const TensorLiteral& first = *items.begin();
    if (item.shape_ != first.shape_) {
      throw base::Error(base::ErrorCode::kInvalidArgument,
                        fmt::format("a tensor literal has items of shapes {} and {}",
                                    shape_to_string(first.shape_), shape_to_string(item.shape_)));
    }
    kind_ = std::max(kind_, item.kind_);
    doubles_.insert(doubles_.end(), item.doubles_.begin(), item.doubles_.end());
    integers_.insert(integers_.end(), item.integers_.begin(), item.integers_.end());
  }
  if (items.size() != 0) {
    const Shape& inner = items.begin()->shape_;
    shape_.insert(shape_.end(), inner.begin(), inner.end());
  }
}

DType TensorLiteral::natural_dtype() const {
  switch (kind_) {
    case Kind::boolean:
      return DType::boolean;
    case Kind::integer:
      return DType::i64;
    case Kind::floating:
      break;
  }
  return DType::f32;
}

Tensor TensorLiteral::make(std::optional<DType> dtype, Device device) const {
  const DType target = dtype.value_or(natural_dtype());
  const Tensor made = kind_ == Kind::floating ? tensor_from(doubles_, shape_, target)
                                              : tensor_from(integers_, shape_, target);
  return made.to(device);
}

Tensor tensor(std::initializer_list<TensorLiteral> items, LiteralOptions options) {
  return TensorLiteral(items).make(options.dtype, options.device);
}

Tensor tensor(const TensorLiteral& value, LiteralOptions options) {
  return value.make(options.dtype, options.device);
}

}  // namespace dtrun::tensors
