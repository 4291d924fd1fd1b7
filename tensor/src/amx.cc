// A step multiplies 32 rows by 32 columns over 32 of k, in four tiles of sums. Both sides are
// packed into panels of what a step reads: 32 rows or columns, 2 KiB for each 32 of k, zeros beyond
// the edges. On the right, pairs of k lie together (VNNI).
#include "amx.h"

#if defined(__x86_64__)

#include <cpuid.h>
#include <immintrin.h>

#include <algorithm>

#include "kernels/bf16_product.h"
#include "loops/scratch.h"
#include "loops/thread_pool.h"

#define DTRUN_AMX [[gnu::target("amx-tile,amx-bf16,avx512bw,avx512vl,avx512bf16")]]

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
  std::int64_t panel_bytes() const { return steps() * kStepBytes; }
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

/// Row i holds line i's numbers from k on.
DTRUN_AMX inline void load_runs(const Lines& lines, std::int64_t first, std::int64_t k,
                                Pairs& pairs) {
  const std::uint32_t mask = first_bits(lines.inner - k);
  for (std::int64_t i = 0; i < kTile; ++i) {
    pairs.rows[i] =
        first + i < lines.count
            ? _mm512_maskz_loadu_epi16(mask, lines.data + (first + i) * lines.distance + k)
            : _mm512_setzero_si512();
  }
}

DTRUN_AMX inline __m512i load_across(const Lines& lines, std::int64_t first, std::int64_t k,
                                     __mmask16 mask) {
  if (k >= lines.inner) return _mm512_setzero_si512();
  return _mm512_cvtepu16_epi32(
      _mm256_maskz_loadu_epi16(mask, lines.data + k * lines.distance + first));
}

/// Row r holds the pairs (k + 2r, k + 2r + 1) of 16 lines.
DTRUN_AMX inline void load_across(const Lines& lines, std::int64_t first, std::int64_t k,
                                  Pairs& pairs) {
  const auto mask = static_cast<__mmask16>(first_bits(std::min(lines.count - first, kTile)));
  for (std::int64_t r = 0; r < kTile; ++r) {
    const __m512i low = load_across(lines, first, k + 2 * r, mask);
    const __m512i high = load_across(lines, first, k + 2 * r + 1, mask);
    pairs.rows[r] = _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
  }
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

template <Side side>
DTRUN_AMX void pack_panel(const Lines& lines, std::int64_t panel, std::byte* packed) {
  for (std::int64_t step = 0; step < lines.steps(); ++step) {
    for (std::int64_t half = 0; half < 2; ++half) {
      const std::int64_t first = panel * kSide + half * kTile;
      Pairs pairs;
      if (lines.in_runs) {
        load_runs(lines, first, step * kSide, pairs);
      } else {
        load_across(lines, std::min(first, lines.count), step * kSide, pairs);
      }
      if (lines.in_runs == (side == Side::right)) transpose(pairs);
      auto* const tile = reinterpret_cast<__m512i*>(packed + step * kStepBytes + half * kTileBytes);
      for (std::int64_t i = 0; i < kTile; ++i) _mm512_store_si512(tile + i, pairs.rows[i]);
    }
  }
}

/// How many steps of one panel stay in the first cache.
constexpr std::int64_t kStepsAtOnce = 16;
constexpr std::int64_t kSums = kSide * kSide;

/// Adds the products of 32 rows and 32 columns to `sums`.
DTRUN_AMX inline void multiply_panels(const std::byte* left, const std::byte* right,
                                      std::int64_t steps, float* sums) {
  constexpr int kStride = 64;
  constexpr int kSumStride = kSide * sizeof(float);
  _tile_loadd(0, sums, kSumStride);
  _tile_loadd(1, sums + kTile, kSumStride);
  _tile_loadd(2, sums + kTile * kSide, kSumStride);
  _tile_loadd(3, sums + kTile * kSide + kTile, kSumStride);
  for (std::int64_t step = 0; step < steps; ++step) {
    _tile_loadd(4, left + step * kStepBytes, kStride);
    _tile_loadd(6, right + step * kStepBytes, kStride);
    _tile_loadd(5, left + step * kStepBytes + kTileBytes, kStride);
    _tile_loadd(7, right + step * kStepBytes + kTileBytes, kStride);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, sums, kSumStride);
  _tile_stored(1, sums + kTile, kSumStride);
  _tile_stored(2, sums + kTile * kSide, kSumStride);
  _tile_stored(3, sums + kTile * kSide + kTile, kSumStride);
}

DTRUN_AMX inline void round_sums(const float* sums, std::int64_t rows, std::int64_t columns,
                                 std::uint16_t* result, std::int64_t distance) {
  const std::uint32_t mask = first_bits(columns);
  for (std::int64_t i = 0; i < rows; ++i) {
    const auto rounded = _mm512_cvtne2ps_pbh(_mm512_load_ps(sums + i * kSide + kTile),
                                             _mm512_load_ps(sums + i * kSide));
    _mm512_mask_storeu_epi16(result + i * distance, mask, reinterpret_cast<__m512i>(rounded));
  }
}

/// One product. A chunk of it is a block of rows and columns; the blocks depend on the shape only.
class Product {
 public:
  Product(const MatrixView& a, const MatrixView& b, BFloat16* result)
      : left_(left_lines(a)), right_(right_lines(b)), result_(&result->bits) {}

  void run() {
    // Columns that several blocks of rows read are packed once, else where they are used.
    const bool shared = row_blocks() > 1;
    Scratch room(shared ? right_.panels() * right_.panel_bytes() : 0);
    if (shared) {
      packed_ = room.data();
      parallel_for(right_.panels(), 4, [this](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          pack_panel<Side::right>(right_, i, packed_ + i * right_.panel_bytes());
        }
      });
    }
    parallel_for(row_blocks() * column_blocks(), 1, [this](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        run_block(i / column_blocks(), i % column_blocks());
    });
  }

 private:
  static constexpr std::int64_t kRowPanels = 8;
  /// The second cache holds those of the left, and each panel of the right comes from the third.
  std::int64_t row_panels() const { return left_.steps() <= 64 ? kRowPanels : kRowPanels / 2; }
  std::int64_t column_panels() const {
    return packed_ == nullptr ? 4 : right_.panels() > 16 ? 16 : 8;
  }
  std::int64_t row_blocks() const { return (left_.panels() + row_panels() - 1) / row_panels(); }
  std::int64_t column_blocks() const {
    return (right_.panels() + column_panels() - 1) / column_panels();
  }

  DTRUN_AMX void run_block(std::int64_t row_block, std::int64_t column_block) {
    const std::int64_t first = row_block * row_panels();
    const std::int64_t last = std::min(first + row_panels(), left_.panels());
    const std::int64_t end = std::min((column_block + 1) * column_panels(), right_.panels());
    Scratch left_room((last - first) * left_.panel_bytes());
    Scratch right_room(packed_ ? 0 : right_.panel_bytes());
    for (std::int64_t i = first; i < last; ++i) {
      pack_panel<Side::left>(left_, i, left_room.data() + (i - first) * left_.panel_bytes());
    }
    alignas(64) float sums[kRowPanels * kSums];
    alignas(64) static constexpr TileSizes kSizes;
    _tile_loadconfig(&kSizes);
    for (std::int64_t j = column_block * column_panels(); j < end; ++j) {
      const std::byte* right = packed_ + j * right_.panel_bytes();
      if (!packed_) {
        pack_panel<Side::right>(right_, j, right_room.data());
        right = right_room.data();
      }
      std::fill_n(sums, (last - first) * kSums, 0.0f);
      for (std::int64_t step = 0; step < left_.steps(); step += kStepsAtOnce) {
        const std::int64_t steps = std::min(kStepsAtOnce, left_.steps() - step);
        for (std::int64_t i = 0; i < last - first; ++i) {
          multiply_panels(left_room.data() + i * left_.panel_bytes() + step * kStepBytes,
                          right + step * kStepBytes, steps, sums + i * kSums);
        }
      }
      for (std::int64_t i = first; i < last; ++i) {
        round_sums(sums + (i - first) * kSums, std::min(kSide, left_.count - i * kSide),
                   right_.count - j * kSide, result_ + i * kSide * right_.count + j * kSide,
                   right_.count);
      }
    }
    _tile_release();
  }

  Lines left_, right_;
  std::uint16_t* result_;
  std::byte* packed_ = nullptr;  ///< all panels of the right matrix
};

/// What packing and rounding take besides the tiles.
bool has_avx512() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(1, 0, &a, &b, &c, &d) || !(c >> 27 & 1)) return false;
  std::uint32_t enabled = 0, unused = 0;
  asm volatile("xgetbv" : "=a"(enabled), "=d"(unused) : "c"(0));
  constexpr std::uint32_t kSaved = 0xe6;  // by the kernel
  if ((enabled & kSaved) != kSaved || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  constexpr std::uint32_t kAvx512 = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31;  // F DQ BW VL
  if ((b & kAvx512) != kAvx512) return false;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 5 & 1);  // AVX512_BF16
}

}  // namespace

bool has_amx() {
  static const bool has = has_avx512() && has_bf16_tiles();
  return has;
}

void multiply_in_amx(const MatrixView& a, const MatrixView& b, BFloat16* result) {
  Product(a, b, result).run();
}

}  // namespace dtrun::tensors

#else

#include "dtrun/base/check.h"

namespace dtrun::tensors {

bool has_amx() {
  return false;
}
void multiply_in_amx(const MatrixView&, const MatrixView&, BFloat16*) {
  DT_CHECK(!"AMX on another CPU than x86");
}

}  // namespace dtrun::tensors

#endif
