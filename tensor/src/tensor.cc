#include "dtrun/tensor/tensor.h"

#include <ostream>
#include <utility>

#include "dtrun/base/check.h"

namespace dtrun::tensors {

namespace {

bool is_row_major(const Shape& shape, const Strides& strides, std::int64_t numel) {
  if (numel == 0) return true;
  std::int64_t step = 1;
  for (std::size_t d = shape.size(); d-- > 0;) {
    if (shape[d] == 1) continue;
    if (strides[d] != step) return false;
    step *= shape[d];
  }
  return true;
}

bool lies_inside(const Storage& storage, DType dtype, const Shape& shape, const Strides& strides,
                 std::int64_t offset) {
  std::int64_t first = offset;
  std::int64_t last = offset;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    (strides[d] < 0 ? first : last) += (shape[d] - 1) * strides[d];
  }
  const std::size_t capacity = storage.bytes() / item_size(dtype);
  return first >= 0 && static_cast<std::size_t>(last) < capacity;
}

}  // namespace

LocalTensor::LocalTensor(StoragePointer storage, DType dtype, Shape shape, Strides strides,
                         std::int64_t offset)
    : view_(new View) {
  DT_CHECK(storage && shape.size() == strides.size());
  view_->numel = tensors::numel(shape);
  DT_CHECK(view_->numel == 0 || lies_inside(*storage, dtype, shape, strides, offset));
  view_->is_contiguous = is_row_major(shape, strides, view_->numel);
  view_->storage = std::move(storage);
  view_->shape = std::move(shape);
  view_->strides = std::move(strides);
  view_->offset = offset;
  view_->dtype = dtype;
}

LocalTensor LocalTensor::dense(StoragePointer storage, DType dtype, const Shape& shape,
                               std::int64_t count) {
  LocalTensor tensor;
  tensor.view_ = base::Counted<View>(new View);
  View& view = *tensor.view_;
  view.numel = count;
  DT_CHECK(storage && static_cast<std::size_t>(count) <= storage->bytes() / item_size(dtype));
  view.storage = std::move(storage);
  view.shape = shape;
  view.strides = contiguous_strides(shape);
  view.dtype = dtype;
  view.is_contiguous = true;
  return tensor;
}

void LocalTensor::View::destroy(View* view) noexcept {
  delete view;
}

LocalTensor LocalTensor::over(StoragePointer storage) const {
  DT_CHECK(storage && storage->bytes() >= view_->storage->bytes());
  LocalTensor other;
  other.view_ = base::Counted<View>(new View(*view_, std::move(storage)));
  return other;
}

std::int64_t LocalTensor::size(int dim) const {
  return shape()[static_cast<std::size_t>(normalize_dim(dim, shape().size()))];
}

std::ostream& operator<<(std::ostream& out, const LocalTensor& tensor) {
  return out << tensor.to_string();
}

}  // namespace dtrun::tensors
