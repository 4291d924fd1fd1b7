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

}  // namespace

bool has_bf16_tiles() {
  static const bool may = may_use_tiles();
  return may;
}

__attribute__((target("amx-tile,amx-bf16"))) void multiply_bf16(const Bf16Product& product) {
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

}  // namespace dtrun::tensors

#else

namespace dtrun::tensors {

bool has_bf16_tiles() {
  return false;
}
void multiply_bf16(const Bf16Product&) {
  DT_CHECK(!"tiles of bf16");
}

}  // namespace dtrun::tensors
#endif
