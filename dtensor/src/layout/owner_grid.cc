#include "layout/owner_grid.h"

#include <algorithm>

#include "dtrun/dtensor/layout/box.h"

namespace dtrun::dtensor {
namespace {

constexpr std::size_t kMostNamed = 4;

/// All coordinates on some axes, the last one fastest.
std::vector<std::vector<int>> coordinates_on(const std::vector<std::size_t>& axes,
                                             const std::vector<int>& mesh_shape) {
  std::vector<std::vector<int>> all = {{}};
  for (const std::size_t axis : axes) {
    std::vector<std::vector<int>> longer;
    for (const std::vector<int>& start : all) {
      for (int i = 0; i < mesh_shape[axis]; ++i) {
        longer.push_back(start);
        longer.back().push_back(i);
      }
    }
    all = std::move(longer);
  }
  return all;
}

int rank_at(const std::vector<int>& coordinate, const std::vector<int>& mesh_shape) {
  int rank = 0;
  for (std::size_t axis = 0; axis < mesh_shape.size(); ++axis) {
    rank = rank * mesh_shape[axis] + coordinate[axis];
  }
  return rank;
}

std::string joined(const std::vector<int>& ranks, const std::string& between) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : between) + std::to_string(rank);
  return text;
}

/// Many are told by the first ones and the last one.
std::string list_text(const std::vector<int>& ranks, const std::string& between) {
  if (ranks.size() <= kMostNamed) return joined(ranks, between);
  const bool in_a_row = ranks.back() - ranks.front() + 1 == static_cast<int>(ranks.size());
  if (in_a_row && between == ", ") {
    return std::to_string(ranks.front()) + "-" + std::to_string(ranks.back());
  }
  return joined({ranks[0], ranks[1]}, between) + between + "..." + between +
         std::to_string(ranks.back()) + " (" + std::to_string(ranks.size()) + " ranks)";
}

}  // namespace

std::string Stretch::to_string() const {
  return std::to_string(offset) + ":" + std::to_string(offset + size);
}

OwnerGrid::OwnerGrid(const tensors::Shape& shape, std::vector<int> mesh_shape, const Layout& layout)
    : mesh_shape_(std::move(mesh_shape)), stretches_(shape.size()) {
  for (std::size_t axis = 0; axis < layout.axes(); ++axis) {
    if (layout.is_replicate(axis)) replicated_.push_back(axis);
    if (layout.is_partial(axis)) partial_.push_back(axis);
  }
  for (std::size_t dim = 0; dim < shape.size(); ++dim) cut(dim, shape[dim], layout);
}

void OwnerGrid::cut(std::size_t dim, std::int64_t size, const Layout& layout) {
  std::vector<Stretch> parts = {{0, size}};
  const ShardOrder order = layout.order();
  const auto found = order.find(static_cast<int>(dim));
  if (found != order.end()) {
    for (const int axis : found->second) {
      std::vector<Stretch> finer;
      for (const Stretch& part : parts) {
        const int count = mesh_shape_[static_cast<std::size_t>(axis)];
        for (int i = 0; i < count; ++i) {
          const Chunk chunk = layout.chunk(static_cast<std::size_t>(axis), part.size, count, i);
          Stretch next{part.offset + chunk.offset, chunk.size, part.at};
          next.at.emplace_back(static_cast<std::size_t>(axis), i);
          if (next.size > 0) finer.push_back(std::move(next));
        }
      }
      parts = std::move(finer);
    }
  }
  std::erase_if(parts, [](const Stretch& part) { return part.size == 0; });
  stretches_[dim] = std::move(parts);
}

std::vector<std::vector<int>> OwnerGrid::owners(const std::vector<const Stretch*>& cell) const {
  std::vector<int> coordinate(mesh_shape_.size(), 0);
  for (const Stretch* stretch : cell) {
    for (const auto& [axis, place] : stretch->at) coordinate[axis] = place;
  }
  std::vector<std::vector<int>> groups;
  for (const std::vector<int>& copy : coordinates_on(replicated_, mesh_shape_)) {
    for (std::size_t i = 0; i < copy.size(); ++i) coordinate[replicated_[i]] = copy[i];
    std::vector<int>& group = groups.emplace_back();
    for (const std::vector<int>& term : coordinates_on(partial_, mesh_shape_)) {
      for (std::size_t i = 0; i < term.size(); ++i) coordinate[partial_[i]] = term[i];
      group.push_back(rank_at(coordinate, mesh_shape_));
    }
  }
  return groups;
}

std::int64_t OwnerGrid::idle_ranks() const {
  std::int64_t ranks = 1, busy = 1;
  for (const int size : mesh_shape_) ranks *= size;
  for (const std::size_t axis : replicated_) busy *= mesh_shape_[axis];
  for (const std::size_t axis : partial_) busy *= mesh_shape_[axis];
  for (const std::vector<Stretch>& parts : stretches_) {
    busy *= static_cast<std::int64_t>(parts.size());
  }
  return ranks - busy;
}

std::string owners_text(const std::vector<std::vector<int>>& owners) {
  std::vector<int> firsts;
  for (const std::vector<int>& group : owners) firsts.push_back(group.front());
  if (owners.front().size() == 1) return list_text(firsts, ", ");
  std::string text;
  for (std::size_t i = 0; i < owners.size() && i < kMostNamed; ++i) {
    text += (i == 0 ? "" : ", ") + list_text(owners[i], "+");
  }
  if (owners.size() > kMostNamed) text += ", ... (" + std::to_string(owners.size()) + " copies)";
  return text;
}

}  // namespace dtrun::dtensor
