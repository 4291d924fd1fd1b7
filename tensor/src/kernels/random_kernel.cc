#include "kernels/random_kernel.h"

#include <algorithm>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "formulas/random.h"
#include "kernels/near_normal.h"
#include "kernels/vector_registers.h"
#include "multiversion.h"
#include "normal_number.h"

namespace dtrun::tensors {

/// At once: a loop that the compiler does not unroll, for then it makes vectors of it.
constexpr std::int64_t kMostPairs = kMostNearPairs;

// Not in an anonymous namespace: the loader chooses by name.
DTRUN_MULTIVERSION void philox_lanes(std::uint64_t* target, RandomKey key, std::uint64_t first_pair,
                                     std::int64_t pairs) {
  std::uint32_t word0[kMostPairs], word1[kMostPairs], word2[kMostPairs], word3[kMostPairs];
  for (std::int64_t l = 0; l < pairs; ++l) {
    const std::uint64_t pair = first_pair + static_cast<std::uint64_t>(l);
    word0[l] = static_cast<std::uint32_t>(pair);
    word1[l] = static_cast<std::uint32_t>(pair >> 32);
    word2[l] = static_cast<std::uint32_t>(key.stream);
    word3[l] = static_cast<std::uint32_t>(key.stream >> 32);
  }
  auto key0 = static_cast<std::uint32_t>(key.seed);
  auto key1 = static_cast<std::uint32_t>(key.seed >> 32);
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    DTRUN_INDEPENDENT_ROUNDS
    for (std::int64_t l = 0; l < pairs; ++l) {
      const std::uint64_t product0 = std::uint64_t{0xD2511F53} * word0[l];
      const std::uint64_t product1 = std::uint64_t{0xCD9E8D57} * word2[l];
      word0[l] = static_cast<std::uint32_t>(product1 >> 32) ^ word1[l] ^ key0;
      word1[l] = static_cast<std::uint32_t>(product1);
      word2[l] = static_cast<std::uint32_t>(product0 >> 32) ^ word3[l] ^ key1;
      word3[l] = static_cast<std::uint32_t>(product0);
    }
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  for (std::int64_t l = 0; l < pairs; ++l) {
    target[2 * l] = std::uint64_t{word1[l]} << 32 | word0[l];
    target[2 * l + 1] = std::uint64_t{word3[l]} << 32 | word2[l];
  }
}

#if defined(__x86_64__)
// The same with the words in registers through all rounds. Each has 64 bits of a vector, the upper
// ones of which nobody reads: products are of the lower halves. A round waits for the one before,
// so two vectors go through them side by side. A macro, for g++ inlines nothing that names a
// processor into a template that does not. MULTIPLY(a, b): of the lower halves; FIRST and SECOND:
// the places of two vectors' numbers, taken in turns.
#define DTRUN_PHILOX(NAME, PROCESSOR, PAIRS, MULTIPLY, FIRST, SECOND)                 \
  PROCESSOR void NAME(std::uint64_t* target, RandomKey key, std::uint64_t first_pair, \
                      std::int64_t pairs) {                                           \
    typedef std::uint64_t Vector __attribute__((vector_size(8 * PAIRS)));             \
    Vector places;                                                                    \
    for (int i = 0; i < PAIRS; ++i) places[i] = static_cast<std::uint64_t>(i);        \
    const Vector factor0 = Vector{} + 0xD2511F53, factor1 = Vector{} + 0xCD9E8D57;    \
    for (std::int64_t l = 0; l < pairs; l += 2 * PAIRS) {                             \
      Vector word0[2], word1[2], word2[2], word3[2];                                  \
      _Pragma("GCC unroll 2") for (int v = 0; v < 2; ++v) {                           \
        word0[v] = first_pair + static_cast<std::uint64_t>(l + v * PAIRS) + places;   \
        word1[v] = word0[v] >> 32;                                                    \
        word2[v] = key.stream + Vector{};                                             \
        word3[v] = word2[v] >> 32;                                                    \
      }                                                                               \
      auto key0 = static_cast<std::uint32_t>(key.seed);                               \
      auto key1 = static_cast<std::uint32_t>(key.seed >> 32);                         \
      _Pragma("GCC unroll 10") for (int round = 0; round < 10; ++round) {             \
        _Pragma("GCC unroll 2") for (int v = 0; v < 2; ++v) {                         \
          const Vector product0 = (Vector)MULTIPLY(word0[v], factor0);                \
          const Vector product1 = (Vector)MULTIPLY(word2[v], factor1);                \
          word0[v] = (product1 >> 32) ^ (word1[v] ^ std::uint64_t{key0});             \
          word1[v] = product1;                                                        \
          word2[v] = (product0 >> 32) ^ (word3[v] ^ std::uint64_t{key1});             \
          word3[v] = product0;                                                        \
        }                                                                             \
        key0 += 0x9E3779B9;                                                           \
        key1 += 0xBB67AE85;                                                           \
      }                                                                               \
      _Pragma("GCC unroll 2") for (int v = 0; v < 2; ++v) {                           \
        const Vector even = (word1[v] << 32) | (word0[v] & 0xffffffff);               \
        const Vector odd = (word3[v] << 32) | (word2[v] & 0xffffffff);                \
        const Vector first = __builtin_shufflevector(even, odd, FIRST);               \
        const Vector second = __builtin_shufflevector(even, odd, SECOND);             \
        std::memcpy(target + 2 * (l + v * PAIRS), &first, sizeof first);              \
        std::memcpy(target + 2 * (l + v * PAIRS) + PAIRS, &second, sizeof second);    \
      }                                                                               \
    }                                                                                 \
  }

#define DTRUN_PLACES(...) __VA_ARGS__
// Without a mask g++ 12 warns of its own header.
#define DTRUN_MULTIPLY_512(a, b) _mm512_maskz_mul_epu32(0xff, (__m512i)(a), (__m512i)(b))
#define DTRUN_MULTIPLY_256(a, b) _mm256_mul_epu32((__m256i)(a), (__m256i)(b))
DTRUN_PHILOX(philox_avx512, DTRUN_WITH_AVX512, 8, DTRUN_MULTIPLY_512,
             DTRUN_PLACES(0, 8, 1, 9, 2, 10, 3, 11), DTRUN_PLACES(4, 12, 5, 13, 6, 14, 7, 15))
DTRUN_PHILOX(philox_avx2, DTRUN_WITH_AVX2, 4, DTRUN_MULTIPLY_256, DTRUN_PLACES(0, 4, 1, 5),
             DTRUN_PLACES(2, 6, 3, 7))
#undef DTRUN_PHILOX
#undef DTRUN_PLACES
#undef DTRUN_MULTIPLY_512
#undef DTRUN_MULTIPLY_256
#endif

/// The bits of `pairs` pairs, at most kMostPairs.
void draw_bits(std::uint64_t* target, RandomKey key, std::uint64_t first_pair, std::int64_t pairs) {
  std::int64_t done = 0;
#if defined(__x86_64__)
  if (vector_registers() == VectorRegisters::avx512) {
    done = pairs - pairs % 16;
    philox_avx512(target, key, first_pair, done);
  } else if (vector_registers() == VectorRegisters::avx2) {
    done = pairs - pairs % 8;
    philox_avx2(target, key, first_pair, done);
  }
#endif
  if (done == pairs) return;
  philox_lanes(target + 2 * done, key, first_pair + static_cast<std::uint64_t>(done), pairs - done);
}

const std::uint64_t* random_bits(std::uint64_t* room, RandomKey key, std::int64_t first,
                                 std::int64_t count) {
  const auto pair = static_cast<std::uint64_t>(first) / 2;
  const std::int64_t skipped = first % 2;
  const std::int64_t pairs = (count + skipped + 1) / 2;
  for (std::int64_t done = 0; done < pairs; done += kMostPairs) {
    draw_bits(room + 2 * done, key, pair + static_cast<std::uint64_t>(done),
              std::min(kMostPairs, pairs - done));
  }
  return room + skipped;
}

DTRUN_MULTIVERSION void normal_lanes(double* target, const std::uint64_t* bits,
                                     std::int64_t pairs) {
  DTRUN_INDEPENDENT_ROUNDS
  for (std::int64_t l = 0; l < pairs; ++l) {
    const NormalPair pair = normal_pair_of_bits(bits[2 * l], bits[2 * l + 1]);
    target[2 * l] = pair.even;
    target[2 * l + 1] = pair.odd;
  }
}

DTRUN_MULTIVERSION std::uint64_t round_lanes(float* target, const double* near,
                                             std::int64_t count) {
  std::uint64_t doubtful = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    doubtful |= std::uint64_t{rounds_doubtfully(near[i])};
    target[i] = static_cast<float>(near[i]);
  }
  return doubtful;
}

void normal_pairs(double* numbers, const std::uint64_t* bits, std::int64_t pairs) {
  normal_lanes(numbers, bits, pairs);
}

void normal_pairs(float* numbers, const std::uint64_t* bits, std::int64_t pairs) {
  double near[2 * kMostPairs];
  near_normal_numbers(near, bits, pairs);
  if (round_lanes(numbers, near, 2 * pairs) == 0) return;
  for (std::int64_t l = 0; l < pairs; ++l) {
    if (!rounds_doubtfully(near[2 * l]) && !rounds_doubtfully(near[2 * l + 1])) continue;
    const NormalPair pair = normal_pair_of_bits(bits[2 * l], bits[2 * l + 1]);
    numbers[2 * l] = static_cast<float>(pair.even);
    numbers[2 * l + 1] = static_cast<float>(pair.odd);
  }
}

template <typename T>
void normal_numbers(T* numbers, RandomKey key, std::int64_t first, std::int64_t count) {
  std::uint64_t bits[2 * kMostPairs];
  T both[2 * kMostPairs];
  while (count > 0) {
    const std::int64_t skipped = first % 2;
    const std::int64_t pairs = std::min(kMostPairs, (count + skipped + 1) / 2);
    const std::int64_t made = std::min(count, 2 * pairs - skipped);
    draw_bits(bits, key, static_cast<std::uint64_t>(first) / 2, pairs);
    const bool is_whole = made == 2 * pairs;
    normal_pairs(is_whole ? numbers : both, bits, pairs);
    if (!is_whole) std::copy_n(both + skipped, made, numbers);
    numbers += made;
    first += made;
    count -= made;
  }
}
template void normal_numbers(float*, RandomKey, std::int64_t, std::int64_t);
template void normal_numbers(double*, RandomKey, std::int64_t, std::int64_t);

template <typename T>
DTRUN_MULTIVERSION void uniform_numbers(T* numbers, const std::uint64_t* random, std::int64_t count,
                                        int bits, T unit) {
  DTRUN_INDEPENDENT_ROUNDS
  for (std::int64_t i = 0; i < count; ++i) {
    numbers[i] = formulas::uniform_number(random[i], bits, unit);
  }
}

template <typename T>
DTRUN_MULTIVERSION void mask_numbers(T* numbers, const std::uint64_t* random, std::int64_t count,
                                     std::int64_t dropped, T kept) {
  DTRUN_INDEPENDENT_ROUNDS
  for (std::int64_t i = 0; i < count; ++i) {
    numbers[i] = formulas::is_dropped(random[i], dropped) ? T{0} : kept;
  }
}

template <typename T>
DTRUN_MULTIVERSION void drop_numbers(T* numbers, const T* in, const std::uint64_t* random,
                                     std::int64_t count, std::int64_t dropped, T kept) {
  DTRUN_INDEPENDENT_ROUNDS
  for (std::int64_t i = 0; i < count; ++i) {
    numbers[i] = in[i] * (formulas::is_dropped(random[i], dropped) ? T{0} : kept);
  }
}

template void uniform_numbers(float*, const std::uint64_t*, std::int64_t, int, float);
template void uniform_numbers(double*, const std::uint64_t*, std::int64_t, int, double);
template void mask_numbers(float*, const std::uint64_t*, std::int64_t, std::int64_t, float);
template void mask_numbers(double*, const std::uint64_t*, std::int64_t, std::int64_t, double);
template void drop_numbers(float*, const float*, const std::uint64_t*, std::int64_t, std::int64_t,
                           float);
template void drop_numbers(double*, const double*, const std::uint64_t*, std::int64_t, std::int64_t,
                           double);

}  // namespace dtrun::tensors
