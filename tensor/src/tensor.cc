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
  std::size_t bytes = 0;
  DT_CHECK(!__builtin_mul_overflow(count, item_size(dtype), &bytes));
  DT_CHECK(storage && bytes <= storage->bytes());
  return LocalTensor(base::Counted(new View(std::move(storage), dtype, shape, count)));
}

void LocalTensor::View::destroy(View* view) noexcept {
  delete view;
}

LocalTensor LocalTensor::over(StoragePointer storage) const {
  DT_CHECK(storage && storage->bytes() >= view_->storage->bytes());
  return LocalTensor(base::Counted(new View(*view_, std::move(storage))));
}

std::int64_t LocalTensor::size(int dim) const {
  return shape()[static_cast<std::size_t>(normalize_dim(dim, shape().size()))];
}

std::ostream& operator<<(std::ostream& out, const LocalTensor& tensor) {
  return out << tensor.to_string();
}

}  // namespace dtrun::tensors
