// OneDnn: what is called of oneDNN, as a table. Its f32 products take 0.85 to 0.95 of OpenBLAS's
// time, but for what blas.cc says of AVX2. The library is opened at the first large product; where
// it is not there, OpenBLAS does.
#pragma once

#include <cstdint>

namespace dtrun::tensors {

struct OneDnn {
  /// Row-major; 'N' or 'T'. Part of oneDNN's C interface in versions 1 to 3. @return 0: done
  int (*sgemm)(char transpose_a, char transpose_b, std::int64_t m, std::int64_t n, std::int64_t k,
               float alpha, const float* a, std::int64_t lda, const float* b, std::int64_t ldb,
               float beta, float* c, std::int64_t ldc);
  /// OpenMP's, of the calling thread.
  int (*max_threads)();
  void (*set_threads)(int);
};

/// The machine's; nullptr where there is none that was built on OpenMP: another one would multiply
/// in threads of its own, with other bits. Thread-safe.
const OneDnn* onednn();

}  // namespace dtrun::tensors
