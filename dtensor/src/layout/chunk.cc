#include "dtrun/dtensor/layout/chunk.h"

#include <algorithm>

#include "dtrun/base/check.h"

namespace dtrun::dtensor {

Chunk chunk_of(std::int64_t n, int parts, int index) {
  DT_CHECK(n >= 0 && parts > 0 && index >= 0 && index < parts);
  const std::int64_t size = n / parts + (n % parts != 0 ? 1 : 0);
  if (size == 0 || index > n / size) return {n, 0};
  const std::int64_t start = index * size;
  return {start, std::min(size, n - start)};
}

}  // namespace dtrun::dtensor
