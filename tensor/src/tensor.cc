#include "dtrun/tensor/tensor.h"

#include <ostream>
#include <utility>

#include "dtrun/base/check.h"

namespace dtrun::tensors {

LocalTensor::LocalTensor(std::shared_ptr<Storage> storage, DType dtype, Shape shape,
                         Strides strides, std::int64_t offset)
    : storage_(std::move(storage)),
      dtype_(dtype),
      shape_(std::move(shape)),
      strides_(std::move(strides)),
      offset_(offset) {
  DT_CHECK(storage_ != nullptr && shape_.size() == strides_.size());
  if (numel() == 0) return;
  std::int64_t first = offset_;
  std::int64_t last = offset_;
  for (std::size_t d = 0; d < shape_.size(); ++d) {
    (strides_[d] < 0 ? first : last) += (shape_[d] - 1) * strides_[d];
  }
  const std::size_t capacity = storage_->bytes() / item_size(dtype_);
  DT_CHECK(first >= 0 && static_cast<std::size_t>(last) < capacity);
}

std::int64_t LocalTensor::size(int dim) const {
  return shape_[static_cast<std::size_t>(normalize_dim(dim, shape_.size()))];
}

std::int64_t LocalTensor::numel() const {
  return tensors::numel(shape_);
}

void* LocalTensor::data() const {
  return static_cast<char*>(storage_->data()) +
         offset_ * static_cast<std::int64_t>(item_size(dtype_));
}

bool LocalTensor::is_contiguous() const {
  if (numel() == 0) return true;
  std::int64_t step = 1;
  for (std::size_t d = shape_.size(); d-- > 0;) {
    if (shape_[d] == 1) continue;
    if (strides_[d] != step) return false;
    step *= shape_[d];
  }
  return true;
}

std::ostream& operator<<(std::ostream& out, const LocalTensor& tensor) {
  return out << tensor.to_string();
}

}  // namespace dtrun::tensors
