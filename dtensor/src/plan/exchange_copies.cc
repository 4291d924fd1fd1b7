#include "plan/exchange_copies.h"

#include <algorithm>

namespace dtrun::dtensor {
namespace {

using tensors::Shape;

/// Of one dim: the parts that this rank has in common with the others, each of them once for every
/// way to choose the coordinates that cut the dim.
struct DimParts {
  std::int64_t elements = 0;  ///< of all
  std::int64_t whole = 0;     ///< of those that are all that this rank has
  std::int64_t ones = 0;      ///< how many have one element
};

/// Goes through the chunks of one dim, outermost cut first, and leaves out those that this rank
/// shares nothing with.
class ChunkWalk {
 public:
  ChunkWalk(const std::vector<int>& mesh_shape, const std::vector<int>& axes,
            const std::vector<int>& coordinate, const Layout& layout, int dim)
      : mesh_shape_(mesh_shape), coordinate_(coordinate), layout_(layout), axes_(axes) {
    for (int depth = 0; depth < static_cast<int>(layout.axes()); ++depth) {
      for (std::size_t axis = 0; axis < layout.axes(); ++axis) {
        if (layout.is_shard(axis) && layout.dim(axis) == dim && layout.depth(axis) == depth)
          cuts_.push_back(axis);
      }
    }
  }

  DimParts parts(const Chunk& own, std::int64_t size) {
    own_ = own;
    parts_ = {};
    walk(0, {0, size});
    return parts_;
  }

 private:
  void walk(std::size_t depth, const Chunk& chunk) {
    const std::int64_t start = std::max(own_.offset, chunk.offset);
    const std::int64_t end = std::min(own_.offset + own_.size, chunk.offset + chunk.size);
    if (end <= start) return;
    if (depth == cuts_.size()) return add(end - start);
    const std::size_t axis = cuts_[depth];
    const bool is_walked = std::ranges::count(axes_, static_cast<int>(axis)) != 0;
    const int first = is_walked ? 0 : coordinate_[axis];
    const int last = is_walked ? mesh_shape_[axis] - 1 : first;
    for (int index = first; index <= last; ++index) {
      const Chunk inner = layout_.chunk(axis, chunk.size, mesh_shape_[axis], index);
      walk(depth + 1, {chunk.offset + inner.offset, inner.size});
    }
  }
  void add(std::int64_t size) {
    parts_.elements += size;
    if (size == own_.size) parts_.whole += size;
    if (size == 1) ++parts_.ones;
  }

  const std::vector<int>& mesh_shape_;
  const std::vector<int>& coordinate_;
  const Layout& layout_;
  const std::vector<int>& axes_;
  std::vector<std::size_t> cuts_;  ///< axes, outermost first
  Chunk own_;
  DimParts parts_;
};

/// Of the parts that all dims' parts make up: the elements of those with gaps.
std::int64_t elements_with_gaps(const std::vector<DimParts>& dims) {
  std::int64_t all = 1;
  for (const DimParts& dim : dims) all *= dim.elements;
  // A part lies together where it has all of the inner dims, some of one, and one element of each
  // outer dim.
  std::int64_t together = 0, inner = 1;
  for (std::size_t dim = dims.size(); dim-- > 0;) {
    std::int64_t outer = 1;
    for (std::size_t further = 0; further < dim; ++further) outer *= dims[further].ones;
    together += inner * (dims[dim].elements - dims[dim].whole) * outer;
    inner *= dims[dim].whole;
  }
  return all - together - inner;
}

}  // namespace

bool lies_together(const Shape& part, const Shape& whole) {
  if (tensors::numel(part) == 0) return true;
  std::int64_t stride = 1, expected = 1;
  for (std::size_t dim = whole.size(); dim-- > 0;) {
    if (part[dim] != 1 && stride != expected) return false;
    stride *= whole[dim];
    expected *= part[dim];
  }
  return true;
}

std::int64_t exchange_copies(const Shape& global_shape, const std::vector<int>& mesh_shape,
                             const std::vector<int>& axes, const std::vector<int>& coordinate,
                             const Box& own, const Layout& layout) {
  std::int64_t ranks_alike = 1;
  for (const int axis : axes) {
    const auto at = static_cast<std::size_t>(axis);
    if (!layout.is_shard(at)) ranks_alike *= mesh_shape[at];
  }
  std::vector<DimParts> dims;
  for (std::size_t dim = 0; dim < global_shape.size(); ++dim) {
    ChunkWalk walk(mesh_shape, axes, coordinate, layout, static_cast<int>(dim));
    dims.push_back(walk.parts({own.offsets[dim], own.shape[dim]}, global_shape[dim]));
  }
  return ranks_alike * elements_with_gaps(dims);
}

}  // namespace dtrun::dtensor
