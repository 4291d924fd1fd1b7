// OwnerGrid: the cells that a layout cuts a tensor into, and whose they are.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "dtrun/dtensor/layout/layout.h"
#include "dtrun/tensor/shape.h"

namespace dtrun::dtensor {

/// A chunk of one dim that is not empty, and where on the axes that cut the dim it lies.
struct Stretch {
  std::int64_t offset = 0;
  std::int64_t size = 0;
  std::vector<std::pair<std::size_t, int>> at = {};  ///< axis, coordinate

  /// "0:4".
  std::string to_string() const;
};

class OwnerGrid {
 public:
  OwnerGrid(const tensors::Shape& shape, std::vector<int> mesh_shape, const Layout& layout);

  /// Of a dim, by offset; none of a dim without elements.
  const std::vector<Stretch>& stretches(std::size_t dim) const { return stretches_[dim]; }
  std::size_t dims() const { return stretches_.size(); }
  /// Of the cell of one stretch per dim: groups of ranks that hold all of it together; each rank of
  /// a group has a term. Groups of one where no axis is Partial.
  std::vector<std::vector<int>> owners(const std::vector<const Stretch*>& cell) const;
  /// How many have an empty part.
  std::int64_t idle_ranks() const;

 private:
  void cut(std::size_t dim, std::int64_t size, const Layout& layout);

  std::vector<int> mesh_shape_;
  std::vector<std::size_t> replicated_;  ///< axes
  std::vector<std::size_t> partial_;
  std::vector<std::vector<Stretch>> stretches_;
};

/// "0", "0, 1", "0+1, 2+3", "0-7", "0, 8, ... 56 (8 ranks)".
std::string owners_text(const std::vector<std::vector<int>>& owners);

}  // namespace dtrun::dtensor
