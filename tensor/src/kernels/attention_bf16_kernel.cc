#include "kernels/attention_bf16_kernel.h"

#include "kernels/bf16_product.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#define DTRUN_BF16 [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]]

namespace dtrun::tensors {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();
constexpr float kLog2OfE = 1.44269504f;

/// 2^y for y <= 0, or nan; 0 below the least normal number, for denormal ones take the processor
/// long. A polynomial of degree 5 between -1/2 and 1/2 (least squares, weighted until the greatest
/// relative error was least: 9.2e-8), then the exponent.
DTRUN_BF16 inline __m512 power_of_two(__m512 y) {
  const __m512 least = _mm512_set1_ps(-126.0f);
  const __mmask16 normal = _mm512_cmp_ps_mask(y, least, _CMP_NLT_UQ);
  y = _mm512_max_ps(least, y);  // nan stays
  const __m512 whole = _mm512_roundscale_ps(y, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512 rest = _mm512_sub_ps(y, whole);
  __m512 power = _mm512_set1_ps(0x1.5bba24p-10f);
  power = _mm512_fmadd_ps(power, rest, _mm512_set1_ps(0x1.3cea88p-7f));
  power = _mm512_fmadd_ps(power, rest, _mm512_set1_ps(0x1.c6b752p-5f));
  power = _mm512_fmadd_ps(power, rest, _mm512_set1_ps(0x1.ebf9bcp-3f));
  power = _mm512_fmadd_ps(power, rest, _mm512_set1_ps(0x1.62e42ap-1f));
  power = _mm512_fmadd_ps(power, rest, _mm512_set1_ps(1.0f));
  return _mm512_maskz_scalef_ps(normal, power, whole);
}

DTRUN_BF16 float greatest_of(const float* row, std::int64_t columns) {
  __m512 even = _mm512_loadu_ps(row), odd = _mm512_loadu_ps(row + kTileLanes);
  for (std::int64_t i = kBf16Inner; i < columns; i += kBf16Inner) {
    even = _mm512_max_ps(_mm512_loadu_ps(row + i), even);
    odd = _mm512_max_ps(_mm512_loadu_ps(row + i + kTileLanes), odd);
  }
  return _mm512_reduce_max_ps(_mm512_max_ps(even, odd));
}

/// @return the sums of the weights, lane by lane
DTRUN_BF16 __m512 weigh_row(const float* row, std::int64_t columns, float greatest, float factor,
                            BFloat16* weights) {
  const __m512 most = _mm512_set1_ps(greatest), in_twos = _mm512_set1_ps(factor * kLog2OfE);
  __m512 even_sums = _mm512_setzero_ps(), odd_sums = _mm512_setzero_ps();
  for (std::int64_t i = 0; i < columns; i += kBf16Inner) {
    const __m512 even =
        power_of_two(_mm512_mul_ps(_mm512_sub_ps(_mm512_loadu_ps(row + i), most), in_twos));
    const __m512 odd = power_of_two(
        _mm512_mul_ps(_mm512_sub_ps(_mm512_loadu_ps(row + i + kTileLanes), most), in_twos));
    even_sums = _mm512_add_ps(even_sums, even);
    odd_sums = _mm512_add_ps(odd_sums, odd);
    _mm512_storeu_si512(weights + i, (__m512i)_mm512_cvtne2ps_pbh(odd, even));
  }
  return _mm512_add_ps(even_sums, odd_sums);
}

DTRUN_BF16 void weigh_rows_in_bf16(const ScoreTile<float>& scores, float factor,
                                   const SeenKeys<float>& seen, BFloat16* weights,
                                   std::int64_t weights_row) {
  for (std::int64_t r = 0; r < scores.rows; ++r) {
    const float* const row = scores.data + r * scores.row;
    BFloat16* const rounded = weights + r * weights_row;
    const float before = seen.greatest[r];
    float greatest = std::max(before, greatest_of(row, scores.columns));
    if (greatest == kNothing) {
      if (std::none_of(row, row + scores.columns, [](float score) { return score != score; })) {
        std::fill_n(rounded, scores.columns, BFloat16{0});
        continue;
      }
      greatest = std::numeric_limits<float>::quiet_NaN();
    }
    const __m512 sums = weigh_row(row, scores.columns, greatest, factor, rounded);
    float* const total = seen.total + r * kTileLanes;
    if (greatest == before) {
      _mm512_storeu_ps(total, _mm512_add_ps(_mm512_loadu_ps(total), sums));
      continue;
    }
    seen.greatest[r] = greatest;
    const float fading = before == kNothing ? 0.0f : std::exp(factor * (before - greatest));
    const __m512 fade = _mm512_set1_ps(fading);
    _mm512_storeu_ps(total, _mm512_fmadd_ps(_mm512_loadu_ps(total), fade, sums));
    float* const result = seen.results + r * seen.result_row;
    for (std::int64_t i = 0; i < seen.result_columns; i += kTileLanes)
      _mm512_storeu_ps(result + i, _mm512_mul_ps(_mm512_loadu_ps(result + i), fade));
  }
}

DTRUN_BF16 void pair_rows_of_bf16(BFloat16* result, const BFloat16* first, const BFloat16* second,
                                  std::int64_t count) {
  for (std::int64_t i = 0; i < count; i += kTileLanes) {
    const __m512i low = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)(first + i)));
    const __m512i high = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)(second + i)));
    _mm512_storeu_si512(result + 2 * i, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
  }
}

DTRUN_BF16 void split_pairs(BFloat16* first, BFloat16* second, const BFloat16* pairs,
                            std::int64_t count) {
  for (std::int64_t i = 0; i < count; i += kTileLanes) {
    const __m512i both = _mm512_loadu_si512(pairs + 2 * i);
    _mm256_storeu_si256((__m256i*)(first + i), _mm512_cvtepi32_epi16(both));
    _mm256_storeu_si256((__m256i*)(second + i), _mm512_cvtepi32_epi16(_mm512_srli_epi32(both, 16)));
  }
}

}  // namespace

void split_bf16(BFloat16* first, BFloat16* second, const BFloat16* pairs, std::int64_t count) {
  split_pairs(first, second, pairs, count);
}

void pair_bf16(BFloat16* result, const BFloat16* first, const BFloat16* second,
               std::int64_t count) {
  pair_rows_of_bf16(result, first, second, count);
}

void weigh_in_bf16(const ScoreTile<float>& scores, float factor, const SeenKeys<float>& seen,
                   BFloat16* weights, std::int64_t weights_row) {
  weigh_rows_in_bf16(scores, factor, seen, weights, weights_row);
}

}  // namespace dtrun::tensors

#else

#include "dtrun/base/check.h"

namespace dtrun::tensors {

void pair_bf16(BFloat16*, const BFloat16*, const BFloat16*, std::int64_t) {
  DT_CHECK(has_bf16_vectors());
}
void split_bf16(BFloat16*, BFloat16*, const BFloat16*, std::int64_t) {
  DT_CHECK(has_bf16_vectors());
}
void weigh_in_bf16(const ScoreTile<float>&, float, const SeenKeys<float>&, BFloat16*,
                   std::int64_t) {
  DT_CHECK(has_bf16_vectors());
}

}  // namespace dtrun::tensors

#endif
