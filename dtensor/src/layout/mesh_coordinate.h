// The coordinate of a place in a mesh: places go through it row by row. Pure.
#pragma once

#include <vector>

namespace dtrun::dtensor {

inline std::vector<int> coordinate_in(const std::vector<int>& mesh_shape, int place) {
  std::vector<int> coordinate(mesh_shape.size());
  for (std::size_t axis = mesh_shape.size(); axis-- > 0;) {
    coordinate[axis] = place % mesh_shape[axis];
    place /= mesh_shape[axis];
  }
  return coordinate;
}

}  // namespace dtrun::dtensor
