#include "kernels/bf16_product.h"

#include "dtrun/base/check.h"
#include "multiversion.h"

#include <cstring>

namespace dtrun::tensors {

DTRUN_MULTIVERSION void pair_rows(BFloat16* result, const float* first, const float* second,
                                  std::int64_t count) {
  DTRUN_INDEPENDENT_ROUNDS
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t both = std::uint32_t{to_bfloat16(second[i]).bits} << 16 |
                               std::uint32_t{to_bfloat16(first[i]).bits};
    std::memcpy(result + 2 * i, &both, sizeof both);
  }
}

}  // namespace dtrun::tensors

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace dtrun::tensors {
namespace {

bool may_use_tiles() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  constexpr unsigned kBf16 = 1U << 22, kTiles = 1U << 24;
  if ((d & kBf16) == 0 || (d & kTiles) == 0) return false;
  // Their 8 KiB of registers are saved only for processes that ask (Linux 5.16).
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

constexpr std::int64_t kSide = 16;

/// Two groups of rows by two of columns: four tiles of sums, two of each side. The last group of an
/// odd number is computed twice, into the same place.
struct Block {
  const Bf16Product& p;
  std::int64_t row, next_row, column, next_column;
};

__attribute__((target("amx-tile,amx-bf16"))) void multiply_block(const Block& block) {
  const Bf16Product& p = block.p;
  float* const result[] = {p.result + block.row * p.result_row + block.column,
                           p.result + block.row * p.result_row + block.next_column,
                           p.result + block.next_row * p.result_row + block.column,
                           p.result + block.next_row * p.result_row + block.next_column};
  const auto result_step = static_cast<std::size_t>(4 * p.result_row);
  const auto left_step = static_cast<std::size_t>(2 * p.left_row);
  const auto right_step = static_cast<std::size_t>(2 * p.right_row);
  if (p.sum == TileSum::added) {
    _tile_loadd(0, result[0], result_step);
    _tile_loadd(1, result[1], result_step);
    _tile_loadd(2, result[2], result_step);
    _tile_loadd(3, result[3], result_step);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (std::int64_t k = 0; k < p.inner; k += kBf16Inner) {
    const BFloat16* const right = p.right + k / 2 * p.right_row;
    _tile_loadd(4, p.left + block.row * p.left_row + k, left_step);
    _tile_loadd(6, right + 2 * block.column, right_step);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, right + 2 * block.next_column, right_step);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, p.left + block.next_row * p.left_row + k, left_step);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, result[0], result_step);
  _tile_stored(1, result[1], result_step);
  _tile_stored(2, result[2], result_step);
  _tile_stored(3, result[3], result_step);
}

__attribute__((target("amx-tile,amx-bf16"))) void multiply_by_tiles(const Bf16Product& product) {
  const TileSizes sizes;
  _tile_loadconfig(&sizes);
  for (std::int64_t column = 0; column < product.columns; column += 2 * kSide) {
    const bool two_columns = column + kSide < product.columns;
    for (std::int64_t row = 0; row < product.rows; row += 2 * kSide) {
      const bool two_rows = row + kSide < product.rows;
      multiply_block({product, row, two_rows ? row + kSide : row, column,
                      two_columns ? column + kSide : column});
    }
  }
  _tile_release();
}

#define DTRUN_BF16_VECTORS __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))

DTRUN_BF16_VECTORS __attribute__((always_inline)) inline __m512bh pairs_at(const void* from) {
  return (__m512bh)_mm512_loadu_si512(from);
}
/// One pair in all places.
DTRUN_BF16_VECTORS __attribute__((always_inline)) inline __m512bh one_pair(const void* from) {
  int pair = 0;
  std::memcpy(&pair, from, sizeof pair);
  return (__m512bh)_mm512_set1_epi32(pair);
}

/// The sums of a few rows and some vectors of columns, which stay in registers.
template <int kRows, int kVectors>
DTRUN_BF16_VECTORS inline void multiply_group(const Bf16Product& p, std::int64_t row,
                                              std::int64_t column) {
  __m512 sums[kRows][kVectors];
  float* const result = p.result + row * p.result_row + column;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      sums[r][v] = p.sum == TileSum::added ? _mm512_loadu_ps(result + r * p.result_row + v * kSide)
                                           : _mm512_setzero_ps();
    }
  }
  const BFloat16* left = p.left + row * p.left_row;
  const BFloat16* right = p.right + 2 * column;
  for (std::int64_t k = 0; k < p.inner; k += 2) {
    __m512bh columns[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) columns[v] = pairs_at(right + v * 2 * kSide);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const __m512bh factors = one_pair(left + r * p.left_row);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        sums[r][v] = _mm512_dpbf16_ps(sums[r][v], factors, columns[v]);
      }
    }
    left += 2;
    right += p.right_row;
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      _mm512_storeu_ps(result + r * p.result_row + v * kSide, sums[r][v]);
    }
  }
}

template <int kVectors>
DTRUN_BF16_VECTORS inline void multiply_strip(const Bf16Product& p, std::int64_t column) {
  std::int64_t sixes = p.rows / 6;
  if (p.rows % 6 == 2) --sixes;  // rows come in groups of 16: the rest is 0, 2 or 4
  std::int64_t row = 0;
  for (; row < 6 * sixes; row += 6) multiply_group<6, kVectors>(p, row, column);
  for (; row < p.rows; row += 4) multiply_group<4, kVectors>(p, row, column);
}

DTRUN_BF16_VECTORS void multiply_by_vectors(const Bf16Product& product) {
  std::int64_t column = 0;
  for (; column + 4 * kSide <= product.columns; column += 4 * kSide) {
    multiply_strip<4>(product, column);
  }
  for (; column < product.columns; column += kSide) multiply_strip<1>(product, column);
}

constexpr int kRowsOfSteps = 8;

DTRUN_BF16_VECTORS inline void multiply_rows_of_steps(const Bf16Steps& p, std::int64_t row) {
  constexpr std::int64_t kTileBytes = 1024;
  __m512 sums[kRowsOfSteps][2];
#pragma GCC unroll 8
  for (int r = 0; r < kRowsOfSteps; ++r) sums[r][0] = sums[r][1] = _mm512_setzero_ps();
  const std::byte* left = p.left + row * p.left_row;
  const std::byte* right = p.right;
  for (std::int64_t step = 0; step < p.steps; ++step) {
    for (std::int64_t pair = 0; pair < kSide; ++pair) {
      const __m512bh low = pairs_at(right + pair * 64);
      const __m512bh high = pairs_at(right + kTileBytes + pair * 64);
#pragma GCC unroll 8
      for (int r = 0; r < kRowsOfSteps; ++r) {
        const __m512bh factors = one_pair(left + r * p.left_row + pair * 4);
        sums[r][0] = _mm512_dpbf16_ps(sums[r][0], factors, low);
        sums[r][1] = _mm512_dpbf16_ps(sums[r][1], factors, high);
      }
    }
    left += p.left_step;
    right += 2 * kTileBytes;
  }
  if (p.rounded.result != nullptr) {
    const Bf16Corner& to = p.rounded;
#pragma GCC unroll 8
    for (int r = 0; r < kRowsOfSteps; ++r) {
      if (row + r >= to.rows) return;
      _mm512_mask_storeu_epi16(to.result + (row + r) * to.row, to.columns,
                               (__m512i)_mm512_cvtne2ps_pbh(sums[r][1], sums[r][0]));
    }
    return;
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRowsOfSteps; ++r) {
    _mm512_storeu_ps(p.sums + (row + r) * 2 * kSide, sums[r][0]);
    _mm512_storeu_ps(p.sums + (row + r) * 2 * kSide + kSide, sums[r][1]);
  }
}

/// The sums of 8 rows and two vectors stay in registers. Those of 12 would, too, but so many rows
/// have more addresses than registers: they took 3 % longer.
DTRUN_BF16_VECTORS void multiply_steps_by_vectors(const Bf16Steps& product) {
  for (std::int64_t row = 0; row < 2 * kSide; row += kRowsOfSteps)
    multiply_rows_of_steps(product, row);
}

/// What rounding and the products take.
bool may_use_bf16_vectors() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kSavesRegisters = 1U << 27;
  if (__get_cpuid_count(1, 0, &a, &b, &c, &d) == 0 || (c & kSavesRegisters) == 0) return false;
  std::uint32_t enabled = 0, unused = 0;
  asm volatile("xgetbv" : "=a"(enabled), "=d"(unused) : "c"(0));
  constexpr std::uint32_t kSaved = 0xe6;  // by the kernel
  if ((enabled & kSaved) != kSaved || __get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  constexpr std::uint32_t kAvx512 = 1U << 16 | 1U << 17 | 1U << 30 | 1U << 31;  // F DQ BW VL
  if ((b & kAvx512) != kAvx512) return false;
  constexpr unsigned kBf16 = 1U << 5;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & kBf16) != 0;
}

}  // namespace

bool has_bf16_tiles() {
  static const bool may = has_bf16_vectors() && may_use_tiles();
  return may;
}
bool has_bf16_vectors() {
  static const bool may = may_use_bf16_vectors();
  return may;
}

void multiply_steps(const Bf16Steps& product) {
  multiply_steps_by_vectors(product);
}

void multiply_bf16(const Bf16Product& product) {
  if (has_bf16_tiles()) {
    multiply_by_tiles(product);
  } else {
    multiply_by_vectors(product);
  }
}

}  // namespace dtrun::tensors

#else

namespace dtrun::tensors {

bool has_bf16_tiles() {
  return false;
}
bool has_bf16_vectors() {
  return false;
}
void multiply_steps(const Bf16Steps&) {
  DT_CHECK(!"vectors of bf16");
}
void multiply_bf16(const Bf16Product&) {
  DT_CHECK(!"tiles or vectors of bf16");
}

}  // namespace dtrun::tensors
#endif
