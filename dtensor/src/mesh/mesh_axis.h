// MeshAxis: one axis of a mesh as strides in the row-major grid of the mesh that it was made from,
// its root. Slices, flattened and split axes are arithmetic on them. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace dtrun::dtensor {

class MeshAxis {
 public:
  /// `size` places, `stride` apart.
  struct Stretch {
    int size;
    int stride;
    friend bool operator==(const Stretch&, const Stretch&) = default;
  };

  MeshAxis(int size, int stride) : stretches_{{size, stride}} {}
  /// Several axes as one, the first outermost.
  static MeshAxis joined(const std::vector<MeshAxis>& axes);

  int size() const;
  /// Where each coordinate stands, relative to coordinate 0.
  std::vector<int> places() const;
  /// What the axis adds to a place of the root's grid: that less it stands at coordinate 0.
  int part_of(int place) const;
  /// As several axes, the first outermost; none where the strides do not allow it.
  std::optional<std::vector<MeshAxis>> split(const std::vector<int>& sizes) const;
  /// "2"; of a joined one whose stretches do not lie side by side "(4, 1)".
  std::string stride_text() const;
  friend bool operator==(const MeshAxis&, const MeshAxis&) = default;

 private:
  MeshAxis() = default;

  std::vector<Stretch> stretches_;  ///< outermost first, at least one
};

/// The places of all coordinates, row-major, relative to that of all zeros.
std::vector<int> places_of(const std::vector<MeshAxis>& axes);

}  // namespace dtrun::dtensor
