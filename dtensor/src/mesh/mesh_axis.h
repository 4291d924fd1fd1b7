// MeshAxis: one axis of a mesh, as strides in the row-major grid of its root: the mesh that it was
// sliced from. Slices, flattened and split axes are arithmetic on strides. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace dtrun::dtensor {

class MeshAxis {
 public:
  /// `size` coordinates, `stride` apart in the root's grid.
  struct Stretch {
    int size;
    int stride;
    friend bool operator==(const Stretch&, const Stretch&) = default;
  };

  MeshAxis(int size, int stride) : stretches_{{size, stride}} {}
  /// Joins several axes, the first outermost.
  static MeshAxis joined(const std::vector<MeshAxis>& axes);

  int size() const;
  /// Offset of each coordinate in the root's grid, relative to coordinate 0.
  std::vector<int> places() const;
  /// This axis' share of a place's offset in the root's grid; subtracted, it leads to coordinate 0.
  int part_of(int place) const;
  /// Splits the axis into several, the first outermost; nullopt where the strides do not allow it.
  std::optional<std::vector<MeshAxis>> split(const std::vector<int>& sizes) const;
  /// "2"; for a joined axis that has no single stride, "(4, 1)".
  std::string stride_text() const;
  friend bool operator==(const MeshAxis&, const MeshAxis&) = default;

 private:
  MeshAxis() = default;

  std::vector<Stretch> stretches_;  ///< outermost first, at least one
};

/// The offsets of all coordinates, row-major, relative to the coordinate of all zeros.
std::vector<int> places_of(const std::vector<MeshAxis>& axes);

/// Of a row-major grid.
std::vector<MeshAxis> axes_of(const std::vector<int>& shape);

}  // namespace dtrun::dtensor
