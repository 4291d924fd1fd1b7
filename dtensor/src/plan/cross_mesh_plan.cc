#include "dtrun/dtensor/plan/cross_mesh_plan.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "dtrun/base/check.h"
#include "plan/step_cost.h"

namespace dtrun::dtensor {
namespace {

using tensors::Shape;

/// -1: it has none.
int place_of(const std::vector<int>& ranks, int rank) {
  const auto found = std::ranges::find(ranks, rank);
  return found == ranks.end() ? -1 : static_cast<int>(found - ranks.begin());
}

/// The dim that is longest on the fullest rank: the best one to cut once more. -1: none has two
/// elements.
int longest_dim(const Shape& shape, const std::vector<int>& mesh_shape, const Layout& layout) {
  const Shape fullest = fullest_shape(shape, mesh_shape, layout);
  int longest = -1;
  std::int64_t most = 1;
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    if (fullest[dim] <= most) continue;
    most = fullest[dim];
    longest = static_cast<int>(dim);
  }
  return longest;
}

enum class Spread {
  whole,   ///< on every rank of the axis
  chunks,  ///< a chunk on each
};

/// Before the messages: what is Partial is reduced.
Layout given_layout(const Shape& shape, const PlacedLayout& from, Spread spread) {
  Layout layout = without_partials(from.layout);
  for (std::size_t axis = 0; spread == Spread::chunks && axis < layout.axes(); ++axis) {
    if (!from.layout.is_partial(axis) || from.mesh_shape[axis] == 1) continue;
    const int dim = longest_dim(shape, from.mesh_shape, layout);
    if (dim >= 0) layout.set(axis, Shard(dim));
  }
  return layout;
}

/// After the messages: what is to be Partial is on one rank, as its part of the sum.
Layout wanted_layout(const Shape& shape, const PlacedLayout& to, Spread spread) {
  Layout layout = without_partials(to.layout);
  for (std::size_t axis = 0; spread == Spread::chunks && axis < layout.axes(); ++axis) {
    const bool is_average =
        to.layout.is_partial(axis) && to.layout[axis].reduce_op() == ReduceOp::avg;
    if (!layout.is_replicate(axis) || is_average || to.mesh_shape[axis] == 1) continue;
    const int dim = longest_dim(shape, to.mesh_shape, layout);
    if (dim >= 0) layout.set(axis, Shard(dim));
  }
  return layout;
}

/// Of the way between both meshes, which is no better than either.
LinkRate slowest(std::span<const LinkRate> a, std::span<const LinkRate> b) {
  LinkRate slow = kSharedMemoryLink;
  bool is_first = true;
  for (const std::span<const LinkRate>& links : {a, b}) {
    for (const LinkRate& link : links) {
      slow.latency = is_first ? link.latency : std::max(slow.latency, link.latency);
      slow.bytes_per_second =
          is_first ? link.bytes_per_second : std::min(slow.bytes_per_second, link.bytes_per_second);
      is_first = false;
    }
  }
  return slow;
}

PlanCost messages_cost(const BoxMessages& messages, std::int64_t item_bytes, const LinkRate& link) {
  const std::int64_t busiest = messages.busiest();
  if (busiest == 0) return {};
  return {link.latency + static_cast<double>(busiest * item_bytes) / link.bytes_per_second, 1};
}

}  // namespace

BoxMessages::BoxMessages(const Shape& global_shape, PlacedLayout from, PlacedLayout to)
    : shape_(global_shape), from_(std::move(from)), to_(std::move(to)) {
  for (const PlacedLayout* const placed : {&from_, &to_}) {
    for (std::size_t axis = 0; axis < placed->layout.axes(); ++axis)
      DT_CHECK(!placed->layout.is_partial(axis));
  }
}

std::vector<int> BoxMessages::coordinate(const PlacedLayout& on, int place) const {
  std::vector<int> coordinate(on.mesh_shape.size());
  for (std::size_t axis = coordinate.size(); axis-- > 0;) {
    coordinate[axis] = place % on.mesh_shape[axis];
    place /= on.mesh_shape[axis];
  }
  return coordinate;
}

Box BoxMessages::box(const PlacedLayout& on, int place) const {
  return local_box(shape_, on.mesh_shape, coordinate(on, place), on.layout);
}

/// Who of those that hold the same elements as `source_place` gives them to `target_place`: itself
/// if it is one of them, else they take turns. @return a place of the first mesh
int BoxMessages::giver(int source_place, int target_place) const {
  const std::vector<int> source = coordinate(from_, source_place);
  const int own_place = place_of(from_.ranks, to_.ranks[static_cast<std::size_t>(target_place)]);
  bool has_it = own_place >= 0;
  if (has_it) {
    const std::vector<int> own = coordinate(from_, own_place);
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
  const int source_place = place_of(from_.ranks, rank);
  const int target_place = place_of(to_.ranks, rank);
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
    const int own = place_of(from_.ranks, to_.ranks[static_cast<std::size_t>(place)]);
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

CrossMeshPlan plan_cross_mesh(const Shape& global_shape, const PlacedLayout& from,
                              const PlacedLayout& to, std::int64_t item_bytes,
                              std::span<const LinkRate> from_links,
                              std::span<const LinkRate> to_links) {
  const CostModel from_costs{item_bytes, from_links}, to_costs{item_bytes, to_links};
  const LinkRate between = slowest(from_links, to_links);
  std::optional<CrossMeshPlan> best;
  for (const Spread reduced : {Spread::whole, Spread::chunks}) {
    const Layout given = given_layout(global_shape, from, reduced);
    if (reduced == Spread::chunks && best && given == best->given) continue;
    for (const Spread sent : {Spread::whole, Spread::chunks}) {
      CrossMeshPlan plan;
      plan.given = given;
      plan.wanted = wanted_layout(global_shape, to, sent);
      plan.before =
          plan_redistribute(global_shape, from.mesh_shape, from.layout, given, from_costs);
      plan.after = plan_redistribute(global_shape, to.mesh_shape, plan.wanted, to.layout, to_costs);
      plan.cost = plan_cost(global_shape, from.mesh_shape, plan.before, from_costs);
      plan.cost += plan_cost(global_shape, to.mesh_shape, plan.after, to_costs);
      const BoxMessages messages(global_shape, {from.mesh_shape, from.ranks, given},
                                 {to.mesh_shape, to.ranks, plan.wanted});
      plan.cost += messages_cost(messages, item_bytes, between);
      if (!best || plan.cost < best->cost) best = std::move(plan);
    }
  }
  return *std::move(best);
}

}  // namespace dtrun::dtensor
