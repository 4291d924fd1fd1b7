// Pictures of a sharded tensor: its cells, and in each the ranks that hold it. Rows are the second
// to last dim, columns the last one. Each chunk of the other dims has a picture of its own. "0, 1":
// both ranks hold the cell; "0+1": each holds a term of the sum. Pure.
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
/// A complete SVG file. The tooltip of a cell shows its ranks and its position.
std::string sharding_svg(const ShardingSubject& subject);

}  // namespace dtrun::dtensor
