// Pictures of who holds what: a tensor cut into cells, and in each the ranks that hold it. Rows are
// the last but one dim, columns the last one; each chunk of the dims before them is a picture of
// its own. "0, 1": both hold all of the cell; "0+1": each holds a term of it. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dtrun/dtensor/layout/layout.h"
#include "dtrun/tensor/shape.h"

namespace dtrun::dtensor {

enum class Colors : std::uint8_t { none, terminal };

/// What is drawn.
struct ShardingSubject {
  tensors::Shape shape;
  std::vector<int> mesh_shape;
  Layout layout;
  std::string title = {};  ///< none: shape, mesh and layout
};

/// For a terminal. Where a dim has many chunks, those in the middle are left out.
std::string sharding_text(const ShardingSubject& subject, Colors colors = Colors::none);
/// A whole SVG file. Pointing at a cell shows its ranks and its place.
std::string sharding_svg(const ShardingSubject& subject);

}  // namespace dtrun::dtensor
