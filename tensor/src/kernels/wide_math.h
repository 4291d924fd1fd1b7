// Wide math: loops of f32 and bf16 for AVX-512 whose functions are looked up in registers: a
// polynomial for each piece of the line, of pieces as many as a permutation takes. Where there is
// none, the formulas of vector_math.h do (docs/vector_math.md has what both take).
#pragma once

#include "kernels/map_function.h"
#include "kernels/map_kernel.h"

namespace dtrun::tensors {

/// @return nullptr where the function has no such loop, or the processor no AVX-512
MapRun wide_run(MapFunction function, DType dtype);

template <MapFunction kFunction, typename F, typename T>
void map_wide(void* out, const void* const* in, std::int64_t count, const MapNumbers& numbers) {
  constexpr DType kDType = std::is_same_v<T, float> ? DType::f32 : DType::bf16;
  static const MapRun wide = wide_run(kFunction, kDType);
  if (wide != nullptr) return wide(out, in, count, numbers);
  map_one<F, T, T>(out, in, count, numbers);
}

template <MapFunction kFunction, typename F>
constexpr MapRuns one_wide() {
  return one_floating<F>()
      .with(DType::f32, &map_wide<kFunction, F, float>)
      .with(DType::bf16, &map_wide<kFunction, F, BFloat16>);
}

/// Of f32.
template <MapFunction kFunction, typename F>
void map_two_wide(void* out, const void* const* in, std::int64_t count, const MapNumbers& numbers) {
  static const MapRun wide = wide_run(kFunction, DType::f32);
  if (wide != nullptr) return wide(out, in, count, numbers);
  map_two<F, float, float, float>(out, in, count, numbers);
}
template <MapFunction kFunction, typename F>
constexpr MapRuns two_wide() {
  return two_floating<F>().with(DType::f32, &map_two_wide<kFunction, F>);
}

}  // namespace dtrun::tensors
