#include "dtrun/dtensor/plan/cross_mesh_plan.h"

#include <algorithm>
#include <utility>

#include "plan/step_cost.h"

namespace dtrun::dtensor {
namespace {

using tensors::Shape;

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

std::vector<CrossMeshPlan> cross_mesh_ways(const Shape& global_shape, const PlacedLayout& from,
                                           const PlacedLayout& to, std::int64_t item_bytes,
                                           std::span<const LinkRate> from_links,
                                           std::span<const LinkRate> to_links) {
  const CostModel from_costs{item_bytes, from_links}, to_costs{item_bytes, to_links};
  const LinkRate between = slowest(from_links, to_links);
  std::vector<CrossMeshPlan> ways;
  for (const Spread reduced : {Spread::whole, Spread::chunks}) {
    for (const Spread sent : {Spread::whole, Spread::chunks}) {
      CrossMeshPlan plan;
      plan.given = given_layout(global_shape, from, reduced);
      plan.wanted = wanted_layout(global_shape, to, sent);
      const bool is_known = std::ranges::any_of(ways, [&](const CrossMeshPlan& way) {
        return way.given == plan.given && way.wanted == plan.wanted;
      });
      if (is_known) continue;
      plan.before =
          plan_redistribute(global_shape, from.mesh_shape, from.layout, plan.given, from_costs);
      plan.after = plan_redistribute(global_shape, to.mesh_shape, plan.wanted, to.layout, to_costs);
      const BoxMessages messages(global_shape, {from.mesh_shape, from.ranks, plan.given},
                                 {to.mesh_shape, to.ranks, plan.wanted});
      plan.messages = messages_cost(messages, item_bytes, between);
      plan.cost = plan_cost(global_shape, from.mesh_shape, plan.before, from_costs);
      plan.cost += plan_cost(global_shape, to.mesh_shape, plan.after, to_costs);
      plan.cost += plan.messages;
      ways.push_back(std::move(plan));
    }
  }
  std::ranges::stable_sort(ways, {}, &CrossMeshPlan::cost);
  return ways;
}

CrossMeshPlan plan_cross_mesh(const Shape& global_shape, const PlacedLayout& from,
                              const PlacedLayout& to, std::int64_t item_bytes,
                              std::span<const LinkRate> from_links,
                              std::span<const LinkRate> to_links) {
  return std::move(
      cross_mesh_ways(global_shape, from, to, item_bytes, from_links, to_links).front());
}

}  // namespace dtrun::dtensor
