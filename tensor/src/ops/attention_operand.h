// The operands of attention as its tiles want them: computed in A, rows or columns in runs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "copy_kernel.h"
#include "dtrun/tensor/ops.h"
#include "kernels/attention_kernel.h"
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
        size_(static_cast<std::int64_t>(item_size(tensor.dtype()))),
        computed_size_(static_cast<std::int64_t>(item_size(computed))),
        load_(copy_kernel(computed, tensor.dtype())),
        store_(copy_kernel(tensor.dtype(), computed)) {
    const std::size_t batch_dims = tensor.shape().size() - 2;
    std::int64_t heads = 1;
    for (std::size_t d = 0; d < batch_dims; ++d) heads *= tensor.shape()[d];
    for (std::int64_t head = 0; head < heads; ++head) {
      std::int64_t offset = 0, left = head;
      for (std::size_t d = batch_dims; d-- > 0;) {
        offset += left % tensor.shape()[d] * tensor.strides()[d];
        left /= tensor.shape()[d];
      }
      offsets_.push_back(offset);
    }
    different_ = offsets_;
    std::ranges::sort(different_);
    different_.erase(std::unique(different_.begin(), different_.end()), different_.end());
  }

  std::int64_t heads() const { return static_cast<std::int64_t>(offsets_.size()); }
  std::int64_t rows() const { return tensor_.size(-2); }
  std::int64_t columns() const { return tensor_.size(-1); }
  DType dtype() const { return tensor_.dtype(); }
  /// Elements from one to the next.
  std::int64_t row_step() const { return tensor_.strides()[tensor_.strides().size() - 2]; }
  std::int64_t column_step() const { return tensor_.strides().back(); }

  /// Heads may share a matrix (expand): the number of this one's among the different ones.
  std::int64_t matrix_of(std::int64_t head) const {
    const std::int64_t offset = offsets_[static_cast<std::size_t>(head)];
    return std::ranges::lower_bound(different_, offset) - different_.begin();
  }
  std::int64_t matrices() const { return static_cast<std::int64_t>(different_.size()); }

  /// Of head `head`, or of a matrix by its number.
  char* at(std::int64_t head, std::int64_t row, std::int64_t column = 0) const {
    return element(offsets_[static_cast<std::size_t>(head)], row, column);
  }
  char* in_matrix(std::int64_t matrix, std::int64_t row) const {
    return element(different_[static_cast<std::size_t>(matrix)], row, 0);
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
  char* element(std::int64_t offset, std::int64_t row, std::int64_t column) const {
    return tensor_.data_as<char>() + (offset + row * row_step() + column * column_step()) * size_;
  }

  const LocalTensor& tensor_;
  std::int64_t size_;
  std::int64_t computed_size_;
  RowKernel load_;
  RowKernel store_;
  std::vector<std::int64_t> offsets_;    ///< elements
  std::vector<std::int64_t> different_;  ///< in order
};

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
    A* const loaded = reinterpret_cast<A*>(scratch.data());
    for (std::int64_t r = 0; r < rows; ++r) {
      in_.load(loaded + r * columns, in_.in_matrix(i / blocks_, first + r), columns);
    }
    AttentionKernels<A>::transpose(data(i), width_, loaded, columns, rows, columns);
    if (rows == width_) return;
    for (std::int64_t c = 0; c < columns; ++c) {
      std::fill(data(i) + c * width_ + rows, data(i) + (c + 1) * width_, A{0});
    }
  }

  const HeadMatrices& in_;
  std::int64_t width_;
  std::int64_t blocks_;
  LocalTensor copy_;
};

}  // namespace dtrun::tensors
