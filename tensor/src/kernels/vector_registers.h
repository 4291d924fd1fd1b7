// VectorRegisters: the widest vector instructions that kernels written for some may use here.
// Functions before which DTRUN_MULTIVERSION stands (multiversion.h) do not ask: the loader chooses
// among them by the processor alone.
#pragma once

#include <cstdint>
#include <string_view>

namespace dtrun::tensors {

enum class VectorRegisters : std::uint8_t {
  sse2,    ///< 16 bytes; also where it is no x86
  avx2,    ///< 32 bytes, with fused multiplication and addition
  avx512,  ///< 64 bytes: F, BW, DQ, VL
};

/// The widest of this processor, or fewer where the environment's DTRUN_CPU_CAPABILITY asks for
/// them. The environment is read at the first call. Thread-safe.
/// @throws base::Error as registers_named does
VectorRegisters vector_registers();

/// Zen 4 and what followed it, unless fewer registers are asked for.
inline bool is_amd_with_avx512() {
#if defined(__x86_64__)
  static const bool is =
      __builtin_cpu_is("amd") != 0 && vector_registers() == VectorRegisters::avx512;
  return is;
#else
  return false;
#endif
}

/// @param word default, avx2 or avx512, as PyTorch's ATEN_CPU_CAPABILITY has them
/// @param widest of the processor
/// @throws base::Error(kUsage) where it is another word, or more than `widest`
VectorRegisters registers_named(std::string_view word, VectorRegisters widest);

// DTRUN_FOR_REGISTERS(DEFINE): DEFINE(name, bytes, attribute) for each width, of which it makes a
// struct template with a constant kAll. DTRUN_WIDEST_KERNELS(A): kAll of the one for
// vector_registers().
#if defined(__x86_64__)
#define DTRUN_FOR_REGISTERS(DEFINE) \
  DEFINE(Anywhere, 16, )            \
  DEFINE(Avx2, 32, DTRUN_WITH_AVX2) \
  DEFINE(Avx512, 64, DTRUN_WITH_AVX512)
#define DTRUN_WIDEST_KERNELS(A)                                    \
  (vector_registers() == VectorRegisters::avx512 ? Avx512<A>::kAll \
   : vector_registers() == VectorRegisters::avx2 ? Avx2<A>::kAll   \
                                                 : Anywhere<A>::kAll)
#else
#define DTRUN_FOR_REGISTERS(DEFINE) DEFINE(Anywhere, 16, )
#define DTRUN_WIDEST_KERNELS(A) (Anywhere<A>::kAll)
#endif

// Before a function that may run only where vector_registers() says so.
#if defined(__x86_64__)
#define DTRUN_WITH_AVX2 __attribute__((target("avx2,fma")))
#define DTRUN_WITH_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")))
#endif

}  // namespace dtrun::tensors
