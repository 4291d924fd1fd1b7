// BoxMessages: the boxes that ranks send to each other when a tensor goes from a layout on one mesh
// to a layout on another. Each rank gets just the elements that it lacks. Ranks that hold the same
// elements share the work of sending them. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "dtrun/dtensor/layout/box.h"
#include "dtrun/dtensor/layout/rank_places.h"
#include "dtrun/dtensor/plan/traffic.h"

namespace dtrun::dtensor {

/// A tensor's layout on the ranks of a mesh.
struct PlacedLayout {
  std::vector<int> mesh_shape;
  std::vector<int> ranks;  ///< row-major, in one numbering for both meshes
  Layout layout;
};

/// The box that `from` sends to `to`; if they are equal, the rank keeps it.
struct BoxMessage {
  int from;
  int to;
  Box box;
};

class BoxMessages {
 public:
  /// No axis of either is Partial. Borrows the shape.
  BoxMessages(const tensors::Shape& global_shape, PlacedLayout from, PlacedLayout to);

  /// Those that the rank sends, receives or keeps; at most one for each pair of ranks. Takes as
  /// many steps as both meshes have ranks.
  std::vector<BoxMessage> of_rank(int rank) const;
  /// Of one rank, in elements.
  Traffic traffic(int rank) const;
  /// Whether every rank already has all elements that it needs.
  bool are_none() const;
  /// The elements that the busiest rank sends or receives, estimated from a few ranks of each mesh.
  std::int64_t busiest() const;

 private:
  Box box(const PlacedLayout& on, int place) const;
  int giver(int source_place, int target_place) const;
  void add_sent(int source_place, std::vector<BoxMessage>& messages) const;
  void add_received(int target_place, std::vector<BoxMessage>& messages) const;

  const tensors::Shape& shape_;
  const PlacedLayout from_;
  const PlacedLayout to_;
  const RankPlaces from_places_;
  const RankPlaces to_places_;
};

}  // namespace dtrun::dtensor
