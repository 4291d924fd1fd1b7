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

}  // namespace dtrun::tensors
