#include "dtrun/dtensor/layout/chunk.h"

#include <algorithm>

#include "dtrun/base/check.h"

namespace dtrun::dtensor {

Chunk chunk_of(std::int64_t n, int parts, int index) {
  DT_CHECK(n >= 0 && parts > 0 && index >= 0 && index < parts);
  const std::int64_t size = n / parts + (n % parts != 0 ? 1 : 0);
  // Below n + parts, so this is in range; a second division would take as long as all else.
  const std::int64_t start = index * size;
  if (start >= n) return {n, 0};
  return {start, std::min(size, n - start)};
}

}  // namespace dtrun::dtensor
