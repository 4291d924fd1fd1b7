// OpenBlas: what is called of OpenBLAS, as a table. The library is opened at the first product:
// linked, it would start a thread per core in every rank, and every program would have to find it.
#pragma once

#include <cblas.h>

#include <string>
#include <vector>

namespace dtrun::tensors {

struct OpenBlas {
  decltype(&::cblas_sgemm) sgemm;
  decltype(&::cblas_dgemm) dgemm;
};

/// The first of these libraries that the loader finds. @throws Error kUnavailable
OpenBlas open_blas(const std::vector<std::string>& files);

/// The machine's. Thread-safe. @throws Error kUnavailable, at each call
const OpenBlas& openblas();

}  // namespace dtrun::tensors
