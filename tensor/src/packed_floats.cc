// The loops around a kernel for a few rows and columns are those of Goto and van de Geijn, "Anatomy
// of High-Performance Matrix Multiplication" (2008): a chunk of k of 16 columns of the right side
// stays in the first cache while all rows of a block pass by; the block's chunk of the left side
// stays in the second.
#include "packed_floats.h"

#include <algorithm>
#include <cstring>

#include "kernels/tile_product.h"
#include "kernels/transpose_kernel.h"
#include "kernels/vector_registers.h"
#include "loops/scratch.h"
#include "loops/thread_pool.h"

namespace dtrun::tensors {
namespace {

template <typename T>
constexpr std::int64_t kPanelOf = 64 / sizeof(T);  ///< columns: two vectors
constexpr std::int64_t kGroup = 6;                 ///< rows
constexpr std::int64_t kChunk = 256;               ///< of k
constexpr std::int64_t kMostBlockRows = 96;
constexpr std::int64_t kMostColumns = 1024;  ///< packed at once
constexpr std::int64_t kTogether = 32;       ///< rows that a thread packs

std::int64_t parts(std::int64_t count, std::int64_t each) {
  return (count + each - 1) / each;
}

/// A chunk of k of some columns of the right side: panel by panel, zeros behind the last column.
template <typename T>
class RightChunk {
  static constexpr std::int64_t kPanel = kPanelOf<T>;

 public:
  explicit RightChunk(const MatrixView& b)
      : b_(b),
        operand_(blas_operand(b)),
        room_(std::min(kChunk, b.rows) * parts(std::min(kMostColumns, b.columns), kPanel) * kPanel *
              static_cast<std::int64_t>(sizeof(T))) {}

  void pack(std::int64_t k, std::int64_t length, std::int64_t first, std::int64_t columns) {
    length_ = length;
    columns_ = columns;
    const T* const from = static_cast<const T*>(b_.data);
    if (operand_.runs == Runs::rows) {
      parallel_for(length, kTogether, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          pack_row(i, from + (k + i) * operand_.leading + first);
        }
      });
    } else {
      parallel_for(parts(columns, kPanel), 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          transpose_rows(place(i), kPanel, from + (first + i * kPanel) * operand_.leading + k,
                         operand_.leading, std::min(kPanel, columns_ - i * kPanel), length, kPanel);
        }
      });
    }
  }

  const T* panel(std::int64_t index) const { return const_cast<RightChunk*>(this)->place(index); }

 private:
  T* place(std::int64_t index) {
    return reinterpret_cast<T*>(room_.data()) + index * length_ * kPanel;
  }
  void pack_row(std::int64_t row, const T* from) {
    T* to = place(0) + row * kPanel;
    const std::int64_t whole = columns_ / kPanel * kPanel;
    for (std::int64_t i = 0; i < whole; i += kPanel) {
      std::memcpy(to, from + i, kPanel * sizeof(T));
      to += length_ * kPanel;
    }
    if (whole == columns_) return;
    std::fill(std::copy_n(from + whole, columns_ - whole, to), to + kPanel, T{});
  }

  const MatrixView& b_;
  const BlasOperand operand_;
  Scratch room_;
  std::int64_t length_ = 0;
  std::int64_t columns_ = 0;
};

/// A block of rows of the left side, a chunk of k: as it lies, or copied.
template <typename T>
class LeftBlock {
 public:
  explicit LeftBlock(const MatrixView& a)
      : a_(a),
        operand_(blas_operand(a)),
        in_groups_(operand_.runs == Runs::columns),
        room_(kMostBlockRows * kChunk * sizeof(T)) {}

  void choose(std::int64_t row, std::int64_t rows, std::int64_t k, std::int64_t length) {
    rows_ = rows;
    length_ = length;
    const T* const from = static_cast<const T*>(a_.data);
    if (in_groups_) return copy_groups(from + k * operand_.leading + row);
    start_ = from + row * operand_.leading + k;
    row_ = operand_.leading;
    if (conflicts(operand_.leading)) copy_rows();
  }

  /// @param tile with everything but the left side and `rows`
  void multiply(TileProduct<T> tile) const {
    tile.inner = length_;
    if (!in_groups_) {
      tile.left = start_;
      tile.left_row = row_;
      tile.left_column = 1;
      tile.rows = rows_;
      return multiply_tile(tile);
    }
    T* const result = tile.result;
    tile.left_row = 1;
    tile.left_column = kGroup;
    for (std::int64_t i = 0; i < rows_; i += kGroup) {
      tile.result = result + i * tile.result_row;
      tile.left = start_ + i * length_;
      tile.rows = std::min(kGroup, rows_ - i);
      multiply_tile(tile);
    }
  }

 private:
  /// Rows that are about a page apart share few places of the first cache, and take a place each
  /// among the translated addresses.
  static bool conflicts(std::int64_t distance) {
    constexpr std::int64_t kNearBytes = 1536;
    return distance * static_cast<std::int64_t>(sizeof(T)) > kNearBytes;
  }
  T* room() { return reinterpret_cast<T*>(room_.data()); }

  void copy_rows() {
    for (std::int64_t i = 0; i < rows_; ++i) {
      std::memcpy(room() + i * kChunk, start_ + i * row_,
                  static_cast<std::size_t>(length_) * sizeof(T));
    }
    start_ = room();
    row_ = kChunk;
  }
  /// Six rows together, number by number of k.
  void copy_groups(const T* from) {
    const std::int64_t whole = rows_ / kGroup * kGroup;
    for (std::int64_t k = 0; k < length_; ++k) {
      const T* const line = from + k * operand_.leading;
      for (std::int64_t i = 0; i < whole; i += kGroup) {
        std::memcpy(room() + i * length_ + k * kGroup, line + i, kGroup * sizeof(T));
      }
      std::copy_n(line + whole, rows_ - whole, room() + whole * length_ + k * kGroup);
    }
    start_ = room();
  }

  const MatrixView& a_;
  const BlasOperand operand_;
  const bool in_groups_;  ///< of six rows, else row by row
  Scratch room_;
  const T* start_ = nullptr;
  std::int64_t row_ = 0;  ///< distance of the rows
  std::int64_t rows_ = 0;
  std::int64_t length_ = 0;
};

template <typename T>
class PackedProduct {
  static constexpr std::int64_t kPanel = kPanelOf<T>;

 public:
  PackedProduct(const MatrixView& a, const MatrixView& b, T* result, const ProductForm& form)
      : a_(a), b_(b), result_(result), form_(form) {}

  void run() {
    RightChunk<T> right(b_);
    const std::int64_t blocks = count_blocks();
    for (std::int64_t first = 0; first < b_.columns; first += kMostColumns) {
      for (std::int64_t k = 0; k < b_.rows; k += kChunk) {
        const Part part{k, std::min(kChunk, b_.rows - k), first,
                        std::min(kMostColumns, b_.columns - first)};
        right.pack(part.k, part.length, part.first, part.columns);
        parallel_for(blocks, 1, [&](std::int64_t begin, std::int64_t end) {
          LeftBlock<T> left(a_);
          for (std::int64_t i = begin; i < end; ++i) {
            const std::int64_t row = first_row(i, blocks);
            run_block(left, right, part, row, first_row(i + 1, blocks) - row);
          }
        });
      }
    }
  }

 private:
  /// A chunk of k, and the columns that are packed at once.
  struct Part {
    std::int64_t k, length, first, columns;
  };

  /// As many that up to eight threads have the same work.
  std::int64_t count_blocks() const {
    constexpr std::int64_t kBlocks = 8;
    return std::min(parts(a_.rows, kGroup), kBlocks * parts(a_.rows, kBlocks * kMostBlockRows));
  }
  /// Blocks have whole groups, and differ by one at the most.
  std::int64_t first_row(std::int64_t block, std::int64_t blocks) const {
    return std::min(a_.rows, parts(a_.rows, kGroup) * block / blocks * kGroup);
  }

  void run_block(LeftBlock<T>& left, const RightChunk<T>& right, const Part& part, std::int64_t row,
                 std::int64_t rows) const {
    left.choose(row, rows, part.k, part.length);
    const bool is_fresh = part.k == 0 && !has_terms_;
    for (std::int64_t column = 0; column < part.columns; column += kPanel) {
      T* const result = result_ + row * b_.columns + part.first + column;
      const std::int64_t width = std::min(kPanel, part.columns - column);
      if (part.k == 0 && has_terms_) put_addend(result, row, rows, part.first + column, width);
      TileProduct<T> tile{};
      tile.right = right.panel(column / kPanel);
      tile.right_row = kPanel;
      tile.columns = kPanel;
      tile.result = result;
      tile.result_row = b_.columns;
      tile.sum = is_fresh ? TileSum::fresh : TileSum::added;
      if (width == kPanel) {
        left.multiply(tile);
      } else {
        multiply_narrow(left, tile, rows, width);
      }
    }
  }

  void multiply_narrow(const LeftBlock<T>& left, TileProduct<T> tile, std::int64_t rows,
                       std::int64_t width) const {
    alignas(64) T sums[kMostBlockRows * kPanel];
    T* const result = tile.result;
    const bool is_fresh = tile.sum == TileSum::fresh;
    tile.result = sums;
    tile.result_row = kPanel;
    tile.sum = TileSum::fresh;
    left.multiply(tile);
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < width; ++j) {
        T& place = result[i * b_.columns + j];
        place = is_fresh ? sums[i * kPanel + j] : sums[i * kPanel + j] + place;
      }
    }
  }

  /// beta times the addend, to which sums are added while it is in the cache.
  void put_addend(T* result, std::int64_t row, std::int64_t rows, std::int64_t column,
                  std::int64_t width) const {
    const T beta = form_.beta_as<T>();
    for (std::int64_t i = 0; i < rows; ++i) {
      const T* const from = static_cast<const T*>(form_.addend) + (row + i) * form_.row_stride +
                            column * form_.column_stride;
      T* const to = result + i * b_.columns;
      if (form_.column_stride == 0) {
        std::fill_n(to, width, beta * *from);
      } else if (beta == 1 && width == kPanel) {
        std::memcpy(to, from, kPanel * sizeof(T));
      } else {
        for (std::int64_t j = 0; j < width; ++j) to[j] = beta * from[j];
      }
    }
  }

  const MatrixView& a_;
  const MatrixView& b_;
  T* const result_;
  const ProductForm& form_;
  const bool has_terms_ = form_.has_addend() && form_.beta_as<T>() != 0;
};

}  // namespace

bool suits_packing(const MatrixView& a, const MatrixView& b, const ProductForm& form) {
  constexpr std::int64_t kLeastSide = 96, kLeast = 160 * 160 * 160;
  return vector_registers() == VectorRegisters::avx2 && form.alpha.to_double() == 1 &&
         a.rows >= kLeastSide && b.columns >= kLeastSide &&
         a.rows * b.columns * a.columns >= kLeast;
}

void multiply_packed(const MatrixView& a, const MatrixView& b, float* result,
                     const ProductForm& form) {
  PackedProduct<float>(a, b, result, form).run();
}
void multiply_packed(const MatrixView& a, const MatrixView& b, double* result,
                     const ProductForm& form) {
  PackedProduct<double>(a, b, result, form).run();
}

}  // namespace dtrun::tensors
