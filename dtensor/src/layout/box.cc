#include "dtrun/dtensor/layout/box.h"

#include <algorithm>

#include "dtrun/base/check.h"

namespace dtrun::dtensor {

using tensors::Shape;

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
      const Chunk chunk = layout.chunk(axis, box.shape[dim], mesh_shape[axis], coordinate[axis]);
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
