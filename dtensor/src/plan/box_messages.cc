#include "dtrun/dtensor/plan/box_messages.h"

#include <algorithm>
#include <utility>

#include "dtrun/base/check.h"
#include "layout/mesh_coordinate.h"

namespace dtrun::dtensor {

using tensors::Shape;

BoxMessages::BoxMessages(const Shape& global_shape, PlacedLayout from, PlacedLayout to)
    : shape_(global_shape),
      from_(std::move(from)),
      to_(std::move(to)),
      from_places_(from_.ranks),
      to_places_(to_.ranks) {
  for (const PlacedLayout* const placed : {&from_, &to_}) {
    for (std::size_t axis = 0; axis < placed->layout.axes(); ++axis)
      DT_CHECK(!placed->layout.is_partial(axis));
  }
}

Box BoxMessages::box(const PlacedLayout& on, int place) const {
  return local_box(shape_, on.mesh_shape, coordinate_in(on.mesh_shape, place), on.layout);
}

/// Who of those that hold the same elements as `source_place` gives them to `target_place`: itself
/// if it is one of them, else they take turns. @return a place of the first mesh
int BoxMessages::giver(int source_place, int target_place) const {
  const std::vector<int> source = coordinate_in(from_.mesh_shape, source_place);
  const int own_place = from_places_.of(to_.ranks[static_cast<std::size_t>(target_place)]);
  bool has_it = own_place >= 0;
  if (has_it) {
    const std::vector<int> own = coordinate_in(from_.mesh_shape, own_place);
    for (std::size_t axis = 0; axis < own.size(); ++axis)
      has_it = has_it && (from_.layout.is_replicate(axis) || own[axis] == source[axis]);
  }
  if (has_it) return own_place;
  int turn = target_place;
  for (std::size_t axis = 0; axis < source.size(); ++axis)
    turn += from_.layout.is_replicate(axis) ? 0 : source[axis];
  int place = 0;
  for (std::size_t axis = 0; axis < source.size(); ++axis) {
    const int size = from_.mesh_shape[axis];
    int at = source[axis];
    if (from_.layout.is_replicate(axis)) {
      at = turn % size;
      turn /= size;
    }
    place = place * size + at;
  }
  return place;
}

void BoxMessages::add_sent(int source_place, std::vector<BoxMessage>& messages) const {
  const Box own = box(from_, source_place);
  const int rank = from_.ranks[static_cast<std::size_t>(source_place)];
  for (int place = 0; place < static_cast<int>(to_.ranks.size()); ++place) {
    Box common = intersection(own, box(to_, place));
    const int receiver = to_.ranks[static_cast<std::size_t>(place)];
    if (receiver == rank || tensors::numel(common.shape) == 0) continue;
    if (giver(source_place, place) == source_place)
      messages.push_back({rank, receiver, std::move(common)});
  }
}

void BoxMessages::add_received(int target_place, std::vector<BoxMessage>& messages) const {
  const Box own = box(to_, target_place);
  const int rank = to_.ranks[static_cast<std::size_t>(target_place)];
  for (int place = 0; place < static_cast<int>(from_.ranks.size()); ++place) {
    const Box common = intersection(box(from_, place), own);
    if (tensors::numel(common.shape) == 0 || giver(place, target_place) != place) continue;
    messages.push_back({from_.ranks[static_cast<std::size_t>(place)], rank, common});
  }
}

std::vector<BoxMessage> BoxMessages::of_rank(int rank) const {
  std::vector<BoxMessage> messages;
  const int source_place = from_places_.of(rank);
  const int target_place = to_places_.of(rank);
  if (source_place >= 0) add_sent(source_place, messages);
  if (target_place >= 0) add_received(target_place, messages);
  return messages;
}

Traffic BoxMessages::traffic(int rank) const {
  Traffic traffic;
  for (const BoxMessage& message : of_rank(rank)) {
    if (message.from == message.to) continue;
    (message.from == rank ? traffic.sent : traffic.received) += tensors::numel(message.box.shape);
  }
  return traffic;
}

bool BoxMessages::are_none() const {
  for (int place = 0; place < static_cast<int>(to_.ranks.size()); ++place) {
    const Box wanted = box(to_, place);
    if (tensors::numel(wanted.shape) == 0) continue;
    const int own = from_places_.of(to_.ranks[static_cast<std::size_t>(place)]);
    if (own < 0 || intersection(box(from_, own), wanted) != wanted) return false;
  }
  return true;
}

std::int64_t BoxMessages::busiest() const {
  std::int64_t most = 0;
  for (const std::vector<int>* const ranks : {&from_.ranks, &to_.ranks}) {
    const std::size_t stride = std::max<std::size_t>(1, ranks->size() / 4);
    for (std::size_t place = 0; place < ranks->size(); place += stride) {
      const Traffic one = traffic((*ranks)[place]);
      most = std::max({most, one.sent, one.received});
    }
  }
  return most;
}

}  // namespace dtrun::dtensor
