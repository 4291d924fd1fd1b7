// The operands of attention of bf16 as the processor's tiles want them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/attention_bf16_kernel.h"
#include "kernels/bf16_product.h"
#include "kernels/transpose_kernel.h"
#include "ops/attention_operand.h"
#include "ops/attention_scores.h"

namespace dtrun::tensors {

/// The compiler would write one by one.
inline void clear_bf16(BFloat16* begin, BFloat16* end) {
  std::memset(static_cast<void*>(begin), 0, static_cast<std::size_t>(end - begin) * sizeof *begin);
}

inline std::int64_t in_bf16_inner(std::int64_t count) {
  return (count + kBf16Inner - 1) / kBf16Inner * kBf16Inner;
}

/// Rows as they are, filled up with 0 to `width` numbers.
inline void load_bf16_rows(const HeadMatrices& in, char* first, BFloat16* target, std::int64_t rows,
                           std::int64_t width) {
  const auto step = in.row_step() * static_cast<std::int64_t>(sizeof(BFloat16));
  if (in.columns() == width && in.row_step() == width && in.column_step() == 1) {
    return in.load(target, first, rows * width);
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    in.load(target + r * width, first + r * step, in.columns());
    clear_bf16(target + r * width + in.columns(), target + (r + 1) * width);
  }
}

/// Blocks of kKeys rows as the right side of products, in pairs of what is summed over.
class PairedBlocks {
 public:
  /// columns: sums over the numbers of a row, whose rows become columns; rows: over the rows
  enum class Over : std::uint8_t { columns, rows };

  PairedBlocks(const HeadMatrices& in, Over over)
      : in_(in), over_(over), blocks_((in.rows() + kKeys - 1) / kKeys) {
    width_ = over == Over::columns ? in_bf16_inner(in.columns()) : in_tile_lanes(in.columns());
    copy_ = empty({in.matrices(), blocks_, kKeys, width_}, {DType::bf16});
    parallel_for(in.matrices() * blocks_, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) pack(i);
    });
  }
  const BFloat16* at(std::int64_t head, std::int64_t block) const {
    return data(in_.matrix_of(head) * blocks_ + block);
  }
  /// From a pair to the next.
  std::int64_t row_step() const { return over_ == Over::columns ? 2 * kKeys : 2 * width_; }

 private:
  BFloat16* data(std::int64_t i) const { return copy_.data_as<BFloat16>() + i * kKeys * width_; }

  void pack(std::int64_t i) {
    const std::int64_t first = i % blocks_ * kKeys;
    const std::int64_t rows = std::min(kKeys, in_.rows() - first);
    Scratch scratch(kKeys * width_ * static_cast<std::int64_t>(sizeof(BFloat16)));
    auto* const loaded = reinterpret_cast<BFloat16*>(scratch.data());
    load_bf16_rows(in_, in_.in_matrix(i / blocks_, first), loaded, rows, width_);
    clear_bf16(loaded + rows * width_, loaded + kKeys * width_);
    if (over_ == Over::columns) {
      // Two neighbours are one word, which moves as a float does.
      transpose_rows(reinterpret_cast<float*>(data(i)), kKeys,
                     reinterpret_cast<const float*>(loaded), width_ / 2, kKeys, width_ / 2, kKeys);
      return;
    }
    for (std::int64_t r = 0; r < kKeys; r += 2) {
      const BFloat16* const upper = loaded + r * width_;
      pair_bf16(data(i) + r * width_, upper, upper + width_, width_);
    }
  }

  const HeadMatrices& in_;
  Over over_;
  std::int64_t blocks_;
  std::int64_t width_;
  LocalTensor copy_;
};

/// Blocks of kQueries rows as the left side of products, as they are and turned; filled up with 0.
class QueryBlocks {
 public:
  explicit QueryBlocks(const HeadMatrices& in)
      : in_(in),
        blocks_((in.rows() + kQueries - 1) / kQueries),
        width_(in_bf16_inner(in.columns())) {
    rows_ = empty({in.heads(), blocks_, kQueries, width_}, {DType::bf16});
    turned_ = empty({in.heads(), blocks_, width_, kQueries}, {DType::bf16});
    parallel_for(in.heads() * blocks_, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) pack(i / blocks_, i % blocks_);
    });
  }
  std::int64_t width() const { return width_; }
  /// [kQueries, width]
  BFloat16* rows(std::int64_t head, std::int64_t block) const { return place(rows_, head, block); }
  /// [width, kQueries]
  BFloat16* turned(std::int64_t head, std::int64_t block) const {
    return place(turned_, head, block);
  }

 private:
  BFloat16* place(const LocalTensor& all, std::int64_t head, std::int64_t block) const {
    return all.data_as<BFloat16>() + (head * blocks_ + block) * kQueries * width_;
  }
  void pack(std::int64_t head, std::int64_t block) {
    const std::int64_t first = block * kQueries;
    const std::int64_t count = std::min(kQueries, in_.rows() - first);
    BFloat16* const loaded = rows(head, block);
    BFloat16* const target = turned(head, block);
    load_bf16_rows(in_, in_.at(head, first), loaded, count, width_);
    clear_bf16(loaded + count * width_, loaded + kQueries * width_);
    // Two neighbours are one word, which is turned and then split.
    Scratch scratch(kQueries * width_ * static_cast<std::int64_t>(sizeof(BFloat16)));
    transpose_rows(reinterpret_cast<float*>(scratch.data()), kQueries,
                   reinterpret_cast<const float*>(loaded), width_ / 2, kQueries, width_ / 2,
                   kQueries);
    const auto* const pairs = reinterpret_cast<const BFloat16*>(scratch.data());
    for (std::int64_t c = 0; c < width_; c += 2) {
      split_bf16(target + c * kQueries, target + (c + 1) * kQueries, pairs + c * kQueries,
                 kQueries);
    }
  }

  const HeadMatrices& in_;
  std::int64_t blocks_;
  std::int64_t width_;
  LocalTensor rows_;
  LocalTensor turned_;
};

}  // namespace dtrun::tensors
