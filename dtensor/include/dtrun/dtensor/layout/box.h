// Box: which part of the global tensor a mesh coordinate holds. Pure; no communication. The first
// axis of a dim cuts it into the sizes that its placement names, or as torch.chunk does. Each
// further axis cuts what the axes before it left, as torch.chunk does. An empty chunk's offset is
// n, the dim's global size.
#pragma once

#include <vector>

#include "dtrun/dtensor/layout/chunk.h"
#include "dtrun/dtensor/layout/layout.h"
#include "dtrun/tensor/shape.h"

namespace dtrun::dtensor {

struct Box {
  tensors::Shape offsets;
  tensors::Shape shape;
  friend bool operator==(const Box&, const Box&) = default;
};

/// The intersection; a box without elements where there is none.
Box intersection(const Box& a, const Box& b);

/// The box of the rank at `coordinate`. Replicate and Partial axes cut nothing.
/// @param layout made by make_layout for this shape and mesh
Box local_box(const tensors::Shape& global_shape, const std::vector<int>& mesh_shape,
              const std::vector<int>& coordinate, const Layout& layout);
/// @throws Error kInvalidArgument for a placement that does not fit the shape
Box local_box(const tensors::Shape& global_shape, const std::vector<int>& mesh_shape,
              const std::vector<int>& coordinate, const Placements& placements,
              const ShardOrder& order = {});

}  // namespace dtrun::dtensor
