#include "dtrun/tensor/literal.h"

#include <fmt/core.h>

#include <algorithm>

#include "dtrun/base/error.h"
#include "dtrun/tensor/ops.h"

namespace dtrun::tensors {

TensorLiteral::TensorLiteral(Scalar value) : kind_(value.kind()), doubles_{value.to_double()} {
  if (!value.is_floating()) integers_.push_back(value.to_i64());
}

TensorLiteral::TensorLiteral(std::initializer_list<TensorLiteral> items)
    // As in PyTorch, an empty list is of the default dtype.
    : kind_(items.size() == 0 ? Scalar::Kind::floating : Scalar::Kind::boolean),
      shape_{static_cast<std::int64_t>(items.size())} {
  for (const TensorLiteral& item : items) {
    const TensorLiteral& first = *items.begin();
    if (item.shape_ != first.shape_) {
      throw base::Error(base::ErrorCode::kInvalidArgument,
                        fmt::format("a tensor literal has items of shapes {} and {}",
                                    shape_to_string(first.shape_), shape_to_string(item.shape_)),
                        "a tensor's rows are as long as each other",
                        "rows of one length; pad() or several tensors else");
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
  return Scalar::dtype_of(kind_);
}

LocalTensor TensorLiteral::make(std::optional<DType> dtype, Device device) const {
  const DType target = dtype.value_or(natural_dtype());
  const LocalTensor made = kind_ == Scalar::Kind::floating ? tensor_from(doubles_, shape_, target)
                                                           : tensor_from(integers_, shape_, target);
  return made.to(device);
}

LocalTensor tensor(std::initializer_list<TensorLiteral> items, LiteralOptions options) {
  return TensorLiteral(items).make(options.dtype, options.device);
}

LocalTensor tensor(const TensorLiteral& value, LiteralOptions options) {
  return value.make(options.dtype, options.device);
}

}  // namespace dtrun::tensors
