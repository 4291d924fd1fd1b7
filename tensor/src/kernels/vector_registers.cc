#include "kernels/vector_registers.h"

namespace dtrun::tensors {

VectorRegisters vector_registers() {
#if defined(__x86_64__)
  static const VectorRegisters widest = [] {
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
      return VectorRegisters::avx512;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? VectorRegisters::avx2
                                                                           : VectorRegisters::sse2;
  }();
  return widest;
#else
  return VectorRegisters::sse2;
#endif
}

}  // namespace dtrun::tensors
