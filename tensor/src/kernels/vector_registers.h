// VectorRegisters: the widest vector instructions of this processor that kernels are written for.
#pragma once

#include <cstdint>

namespace dtrun::tensors {

enum class VectorRegisters : std::uint8_t {
  sse2,    ///< 16 bytes; also where it is no x86
  avx2,    ///< 32 bytes, with fused multiplication and addition
  avx512,  ///< 64 bytes: F, BW, DQ, VL
};

VectorRegisters vector_registers();

// Before a function that may run only where vector_registers() says so.
#if defined(__x86_64__)
#define DTRUN_WITH_AVX2 __attribute__((target("avx2,fma")))
#define DTRUN_WITH_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")))
#endif

}  // namespace dtrun::tensors
