// The operands of attention as its tiles want them: computed in A, rows or columns in runs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "copy_kernel.h"
#include "dtrun/tensor/ops.h"
#include "kernels/attention_kernel.h"
#include "kernels/transpose_kernel.h"
#include "loops/scratch.h"
#include "loops/thread_pool.h"

namespace dtrun::tensors {

template <typename A>
constexpr DType kComputedIn = std::is_same_v<A, double> ? DType::f64 : DType::f32;

inline std::int64_t in_tile_lanes(std::int64_t count) {
  return (count + kTileLanes - 1) / kTileLanes * kTileLanes;
}

/// The matrices of all heads of a tensor [..., rows, columns].
class HeadMatrices {
 public:
  HeadMatrices(const LocalTensor& tensor, DType computed)
      : tensor_(tensor),
        rows_(tensor.size(-2)),
        columns_(tensor.size(-1)),
        size_(static_cast<std::int64_t>(item_size(tensor.dtype()))),
        computed_size_(static_cast<std::int64_t>(item_size(computed))),
        load_(copy_kernel(computed, tensor.dtype())),
        store_(copy_kernel(tensor.dtype(), computed)) {
    const std::size_t batch_dims = tensor.shape().size() - 2;
    for (std::size_t d = 0; d < batch_dims; ++d) heads_ *= tensor.shape()[d];
    if (!find_step(batch_dims)) list_offsets(batch_dims);
  }

  std::int64_t heads() const { return heads_; }
  std::int64_t rows() const { return rows_; }
  std::int64_t columns() const { return columns_; }
  DType dtype() const { return tensor_.dtype(); }
  /// Elements from one to the next.
  std::int64_t row_step() const { return tensor_.strides()[tensor_.strides().size() - 2]; }
  std::int64_t column_step() const { return tensor_.strides().back(); }

  /// Heads may share a matrix (expand): so many in a row do, all through.
  std::int64_t sharing() const { return sharing_; }
  /// The number of this head's matrix among the different ones.
  std::int64_t matrix_of(std::int64_t head) const {
    if (different_.empty()) return sharing_ == 1 ? head : head / sharing_;
    const std::int64_t offset = offsets_[static_cast<std::size_t>(head)];
    return std::ranges::lower_bound(different_, offset) - different_.begin();
  }
  std::int64_t matrices() const {
    return different_.empty() ? heads_ / sharing_ : static_cast<std::int64_t>(different_.size());
  }

  /// Of head `head`, or of a matrix by its number.
  char* at(std::int64_t head, std::int64_t row, std::int64_t column = 0) const {
    return element(offset_of(head), row, column);
  }
  char* in_matrix(std::int64_t matrix, std::int64_t row) const {
    const std::int64_t offset =
        different_.empty() ? matrix * step_ : different_[static_cast<std::size_t>(matrix)];
    return element(offset, row, 0);
  }

  /// `count` numbers of a row, converted.
  void load(void* target, char* row, std::int64_t count) const {
    char* const operands[] = {static_cast<char*>(target), row};
    const std::int64_t steps[] = {computed_size_, column_step() * size_};
    load_(operands, steps, count);
  }
  void store(char* row, void* source, std::int64_t count) const {
    char* const operands[] = {row, static_cast<char*>(source)};
    const std::int64_t steps[] = {column_step() * size_, computed_size_};
    store_(operands, steps, count);
  }

 private:
  /// Whether the matrices lie at the same distance from one to the next, as they mostly do.
  bool find_step(std::size_t batch_dims) {
    std::int64_t counted = 1, next = 0;
    for (std::size_t d = batch_dims; d-- > 0;) {
      const std::int64_t size = tensor_.shape()[d], stride = tensor_.strides()[d];
      if (size == 1) continue;
      if (stride == 0 && step_ == 0) {
        sharing_ *= std::max<std::int64_t>(size, 1);
        continue;
      }
      if (step_ == 0) {
        step_ = stride;
      } else if (stride != next) {
        return false;
      }
      counted *= size;
      next = counted * step_;
    }
    return true;
  }
  void list_offsets(std::size_t batch_dims) {
    sharing_ = 1;
    for (std::int64_t head = 0; head < heads_; ++head) {
      std::int64_t offset = 0, left = head;
      for (std::size_t d = batch_dims; d-- > 0;) {
        offset += left % tensor_.shape()[d] * tensor_.strides()[d];
        left /= tensor_.shape()[d];
      }
      offsets_.push_back(offset);
    }
    different_ = offsets_;
    std::ranges::sort(different_);
    different_.erase(std::unique(different_.begin(), different_.end()), different_.end());
  }
  std::int64_t offset_of(std::int64_t head) const {
    if (!offsets_.empty()) return offsets_[static_cast<std::size_t>(head)];
    return (sharing_ == 1 ? head : head / sharing_) * step_;
  }
  char* element(std::int64_t offset, std::int64_t row, std::int64_t column) const {
    return tensor_.data_as<char>() + (offset + row * row_step() + column * column_step()) * size_;
  }

  const LocalTensor& tensor_;
  std::int64_t rows_;
  std::int64_t columns_;
  std::int64_t size_;
  std::int64_t computed_size_;
  RowKernel load_;
  RowKernel store_;
  std::int64_t heads_ = 1;
  std::int64_t sharing_ = 1;
  std::int64_t step_ = 0;                ///< from a matrix to the next, in elements
  std::vector<std::int64_t> offsets_;    ///< where there is no such step
  std::vector<std::int64_t> different_;  ///< in order
};

/// Numbers of a matrix that lie in rows, one after the other.
template <typename A>
struct RowsOfNumbers {
  const A* data;
  std::int64_t step;
};

/// The rows from `from` on, each `width` numbers long and filled up with 0: where they lie if they
/// are so there, otherwise copies in `room`.
template <typename A>
RowsOfNumbers<A> rows_of_numbers(const HeadMatrices& in, char* from, std::int64_t rows,
                                 std::int64_t width, A* room) {
  const bool is_dense = in.column_step() == 1 && in.columns() == width;
  if (is_dense && in.dtype() == kComputedIn<A>) {
    return {reinterpret_cast<const A*>(from), in.row_step()};
  }
  if (is_dense && in.row_step() == width) {
    in.load(room, from, rows * width);
    return {room, width};
  }
  const std::int64_t step = in.row_step() * static_cast<std::int64_t>(item_size(in.dtype()));
  for (std::int64_t r = 0; r < rows; ++r) {
    in.load(room + r * width, from + r * step, in.columns());
    std::fill(room + r * width + in.columns(), room + (r + 1) * width, A{0});
  }
  return {room, width};
}

/// Rows one after the other, columns in whole groups of lanes: as they lie, or copies.
template <typename A>
class PackedRows {
 public:
  PackedRows(const HeadMatrices& in, A scale) : in_(in) {
    const bool fits = in.dtype() == kComputedIn<A> && in.column_step() == 1 &&
                      in.columns() % kTileLanes == 0 && in.row_step() >= 0;
    if (fits && scale == A{1}) {
      row_ = in.row_step();
      return;
    }
    row_ = in_tile_lanes(in.columns());
    copy_ = empty({in.matrices(), in.rows(), row_}, {kComputedIn<A>});
    constexpr std::int64_t kRowsAtOnce = 64;
    parallel_for(in.matrices() * in.rows(), kRowsAtOnce, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) pack(i, scale);
    });
  }
  const A* at(std::int64_t head, std::int64_t row) const {
    if (!copy_.defined()) return reinterpret_cast<const A*>(in_.at(head, row));
    return copy_.template data_as<const A>() + (in_.matrix_of(head) * in_.rows() + row) * row_;
  }
  std::int64_t row_step() const { return row_; }

 private:
  void pack(std::int64_t i, A scale) {
    A* const target = copy_.template data_as<A>() + i * row_;
    in_.load(target, in_.in_matrix(i / in_.rows(), i % in_.rows()), in_.columns());
    if (scale != A{1}) AttentionKernels<A>::scale(target, scale, in_.columns());
    std::fill(target + in_.columns(), target + row_, A{0});
  }

  const HeadMatrices& in_;
  std::int64_t row_ = 0;
  LocalTensor copy_;
};

/// Blocks of rows as columns: each is [columns, width], filled up with 0.
template <typename A>
class PackedColumns {
 public:
  /// @param widest that a block may be; few rows are one narrow block
  PackedColumns(const HeadMatrices& in, std::int64_t widest)
      : in_(in),
        width_(std::min(widest, in_tile_lanes(in.rows()))),
        blocks_((in.rows() + widest - 1) / widest) {
    copy_ = empty({in.matrices(), blocks_, in.columns(), width_}, {kComputedIn<A>});
    parallel_for(in.matrices() * blocks_, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) pack(i);
    });
  }
  const A* at(std::int64_t head, std::int64_t block) const {
    return data(in_.matrix_of(head) * blocks_ + block);
  }
  std::int64_t width() const { return width_; }

 private:
  A* data(std::int64_t i) const { return copy_.template data_as<A>() + i * in_.columns() * width_; }
  void pack(std::int64_t i) {
    const std::int64_t first = i % blocks_ * width_;
    const std::int64_t rows = std::min(width_, in_.rows() - first);
    const std::int64_t columns = in_.columns();
    Scratch scratch(rows * columns * static_cast<std::int64_t>(sizeof(A)));
    const RowsOfNumbers<A> loaded = rows_of_numbers(in_, in_.in_matrix(i / blocks_, first), rows,
                                                    columns, reinterpret_cast<A*>(scratch.data()));
    transpose_rows(data(i), width_, loaded.data, loaded.step, rows, columns, width_);
  }

  const HeadMatrices& in_;
  std::int64_t width_;
  std::int64_t blocks_;
  LocalTensor copy_;
};

}  // namespace dtrun::tensors
