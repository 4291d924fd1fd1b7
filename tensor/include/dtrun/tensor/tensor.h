// LocalTensor: a strided view of a Storage: shape, strides, offset, dtype. A handle of eight bytes:
// copies share the elements, and `const LocalTensor&` says nothing about them (as PyTorch's). What
// it shows never changes; a view is another. No graph: gradients are dtensor's. Thread-safe for
// concurrent reads; writers of the same elements must be ordered by the caller.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <string>
#include <utility>
#include <vector>

#include "dtrun/base/small_blocks.h"
#include "dtrun/tensor/device.h"
#include "dtrun/tensor/dtype.h"
#include "dtrun/tensor/scalar.h"
#include "dtrun/tensor/shape.h"
#include "dtrun/tensor/storage.h"

namespace dtrun::tensors {

class LocalTensor {
 public:
  /// An undefined tensor: only defined(), assignment and destruction are allowed.
  LocalTensor() = default;
  /// @param strides, offset in elements. Every element must lie inside the storage (DT_CHECK).
  LocalTensor(StoragePointer storage, DType dtype, Shape shape, Strides strides,
              std::int64_t offset = 0);
  /// Contiguous from the storage's first element on: a third of the constructor's time.
  /// @param count the shape's elements, which the storage holds (DT_CHECK)
  static LocalTensor dense(StoragePointer storage, DType dtype, const Shape& shape,
                           std::int64_t count);

  bool defined() const { return static_cast<bool>(view_); }
  const Shape& shape() const { return view_->shape; }
  const Strides& strides() const { return view_->strides; }
  std::int64_t offset() const { return view_->offset; }
  std::int64_t size(int dim) const;
  int dim() const { return static_cast<int>(view_->shape.size()); }
  std::int64_t numel() const { return view_->numel; }
  DType dtype() const { return view_->dtype; }
  Device device() const { return view_->storage->device(); }
  std::size_t bytes() const { return static_cast<std::size_t>(numel()) * item_size(dtype()); }
  const StoragePointer& storage() const { return view_->storage; }
  /// Address of the first element.
  void* data() const {
    return static_cast<char*>(storage()->data()) +
           offset() * static_cast<std::int64_t>(item_size(dtype()));
  }
  template <typename T>
  T* data_as() const {
    return static_cast<T*>(data());
  }
  /// Elements lie one after the other in row-major order (true for no elements).
  bool is_contiguous() const { return view_->is_contiguous; }

  // Views: share the elements. Errors: kInvalidArgument.
  LocalTensor view(
      Shape shape) const;  ///< -1 is inferred; needs a layout that allows it, else throws
  LocalTensor reshape(Shape shape) const;  ///< view, or a copy where no view is possible
  LocalTensor slice(int dim, std::int64_t start, std::int64_t end, std::int64_t step = 1) const;
  LocalTensor narrow(int dim, std::int64_t start, std::int64_t length) const;
  LocalTensor select(int dim, std::int64_t index) const;
  LocalTensor transpose(int dim0, int dim1) const;
  LocalTensor permute(const std::vector<int>& dims) const;
  LocalTensor unsqueeze(int dim) const;
  LocalTensor squeeze(int dim) const;
  LocalTensor expand(const Shape& shape) const;
  LocalTensor operator[](std::int64_t index) const { return select(0, index); }
  /// The same shape, strides, offset and dtype over other memory, in a third of the time that the
  /// constructor takes. @param storage no smaller than this tensor's (DT_CHECK)
  LocalTensor over(StoragePointer storage) const;

  // Copies.
  LocalTensor contiguous() const;  ///< itself where it is contiguous
  LocalTensor clone() const;       ///< always a contiguous copy
  LocalTensor to(DType dtype) const;
  LocalTensor to(Device device) const;
  /// Copies the elements of `source` (broadcast to this shape, converted) into this one.
  const LocalTensor& copy_(const LocalTensor& source) const;
  const LocalTensor& fill_(Scalar value) const;

  /// The only element, converted. @throws Error kInvalidArgument unless numel() is 1
  double item() const;
  /// All elements in row-major order, converted. i64 beyond 2^53 loses precision: use
  /// to_vector_i64.
  std::vector<double> to_vector() const;
  std::vector<std::int64_t> to_vector_i64() const;

  /// As PyTorch's (2.11 to 2.15) str(tensor) with default print options, byte for byte.
  std::string to_string() const;

 private:
  struct View : base::Count, base::small_blocks::Object<View> {
    View() = default;
    /// Contiguous.
    View(StoragePointer its_storage, DType type, const Shape& its_shape, std::int64_t count)
        : storage(std::move(its_storage)),
          shape(its_shape),
          strides(contiguous_strides(its_shape)),
          numel(count),
          dtype(type),
          is_contiguous(true) {}
    View(const View& like, StoragePointer its_storage)
        : storage(std::move(its_storage)),
          shape(like.shape),
          strides(like.strides),
          offset(like.offset),
          numel(like.numel),
          dtype(like.dtype),
          is_contiguous(like.is_contiguous) {}
    static void destroy(View* view) noexcept;
    StoragePointer storage;
    Shape shape;
    Strides strides;
    std::int64_t offset = 0;
    std::int64_t numel = 0;
    DType dtype = DType::f32;
    bool is_contiguous = false;
  };

  explicit LocalTensor(base::Counted<View> view) : view_(std::move(view)) {}

  base::Counted<View> view_;
};

std::ostream& operator<<(std::ostream& out, const LocalTensor& tensor);

}  // namespace dtrun::tensors
