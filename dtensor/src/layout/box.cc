#include "dtrun/dtensor/layout/box.h"

#include <algorithm>

#include "dtrun/base/check.h"

namespace dtrun::dtensor {

using tensors::Shape;

Chunk chunk_of(std::int64_t n, int parts, int index) {
  DT_CHECK(n >= 0 && parts > 0 && index >= 0 && index < parts);
  const std::int64_t size = n / parts + (n % parts != 0 ? 1 : 0);
  if (size == 0 || index > n / size) return {n, 0};
  const std::int64_t start = index * size;
  return {start, std::min(size, n - start)};
}

Box intersection(const Box& a, const Box& b) {
  Box common{Shape(a.shape.size(), 0), Shape(a.shape.size(), 0)};
  for (std::size_t dim = 0; dim < a.shape.size(); ++dim) {
    const std::int64_t start = std::max(a.offsets[dim], b.offsets[dim]);
    const std::int64_t end = std::min(a.offsets[dim] + a.shape[dim], b.offsets[dim] + b.shape[dim]);
    common.offsets[dim] = start;
    common.shape[dim] = std::max<std::int64_t>(0, end - start);
  }
  return common;
}

Box local_box(const Shape& global_shape, const std::vector<int>& mesh_shape,
              const std::vector<int>& coordinate, const Layout& layout) {
  DT_CHECK(coordinate.size() == mesh_shape.size() && layout.axes() == mesh_shape.size());
  Box box{Shape(global_shape.size(), 0), global_shape};
  const int axes = static_cast<int>(layout.axes());
  for (int depth = 0; depth < axes; ++depth) {
    for (std::size_t axis = 0; axis < layout.axes(); ++axis) {
      if (!layout.is_shard(axis) || layout.depth(axis) != depth) continue;
      const auto dim = static_cast<std::size_t>(layout.dim(axis));
      const Chunk chunk = chunk_of(box.shape[dim], mesh_shape[axis], coordinate[axis]);
      box.offsets[dim] += chunk.offset;
      box.shape[dim] = chunk.size;
    }
  }
  for (std::size_t dim = 0; dim < global_shape.size(); ++dim) {
    if (box.shape[dim] == 0) box.offsets[dim] = global_shape[dim];
  }
  return box;
}

Box local_box(const Shape& global_shape, const std::vector<int>& mesh_shape,
              const std::vector<int>& coordinate, const Placements& placements,
              const ShardOrder& order) {
  return local_box(global_shape, mesh_shape, coordinate,
                   make_layout(global_shape, mesh_shape, placements, order));
}

}  // namespace dtrun::dtensor
