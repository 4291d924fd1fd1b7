// MapKernel: the inner loop of a pointwise operator, and how it is made of a function of elements.
// An inner loop takes dense runs of one dtype, a multiple of kLanes elements of each operand: so it
// has no remainder, and a function that is approximated gives an element the same bits wherever it
// lies. loops/map_loop.h brings all other operands into that form, block by block.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "dtrun/tensor/dtype.h"
#include "element.h"
#include "kernels/map_numbers.h"
#include "kernels/vector_registers.h"
#include "multiversion.h"

namespace dtrun::tensors {

constexpr std::int64_t kLanes = 16;

using MapRun = void (*)(void* out, const void* const* inputs, std::int64_t count,
                        const MapNumbers& numbers);

/// The loops of one operator, by the dtype of its inputs; nullptr where it has none.
struct MapRuns {
  std::array<MapRun, kDTypes> by_dtype{};

  constexpr MapRun of(DType dtype) const { return by_dtype[static_cast<std::size_t>(dtype)]; }
  constexpr MapRuns with(DType dtype, MapRun run) const {
    MapRuns more = *this;
    more.by_dtype[static_cast<std::size_t>(dtype)] = run;
    return more;
  }
};

/// The function of elements, made of the call's numbers where it has some.
template <typename F>
F function_of(const MapNumbers& numbers) {
  if constexpr (std::is_constructible_v<F, const MapNumbers&>) {
    return F(numbers);
  } else {
    return F{};
  }
}

template <typename F, typename Out, typename... In>
DTRUN_INLINED void map_all_lanes(Out* out, const MapNumbers& numbers, std::int64_t count,
                                 const In*... in) {
  const F function = function_of<F>(numbers);
  count -= count % kLanes;  // says to the compiler what the caller keeps to
  // An input may be the output.
  DTRUN_INDEPENDENT_ROUNDS
  for (std::int64_t i = 0; i < count; ++i) {
    out[i] = Element<Out>::store(function(Element<In>::load(in[i])...));
  }
}

template <typename F, typename Out, typename... In>
DTRUN_MULTIVERSION void map_in_widest(Out* out, const MapNumbers& numbers, std::int64_t count,
                                      const In*... in) {
  map_all_lanes<F>(out, numbers, count, in...);
}

/// Formulas that compute so little that the loop waits for memory say so themselves.
template <typename F>
concept WaitsForMemory = F::kWaitsForMemory;

#if defined(__x86_64__)
/// A Zen 4 stores 64 bytes in two steps, and where the output lies 64 bytes behind an input, modulo
/// 4 KiB, it waits after each: 1 M f32 times a number took 86 to 114 us with AVX-512, by where they
/// lay, and 86 with AVX2.
template <typename F, typename Out, typename... In>
DTRUN_WITH_AVX2 void map_in_halves(Out* out, const MapNumbers& numbers, std::int64_t count,
                                   const In*... in) {
  map_all_lanes<F>(out, numbers, count, in...);
}
#endif

template <typename F, typename Out, typename... In>
void map_lanes(Out* out, const MapNumbers& numbers, std::int64_t count, const In*... in) {
#if defined(__x86_64__)
  if constexpr (WaitsForMemory<F> && std::is_floating_point_v<Out>) {
    if (is_amd_with_avx512()) return map_in_halves<F>(out, numbers, count, in...);
  }
#endif
  map_in_widest<F>(out, numbers, count, in...);
}

template <typename F, typename Out, typename A>
void map_one(void* out, const void* const* in, std::int64_t count, const MapNumbers& numbers) {
  map_lanes<F>(static_cast<Out*>(out), numbers, count, static_cast<const A*>(in[0]));
}

template <typename F, typename Out, typename A, typename B>
void map_two(void* out, const void* const* in, std::int64_t count, const MapNumbers& numbers) {
  map_lanes<F>(static_cast<Out*>(out), numbers, count, static_cast<const A*>(in[0]),
               static_cast<const B*>(in[1]));
}

template <typename F, typename Out, typename A, typename B, typename C>
void map_three(void* out, const void* const* in, std::int64_t count, const MapNumbers& numbers) {
  map_lanes<F>(static_cast<Out*>(out), numbers, count, static_cast<const A*>(in[0]),
               static_cast<const B*>(in[1]), static_cast<const C*>(in[2]));
}

/// Of bf16, two elements a word: each of them is a float where the other is shifted or masked away.
/// So nothing moves between the parts of a register, as it does where halves are widened. For
/// functions that give an element the same bits in every lane, vectors or not: arithmetic.
template <typename F>
DTRUN_MULTIVERSION void map_words_of_two(BFloat16* out, const BFloat16* a, const BFloat16* b,
                                         std::int64_t count, const MapNumbers& numbers) {
  const F function = function_of<F>(numbers);
  const auto word_at = [](const BFloat16* place) {
    std::uint32_t word = 0;
    std::memcpy(&word, place, sizeof word);
    return word;
  };
  const auto low = [](std::uint32_t word) { return std::bit_cast<float>(word << 16); };
  const auto high = [](std::uint32_t word) { return std::bit_cast<float>(word & 0xffff0000u); };
  count -= count % kLanes;  // says to the compiler what the caller keeps to
  DTRUN_INDEPENDENT_ROUNDS
  for (std::int64_t i = 0; i < count; i += 2) {
    const std::uint32_t left = word_at(a + i), right = word_at(b + i);
    const std::uint32_t first = to_bfloat16(function(low(left), low(right))).bits;
    const std::uint32_t second = to_bfloat16(function(high(left), high(right))).bits;
    const std::uint32_t both = first | second << 16;
    std::memcpy(out + i, &both, sizeof both);
  }
}
template <typename F>
void map_two_bf16(void* out, const void* const* in, std::int64_t count, const MapNumbers& numbers) {
  map_words_of_two<F>(static_cast<BFloat16*>(out), static_cast<const BFloat16*>(in[0]),
                      static_cast<const BFloat16*>(in[1]), count, numbers);
}
/// Of one operand, which stands for both.
template <typename F>
struct OfFirst {
  F function;
  explicit OfFirst(const MapNumbers& numbers) : function(function_of<F>(numbers)) {}
  float operator()(float a, float) const { return function(a); }
};
template <typename F>
void map_one_bf16(void* out, const void* const* in, std::int64_t count, const MapNumbers& numbers) {
  const auto* const from = static_cast<const BFloat16*>(in[0]);
  map_words_of_two<OfFirst<F>>(static_cast<BFloat16*>(out), from, from, count, numbers);
}
/// A function of two whose second operand is the call's first number.
template <typename F>
struct WithNumber {
  static constexpr bool kWaitsForMemory = WaitsForMemory<F>;
  float number;
  explicit WithNumber(const MapNumbers& numbers) : number(numbers.get<float>(0)) {}
  float operator()(float a) const { return F{}(a, number); }
};

// The same loop for several dtypes.
template <typename F>
constexpr MapRuns one_floating() {
  return MapRuns{}
      .with(DType::f64, &map_one<F, double, double>)
      .with(DType::f32, &map_one<F, float, float>);
}
template <typename F>
constexpr MapRuns one_number() {
  return one_floating<F>()
      .with(DType::i64, &map_one<F, std::int64_t, std::int64_t>)
      .with(DType::i32, &map_one<F, std::int32_t, std::int32_t>);
}
template <typename F>
constexpr MapRuns two_floating() {
  return MapRuns{}
      .with(DType::f64, &map_two<F, double, double, double>)
      .with(DType::f32, &map_two<F, float, float, float>);
}
template <typename F>
constexpr MapRuns two_integers() {
  return MapRuns{}
      .with(DType::i64, &map_two<F, std::int64_t, std::int64_t, std::int64_t>)
      .with(DType::i32, &map_two<F, std::int32_t, std::int32_t, std::int32_t>);
}
template <typename F>
constexpr MapRuns two_numbers() {
  return two_floating<F>()
      .with(DType::i64, two_integers<F>().of(DType::i64))
      .with(DType::i32, two_integers<F>().of(DType::i32));
}
template <typename F>
constexpr MapRuns two_of_all() {
  return two_numbers<F>()
      .with(DType::u8, &map_two<F, std::uint8_t, std::uint8_t, std::uint8_t>)
      .with(DType::boolean, &map_two<F, Boolean, Boolean, Boolean>);
}
template <typename F>
constexpr MapRuns three_floating() {
  return MapRuns{}
      .with(DType::f64, &map_three<F, double, double, double, double>)
      .with(DType::f32, &map_three<F, float, float, float, float>);
}
template <typename F>
constexpr MapRuns three_numbers() {
  return three_floating<F>()
      .with(DType::i64, &map_three<F, std::int64_t, std::int64_t, std::int64_t, std::int64_t>)
      .with(DType::i32, &map_three<F, std::int32_t, std::int32_t, std::int32_t, std::int32_t>);
}

}  // namespace dtrun::tensors
