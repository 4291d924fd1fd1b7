#include "kernels/one_query_kernel.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/tile_product.h"
#include "multiversion.h"

namespace dtrun::tensors {
namespace {

typedef float Lanes __attribute__((vector_size(kTileLanes * sizeof(float))));
typedef std::uint32_t Words __attribute__((vector_size(kTileLanes * sizeof(std::uint32_t))));
static_assert(kOneQueryGroup == 2 * kTileLanes);
static_assert(std::endian::native == std::endian::little, "the first of two is the low half");

/// Numbers 0, 2, 4... of a group, and 1, 3, 5...
struct EvenAndOdd {
  Lanes even, odd;
};

DTRUN_INLINED void load(EvenAndOdd& group, const float* from) {
  Lanes first, second;
  std::memcpy(&first, from, sizeof first);
  std::memcpy(&second, from + kTileLanes, sizeof second);
  group.even = __builtin_shufflevector(first, second, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24,
                                       26, 28, 30);
  group.odd = __builtin_shufflevector(first, second, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25,
                                      27, 29, 31);
}
DTRUN_INLINED void store(float* to, const EvenAndOdd& group) {
  const Lanes first = __builtin_shufflevector(group.even, group.odd, 0, 16, 1, 17, 2, 18, 3, 19, 4,
                                              20, 5, 21, 6, 22, 7, 23);
  const Lanes second = __builtin_shufflevector(group.even, group.odd, 8, 24, 9, 25, 10, 26, 11, 27,
                                               12, 28, 13, 29, 14, 30, 15, 31);
  std::memcpy(to, &first, sizeof first);
  std::memcpy(to + kTileLanes, &second, sizeof second);
}
/// A word has two numbers, of which each is a float where the other is shifted or masked away. A
/// group is one line of memory: that of the row `ahead` is asked for, some 4 KiB on.
DTRUN_INLINED void load(EvenAndOdd& group, const BFloat16* from, std::int64_t ahead) {
  __builtin_prefetch(from + ahead);
  Words words;
  std::memcpy(&words, from, sizeof words);
  group.even = (Lanes)(words << 16);
  group.odd = (Lanes)(words & 0xffff0000u);
}
constexpr std::int64_t kBytesAhead = 4096;
DTRUN_INLINED std::int64_t rows_ahead(const RowsOfBf16& rows) {
  return std::max<std::int64_t>(1, kBytesAhead / (2 * rows.numbers)) * rows.step;
}

/// Of four keys: the sum of every fourth lane, key by key, four times.
DTRUN_INLINED void score_four(Lanes& sums, const float* query, const RowsOfBf16& keys,
                              const std::int64_t* rows, std::int64_t ahead) {
  Lanes of[4] = {};
  for (std::int64_t i = 0; i < keys.numbers; i += kOneQueryGroup) {
    EvenAndOdd asked;
    load(asked, query + i);
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      EvenAndOdd numbers;
      load(numbers, keys.data + rows[k] + i, ahead);
      of[k] += asked.even * numbers.even;
      of[k] += asked.odd * numbers.odd;
    }
  }
  Lanes twos[2];
#pragma GCC unroll 2
  for (int k = 0; k < 2; ++k) {
    twos[k] = __builtin_shufflevector(of[k], of[k + 2], 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25,
                                      12, 28, 13, 29) +
              __builtin_shufflevector(of[k], of[k + 2], 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27,
                                      14, 30, 15, 31);
  }
  sums = __builtin_shufflevector(twos[0], twos[1], 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28,
                                 13, 29) +
         __builtin_shufflevector(twos[0], twos[1], 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14,
                                 30, 15, 31);
}

DTRUN_MULTIVERSION void score_all(float* scores, const float* query, const RowsOfBf16& keys) {
  const std::int64_t ahead = rows_ahead(keys);
  for (std::int64_t first = 0; first < keys.count; first += kTileLanes) {
    Lanes fours[4];
#pragma GCC unroll 4
    for (int four = 0; four < 4; ++four) {
      std::int64_t rows[4];
      for (int k = 0; k < 4; ++k)
        rows[k] = std::min(first + 4 * four + k, keys.count - 1) * keys.step;
      score_four(fours[four], query, keys, rows, ahead);
    }
    // Quarters of the lanes are left to be summed.
    Lanes halves[2];
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const Lanes a = fours[2 * half], b = fours[2 * half + 1];
      halves[half] =
          __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
          __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
    }
    const Lanes all = __builtin_shufflevector(halves[0], halves[1], 0, 1, 2, 3, 8, 9, 10, 11, 16,
                                              17, 18, 19, 24, 25, 26, 27) +
                      __builtin_shufflevector(halves[0], halves[1], 4, 5, 6, 7, 12, 13, 14, 15, 20,
                                              21, 22, 23, 28, 29, 30, 31);
    std::memcpy(scores + first, &all, sizeof all);
  }
}

/// Two rows at a time, whose sums do not wait for each other.
template <int kGroups>
DTRUN_INLINED void add_strip(float* result, const float* weights, const RowsOfBf16& values,
                             std::int64_t column, std::int64_t ahead) {
  EvenAndOdd sums[2][kGroups] = {};
#pragma GCC unroll 2
  for (int group = 0; group < kGroups; ++group) {
    load(sums[0][group], result + column + group * kOneQueryGroup);
  }
  const BFloat16* row = values.data + column;
  const auto add = [&](int to, float weight) __attribute__((always_inline)) {
#pragma GCC unroll 2
    for (int group = 0; group < kGroups; ++group) {
      EvenAndOdd numbers;
      load(numbers, row + group * kOneQueryGroup, ahead);
      sums[to][group].even += weight * numbers.even;
      sums[to][group].odd += weight * numbers.odd;
    }
    row += values.step;
  };
  std::int64_t i = 0;
  for (; i + 2 <= values.count; i += 2) {
    add(0, weights[i]);
    add(1, weights[i + 1]);
  }
  if (i < values.count) add(0, weights[i]);
#pragma GCC unroll 2
  for (int group = 0; group < kGroups; ++group) {
    sums[0][group].even += sums[1][group].even;
    sums[0][group].odd += sums[1][group].odd;
    store(result + column + group * kOneQueryGroup, sums[0][group]);
  }
}

DTRUN_MULTIVERSION void add_all(float* result, const float* weights, const RowsOfBf16& values) {
  const std::int64_t ahead = rows_ahead(values);
  std::int64_t column = 0;
  for (; column + 2 * kOneQueryGroup <= values.numbers; column += 2 * kOneQueryGroup)
    add_strip<2>(result, weights, values, column, ahead);
  if (column < values.numbers) add_strip<1>(result, weights, values, column, ahead);
}

}  // namespace

void score_keys(float* scores, const float* query, const RowsOfBf16& keys) {
  score_all(scores, query, keys);
}

void add_weighted(float* result, const float* weights, const RowsOfBf16& values) {
  add_all(result, weights, values);
}

}  // namespace dtrun::tensors
