// A step multiplies 32 rows by 32 columns over 32 of k, in four tiles of sums. The right side is
// packed into what steps read: 2 KiB for 32 columns and 32 of k, pairs of k together (VNNI), zeros
// beyond the edges. So is the left, unless its rows can be read as they lie and are short.
//
// Up to 1,024 of k are summed at once. More are cut into chunks of about 256 (vectors: 512), so
// that a panel of the right stays in the first cache while the left's pass by; a block of the
// result is so large that both sides' chunks and its sums stay in the second. What the tiles gave
// is added to the sums, and rounded, by vectors, while the tiles work on what comes next.
// Processors without tiles multiply the same steps by vectors.
#include "packed_bf16.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>

#include "kernels/bf16_product.h"
#include "loops/scratch.h"
#include "loops/thread_pool.h"

#define DTRUN_AMX [[gnu::target("amx-tile,amx-bf16,avx512bw,avx512vl,avx512bf16,prfchw")]]

namespace dtrun::tensors {
namespace {

constexpr std::int64_t kSide = 32;
constexpr std::int64_t kTile = 16;
constexpr std::int64_t kTileBytes = 1024;
constexpr std::int64_t kStepBytes = 2 * kTileBytes;

/// The rows of the left matrix or the columns of the right one: how they lie.
struct Lines {
  const std::uint16_t* data;
  std::int64_t count;
  std::int64_t inner;     ///< numbers in each
  std::int64_t distance;  ///< between lines that lie in runs, else between numbers of a line
  bool in_runs;

  std::int64_t steps() const { return (inner + kSide - 1) / kSide; }
  std::int64_t panels() const { return (count + kSide - 1) / kSide; }
};

Lines left_lines(const MatrixView& a) {
  const BlasOperand operand = blas_operand(a);
  return {static_cast<const std::uint16_t*>(a.data), a.rows, a.columns, operand.leading,
          operand.runs == Runs::rows};
}
Lines right_lines(const MatrixView& b) {
  const BlasOperand operand = blas_operand(b);
  return {static_cast<const std::uint16_t*>(b.data), b.columns, b.rows, operand.leading,
          operand.runs == Runs::columns};
}

/// A tile while it is packed: 16 rows of 16 pairs.
struct Pairs {
  __m512i rows[kTile];
};

std::uint32_t first_bits(std::int64_t count) {
  return count >= 32 ? ~0u : count <= 0 ? 0u : (1u << count) - 1;
}

/// One line's numbers from k on.
DTRUN_AMX inline __m512i load_run(const Lines& lines, std::int64_t line, std::int64_t k) {
  if (line >= lines.count) return _mm512_setzero_si512();
  return _mm512_maskz_loadu_epi16(first_bits(lines.inner - k),
                                  lines.data + line * lines.distance + k);
}

/// Numbers k of 32 lines, in such an order that the halves of each 128 bits are unpacked into the
/// first 16 and the last.
DTRUN_AMX inline __m512i load_across(const Lines& lines, std::int64_t first, std::int64_t k) {
  if (k >= lines.inner) return _mm512_setzero_si512();
  const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
  return _mm512_permutexvar_epi64(
      order, _mm512_maskz_loadu_epi16(first_bits(lines.count - first),
                                      lines.data + k * lines.distance + first));
}

/// Turns rows into columns of pairs.
DTRUN_AMX inline void transpose(Pairs& pairs) {
  __m512i* const r = pairs.rows;
  __m512i t[kTile];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  // Now the blocks of 4 pairs.
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
  }
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
    r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
    r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
  }
}

enum class Side { left, right };

DTRUN_AMX inline void store(const Pairs& pairs, __m512i* tile) {
  for (std::int64_t i = 0; i < kTile; ++i) _mm512_store_si512(tile + i, pairs.rows[i]);
}

/// What a later step reads.
DTRUN_AMX inline void fetch_later(const Lines& lines, std::int64_t first, std::int64_t k) {
  constexpr std::int64_t kRunAhead = 4 * kSide;
  if (lines.in_runs) {
    if (k + kRunAhead >= lines.inner) return;
    const std::int64_t end = std::min(first + kSide, lines.count);
    for (std::int64_t i = first; i < end; ++i) {
      __builtin_prefetch(lines.data + i * lines.distance + k + kRunAhead);
    }
    return;
  }
  const std::int64_t end = std::min(k + 2 * kSide, lines.inner);
  for (std::int64_t i = k + kSide; i < end; ++i) {
    __builtin_prefetch(lines.data + i * lines.distance + first);
  }
}

/// Both tiles of one step.
template <Side side>
DTRUN_AMX inline void pack_step(const Lines& lines, std::int64_t panel, std::int64_t step,
                                std::byte* packed) {
  constexpr bool kPairsInRows = side == Side::left;
  const std::int64_t first = panel * kSide, k = step * kSide;
  auto* const tiles = reinterpret_cast<__m512i*>(packed);
  fetch_later(lines, first, k);
  Pairs low, high;
  if (lines.in_runs && kPairsInRows) {
    for (std::int64_t i = 0; i < kSide; ++i) {
      _mm512_store_si512(tiles + i, load_run(lines, first + i, k));
    }
  } else if (lines.in_runs) {
    for (std::int64_t i = 0; i < kTile; ++i) low.rows[i] = load_run(lines, first + i, k);
    transpose(low);
    store(low, tiles);
    for (std::int64_t i = 0; i < kTile; ++i) high.rows[i] = load_run(lines, first + kTile + i, k);
    transpose(high);
    store(high, tiles + kTile);
  } else {
    for (std::int64_t i = 0; i < kTile; ++i) {
      const __m512i even = load_across(lines, first, k + 2 * i);
      const __m512i odd = load_across(lines, first, k + 2 * i + 1);
      low.rows[i] = _mm512_unpacklo_epi16(even, odd);
      high.rows[i] = _mm512_unpackhi_epi16(even, odd);
      if (kPairsInRows) continue;
      _mm512_store_si512(tiles + i, low.rows[i]);
      _mm512_store_si512(tiles + kTile + i, high.rows[i]);
    }
    if (!kPairsInRows) return;
    transpose(low);
    store(low, tiles);
    transpose(high);
    store(high, tiles + kTile);
  }
}

/// Where the steps of 32 lines begin, and the bytes from one to the next, between the rows of a
/// tile, and between its tiles.
struct Steps {
  const std::byte* data;
  std::int64_t step = kStepBytes;
  std::int64_t row = 64;
  std::int64_t half = kTileBytes;
};

/// One side, packed: chunk by chunk of k, and in each panel by panel. Or as it lies.
struct Operand {
  Lines lines;
  std::int64_t chunk_steps;
  std::byte* packed = nullptr;

  std::int64_t chunks() const { return (lines.steps() + chunk_steps - 1) / chunk_steps; }
  std::int64_t panel_bytes() const { return chunk_steps * kStepBytes; }
  std::int64_t bytes() const { return chunks() * lines.panels() * panel_bytes(); }
  std::byte* place(std::int64_t chunk, std::int64_t panel) const {
    return packed + (chunk * lines.panels() + panel) * panel_bytes();
  }
  Steps at(std::int64_t chunk, std::int64_t panel) const {
    if (packed != nullptr) return {place(chunk, panel)};
    const std::int64_t row = lines.distance * 2;
    const auto* const data = reinterpret_cast<const std::byte*>(lines.data);
    return {data + panel * kSide * row + chunk * chunk_steps * 64, 64, row, kTile * row};
  }
  /// Whole tiles that begin at cache lines. @pre on the left
  bool fits_as_it_lies() const {
    return lines.in_runs && lines.count % kSide == 0 && lines.inner % kSide == 0 &&
           lines.distance % kSide == 0 && reinterpret_cast<std::uintptr_t>(lines.data) % 64 == 0;
  }

  template <Side side>
  DTRUN_AMX void pack(std::byte* room) {
    packed = room;
    const auto pack_one = [this](std::int64_t panel, std::int64_t step) {
      pack_step<side>(lines, panel, step,
                      place(step / chunk_steps, panel) + step % chunk_steps * kStepBytes);
    };
    // What lies in runs is read run by run, else the same numbers of several panels together.
    const std::int64_t together = lines.in_runs ? 1 : 4;
    parallel_for(lines.panels(), together, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t step = 0; step < lines.steps(); ++step) {
        for (std::int64_t panel = begin; panel < end; ++panel) pack_one(panel, step);
      }
    });
  }
};

constexpr std::int64_t kSums = kSide * kSide;

/// What is left to do for the 32 x 32 sums of one chunk: to be kept, or added to those of the
/// chunks before, or rounded.
struct Finish {
  const float* fresh = nullptr;
  float* kept = nullptr;  ///< nullptr: there is one chunk only
  bool is_first = false;
  bool is_last = false;
  std::uint16_t* result = nullptr;
  const std::uint16_t* addend = nullptr;  ///< where this block begins in it
  std::uint32_t columns = 0;              ///< a bit for each
  std::int64_t rows = 0;
  std::int64_t next = kSide;  ///< row; kSide: done

  /// Asks for rows of the result, which will be written.
  void own_rows(std::int64_t first, std::int64_t count, std::int64_t distance) const {
    for (std::int64_t i = first; i < std::min(first + count, rows); ++i) {
      __builtin_prefetch(result + i * distance, 1, 3);
    }
  }
};

/// A range of memory on its way to the second cache.
struct Ahead {
  const std::byte* next = nullptr;
  const std::byte* end = nullptr;

  void fetch_three() {
    if (next >= end) return;
    _mm_prefetch(reinterpret_cast<const char*>(next), _MM_HINT_T1);
    _mm_prefetch(reinterpret_cast<const char*>(next + 64), _MM_HINT_T1);
    _mm_prefetch(reinterpret_cast<const char*>(next + 128), _MM_HINT_T1);
    next += 192;
  }
};

/// Panels first to last of each side.
struct Block {
  std::int64_t row, row_end, column, column_end;
};

/// One thread's work on a block.
class BlockProduct {
 public:
  BlockProduct(const Operand& left, const Operand& right, std::uint16_t* result,
               const ProductForm& form)
      : left_(left), right_(right), result_(result), form_(form) {}

  /// @param after the block that may be next
  DTRUN_AMX void run(const Block& block, const Block& after, float* kept) {
    const std::int64_t chunks = left_.chunks();
    const std::int64_t height = block.row_end - block.row;
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      const std::int64_t steps =
          std::min(left_.chunk_steps, left_.lines.steps() - chunk * left_.chunk_steps);
      const bool is_last = chunk == chunks - 1;
      look_ahead(is_last ? 0 : chunk + 1, is_last ? after : block);
      for (std::int64_t j = block.column; j < block.column_end; ++j) {
        for (std::int64_t i = block.row; i < block.row_end; ++i) {
          float* const fresh = fresh_[flip_ ^= 1];
          Finish next = finish_of(i, j);
          next.fresh = fresh;
          next.is_first = chunk == 0;
          next.is_last = is_last;
          if (chunks > 1) {
            next.kept = kept + ((j - block.column) * height + i - block.row) * kSums;
          }
          multiply(left_.at(chunk, i), right_.at(chunk, j), steps, next, fresh);
          finish_ = next;
        }
      }
    }
    finish_rows(kSide);
  }

 private:
  void look_ahead(std::int64_t chunk, const Block& block) {
    ahead_[0] = {};
    if (left_.packed != nullptr) {
      ahead_[0] = {left_.place(chunk, block.row), left_.place(chunk, block.row_end)};
    }
    ahead_[1] = {right_.place(chunk, block.column), right_.place(chunk, block.column_end)};
  }

  Finish finish_of(std::int64_t row_panel, std::int64_t column_panel) const {
    const std::int64_t row = row_panel * kSide, column = column_panel * kSide;
    Finish finish;
    finish.result = result_ + row * right_.lines.count + column;
    finish.columns = first_bits(right_.lines.count - column);
    finish.rows = std::min(kSide, left_.lines.count - row);
    finish.next = 0;
    if (form_.has_addend()) {
      finish.addend = static_cast<const std::uint16_t*>(form_.addend) + row * form_.row_stride +
                      column * form_.column_stride;
    }
    return finish;
  }

  /// The sums of 32 rows and 32 columns over some steps; meanwhile what was left of those before.
  DTRUN_AMX inline void multiply(Steps left, Steps right, std::int64_t steps, Finish& next,
                                 float* sums) {
    if (!by_tiles_) return multiply_by_vectors(left, right, steps, next, sums);
    constexpr int kSumStride = kSide * sizeof(float);
    // Spread over the steps: a burst of writes would hold up the tiles' loads.
    const std::int64_t rows = (kSide + steps - 1) / steps;
    const auto left_row = static_cast<std::size_t>(left.row);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (std::int64_t step = 0; step < steps; ++step) {
      _tile_loadd(4, left.data, left_row);
      _tile_loadd(6, right.data, 64);
      _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(7, right.data + kTileBytes, 64);
      _tile_dpbf16ps(1, 4, 7);
      _tile_loadd(5, left.data + left.half, left_row);
      if (finish_.next < kSide) finish_rows(rows);
      if (next.is_last) next.own_rows(step * rows, rows, right_.lines.count);
      ahead_[0].fetch_three();
      ahead_[1].fetch_three();
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
      left.data += left.step;
      right.data += right.step;
    }
    finish_rows(kSide);
    _tile_stored(0, sums, kSumStride);
    _tile_stored(1, sums + kTile, kSumStride);
    _tile_stored(2, sums + kTile * kSide, kSumStride);
    _tile_stored(3, sums + kTile * kSide + kTile, kSumStride);
  }

  /// Sums of one chunk that nothing is to be added to are rounded out of registers.
  DTRUN_AMX void multiply_by_vectors(Steps left, Steps right, std::int64_t steps, Finish& next,
                                     float* sums) {
    finish_rows(kSide);
    Bf16Steps product{left.data, left.step, left.row, right.data, steps, sums};
    if (next.is_first && next.is_last && form_.is_plain()) {
      product.rounded = {next.result, right_.lines.count, next.rows, next.columns};
      next.next = kSide;
    }
    multiply_steps(product);
  }

  DTRUN_AMX inline void finish_rows(std::int64_t most) {
    // In registers: what is stored below might be members, for all that the compiler knows.
    const Finish finish = finish_;
    const std::int64_t end = std::min(finish.next + most, kSide);
    finish_.next = end;
    for (std::int64_t i = finish.next; i < end; ++i) {
      __m512 low = _mm512_load_ps(finish.fresh + i * kSide);
      __m512 high = _mm512_load_ps(finish.fresh + i * kSide + kTile);
      if (!finish.is_first) {
        low = _mm512_add_ps(_mm512_load_ps(finish.kept + i * kSide), low);
        high = _mm512_add_ps(_mm512_load_ps(finish.kept + i * kSide + kTile), high);
      }
      if (!finish.is_last) {
        _mm512_store_ps(finish.kept + i * kSide, low);
        _mm512_store_ps(finish.kept + i * kSide + kTile, high);
      } else if (i < finish.rows) {
        if (!form_.is_plain()) shape_row(finish, i, low, high);
        const auto rounded = _mm512_cvtne2ps_pbh(high, low);
        _mm512_mask_storeu_epi16(finish.result + i * right_.lines.count, finish.columns,
                                 reinterpret_cast<__m512i>(rounded));
      }
    }
  }

  DTRUN_AMX static __m512 widened(__m256i halves) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
  }

  /// alpha * sums + beta * addend
  DTRUN_AMX void shape_row(const Finish& finish, std::int64_t row, __m512& low,
                           __m512& high) const {
    const __m512 alpha = _mm512_set1_ps(form_.alpha_as<float>());
    low = _mm512_mul_ps(low, alpha);
    high = _mm512_mul_ps(high, alpha);
    if (finish.addend == nullptr) return;
    const std::uint16_t* const from = finish.addend + row * form_.row_stride;
    const __m512i halves = form_.column_stride == 0
                               ? _mm512_set1_epi16(static_cast<short>(*from))
                               : _mm512_maskz_loadu_epi16(finish.columns, from);
    const __m512 beta = _mm512_set1_ps(form_.beta_as<float>());
    low = _mm512_add_ps(low, _mm512_mul_ps(widened(_mm512_castsi512_si256(halves)), beta));
    high = _mm512_add_ps(high, _mm512_mul_ps(widened(_mm512_extracti64x4_epi64(halves, 1)), beta));
  }

  const Operand& left_;
  const Operand& right_;
  std::uint16_t* const result_;
  const ProductForm& form_;
  const bool by_tiles_ = has_bf16_tiles();
  Finish finish_;
  Ahead ahead_[2];
  int flip_ = 0;
  alignas(64) float fresh_[2][kSums];
};

/// A side in equal parts of at most `most` panels.
std::int64_t part_of(std::int64_t panels, std::int64_t most) {
  const std::int64_t parts = (panels + most - 1) / most;
  return (panels + parts - 1) / parts;
}

/// One product. Chunks and blocks depend on the shape only.
class Product {
 public:
  Product(const MatrixView& a, const MatrixView& b, BFloat16* result, const ProductForm& form)
      : left_{left_lines(a), chunk_steps_of(a.columns)},
        right_{right_lines(b), chunk_steps_of(a.columns)},
        result_(&result->bits),
        form_(form) {
    // Panels of one chunk are long.
    std::int64_t rows = left_.chunks() == 1 ? 8 : kMostPanels;
    std::int64_t columns = rows;
    // So that there are blocks for several threads.
    while (blocks(rows, columns) < 8 && std::max(rows, columns) > 3) {
      (rows >= columns ? rows : columns) /= 2;
    }
    block_rows_ = part_of(left_.lines.panels(), rows);
    block_columns_ = part_of(right_.lines.panels(), columns);
  }

  void run() {
    const bool packs_left = left_.chunks() > 1 || !left_.fits_as_it_lies();
    Scratch room(at_least_huge(right_.bytes() + (packs_left ? left_.bytes() : 0)));
    right_.pack<Side::right>(room.data());
    if (packs_left) left_.pack<Side::left>(room.data() + right_.bytes());
    parallel_for(blocks(block_rows_, block_columns_), 1,
                 [this](std::int64_t begin, std::int64_t end) { run_blocks(begin, end); });
  }

 private:
  static constexpr std::int64_t kMostPanels = 12;

  static std::int64_t chunk_steps_of(std::int64_t inner) {
    constexpr std::int64_t kMostSteps = 32, kStepsOfTiles = 8, kStepsOfVectors = 16;
    const std::int64_t steps = (inner + kSide - 1) / kSide;
    if (steps <= kMostSteps) return steps;
    // Vectors are slower, so they can wait for the second cache.
    return part_of(steps, has_bf16_tiles() ? kStepsOfTiles : kStepsOfVectors);
  }
  std::int64_t blocks_across(std::int64_t columns) const {
    return (right_.lines.panels() + columns - 1) / columns;
  }
  std::int64_t blocks(std::int64_t rows, std::int64_t columns) const {
    return (left_.lines.panels() + rows - 1) / rows * blocks_across(columns);
  }

  Block block(std::int64_t i) const {
    const std::int64_t across = blocks_across(block_columns_);
    const std::int64_t row = i / across * block_rows_, column = i % across * block_columns_;
    return {row, std::min(row + block_rows_, left_.lines.panels()), column,
            std::min(column + block_columns_, right_.lines.panels())};
  }

  DTRUN_AMX void run_blocks(std::int64_t begin, std::int64_t end) const {
    alignas(64) static constexpr TileSizes kSizes;
    if (has_bf16_tiles()) _tile_loadconfig(&kSizes);
    BlockProduct product(left_, right_, result_, form_);
    const std::int64_t last = blocks(block_rows_, block_columns_) - 1;
    for (std::int64_t i = begin; i < end; ++i) {
      product.run(block(i), block(std::min(i + 1, last)),
                  left_.chunks() == 1 ? nullptr : kept_sums());
    }
    if (has_bf16_tiles()) _tile_release();
  }
  /// Huge pages, where it is worth them.
  static std::int64_t at_least_huge(std::int64_t bytes) {
    constexpr std::int64_t kHugeBytes = 1 << 20;
    return bytes > kHugeBytes / 16 ? std::max(bytes, kHugeBytes) : bytes;
  }
  /// This thread's, for the sums of a block between chunks: hot in the second cache.
  static float* kept_sums() {
    thread_local Scratch room(at_least_huge(kMostPanels * kMostPanels * kSums * 4));
    return reinterpret_cast<float*>(room.data());
  }

  Operand left_, right_;
  std::uint16_t* result_;
  const ProductForm& form_;
  std::int64_t block_rows_, block_columns_;
};

}  // namespace

void multiply_packed_bf16(const MatrixView& a, const MatrixView& b, BFloat16* result,
                          const ProductForm& form) {
  Product(a, b, result, form).run();
}

}  // namespace dtrun::tensors

#else

#include "dtrun/base/check.h"

namespace dtrun::tensors {

void multiply_packed_bf16(const MatrixView&, const MatrixView&, BFloat16*, const ProductForm&) {
  DT_CHECK(!"vectors of bf16");
}

}  // namespace dtrun::tensors

#endif
