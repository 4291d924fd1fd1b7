#include "dtrun/dtensor/plan/layout_converter.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "dtrun/base/error.h"
#include "plan/explanation_text.h"
#include "plan/step_cost.h"

namespace dtrun::dtensor {
namespace {

using tensors::Shape;

// As ColossalAI's MAX_TRANSFORM_STEPS. Nothing proves that the greedy way always arrives.
constexpr int kMostSteps = 20;

class Neighbours {
 public:
  Neighbours(const ShardingSpec& from, int mesh_axes, AxisOrders orders)
      : sequence_(from.sharding_sequence()), mesh_axes_(mesh_axes), orders_(orders) {}

  std::vector<ConversionStep> all() {
    gather();
    exchange();
    cut();
    return std::move(steps_);
  }

 private:
  void gather() {
    for (std::size_t dim = 0; dim < sequence_.size(); ++dim) {
      if (sequence_[dim].is_replica()) continue;
      std::vector<DimSpec> after = sequence_;
      const int axis = take_last(after[dim]);
      add(StepKind::all_gather, axis, static_cast<int>(dim), -1, std::move(after));
    }
  }

  // As in ColossalAI only dims that one axis shards at the most change places: the S01 of a dim is
  // gathered to S0 first.
  void exchange() {
    for (std::size_t left = 0; left < sequence_.size(); ++left) {
      for (std::size_t right = left + 1; right < sequence_.size(); ++right) {
        if (sequence_[left].shard_list.size() > 1 || sequence_[right].shard_list.size() > 1)
          continue;
        move(right, left);
        move(left, right);
      }
    }
  }

  void move(std::size_t from, std::size_t to) {
    if (sequence_[from].is_replica()) return;
    std::vector<DimSpec> after = sequence_;
    const int axis = take_last(after[from]);
    after[to].shard_list.push_back(axis);
    if (!is_allowed(after[to])) return;
    add(StepKind::all_to_all, axis, static_cast<int>(from), static_cast<int>(to), std::move(after));
  }

  void cut() {
    for (std::size_t dim = 0; dim < sequence_.size(); ++dim) {
      for (int axis = 0; axis < mesh_axes_; ++axis) {
        const auto cuts = [axis](const DimSpec& spec) {
          return std::ranges::find(spec.shard_list, axis) != spec.shard_list.end();
        };
        if (std::ranges::any_of(sequence_, cuts)) continue;
        std::vector<DimSpec> after = sequence_;
        after[dim].shard_list.push_back(axis);
        if (!is_allowed(after[dim])) continue;
        add(StepKind::local_chunk, axis, -1, static_cast<int>(dim), std::move(after));
      }
    }
  }

  static int take_last(DimSpec& dim) {
    const int axis = dim.shard_list.back();
    dim.shard_list.pop_back();
    return axis;
  }
  bool is_allowed(const DimSpec& dim) const {
    return orders_ == AxisOrders::any || std::ranges::is_sorted(dim.shard_list);
  }
  void add(StepKind kind, int axis, int gathered, int cut, std::vector<DimSpec> after) {
    steps_.push_back({kind, axis, gathered, cut, ShardingSpec::from_sequence(std::move(after))});
  }

  const std::vector<DimSpec>& sequence_;
  const int mesh_axes_;
  const AxisOrders orders_;
  std::vector<ConversionStep> steps_;
};

// ColossalAI knows ascending axes only. Its neighbours are kept where both ends are of that kind,
// so that the path is the same as ColossalAI's; "[S10, R]" needs the others, too.
AxisOrders orders_in(const ShardingSpec& from, const ShardingSpec& to) {
  const auto ascends = [](const DimSpec& dim) { return std::ranges::is_sorted(dim.shard_list); };
  const bool all = std::ranges::all_of(from.sharding_sequence(), ascends) &&
                   std::ranges::all_of(to.sharding_sequence(), ascends);
  return all ? AxisOrders::ascending : AxisOrders::any;
}

// A gradient goes the other way: what was gathered is cut, and what was cut is gathered.
StepKind backward_of(StepKind kind) {
  if (kind == StepKind::all_gather) return StepKind::local_chunk;
  if (kind == StepKind::local_chunk) return StepKind::all_gather;
  return kind;
}

void add_costs(LayoutConversion& conversion, const Shape& shape, const std::vector<int>& mesh_shape,
               const CostModel& costs) {
  const auto elements = [&](const ShardingSpec& spec) {
    return fullest_elements(shape, mesh_shape, spec.layout(shape, mesh_shape));
  };
  double before = elements(conversion.from);
  for (const ConversionStep& step : conversion.steps) {
    const double after = elements(step.after);
    const auto axis = static_cast<std::size_t>(step.mesh_axis);
    const auto seconds = [&](StepKind kind, double first, double last) {
      return step_cost(kind, mesh_shape[axis], first, last, costs.item_bytes, costs.link(axis))
          .seconds;
    };
    conversion.forward_seconds += seconds(step.kind, before, after);
    conversion.backward_seconds += seconds(backward_of(step.kind), after, before);
    before = after;
  }
}

}  // namespace

std::string ConversionStep::to_string() const {
  std::string text = std::string(step_kind_name(kind)) + "(";
  if (gather_dim >= 0) text += "gather_dim " + std::to_string(gather_dim) + ", ";
  if (shard_dim >= 0) text += "shard_dim " + std::to_string(shard_dim) + ", ";
  return text + "axis " + std::to_string(mesh_axis) + ")";
}

std::vector<ConversionStep> one_step_conversions(const ShardingSpec& from, int mesh_axes,
                                                 AxisOrders orders) {
  return Neighbours(from, mesh_axes, orders).all();
}

std::string LayoutConversion::path() const {
  std::string text = from.to_string();
  for (const ConversionStep& step : steps) text += "->" + step.after.to_string();
  return text;
}

std::string LayoutConversion::to_string() const {
  std::string text = path() + "\n";
  for (const ConversionStep& step : steps) text += "  " + step.to_string() + "\n";
  return text + "  forward " + duration_text(forward_seconds) + ", backward " +
         duration_text(backward_seconds) + "\n";
}

LayoutConversion convert_layout(const ShardingSpec& from, const ShardingSpec& to,
                                const Shape& global_shape, const std::vector<int>& mesh_shape,
                                const CostModel& costs) {
  // Only for the errors of specs that do not fit.
  static_cast<void>(from.layout(global_shape, mesh_shape));
  static_cast<void>(to.layout(global_shape, mesh_shape));
  LayoutConversion conversion{from, {}};
  const AxisOrders orders = orders_in(from, to);
  ShardingSpec here = from;
  while (here != to) {
    const std::vector<ConversionStep> steps =
        one_step_conversions(here, static_cast<int>(mesh_shape.size()), orders);
    const auto nearest = std::ranges::min_element(
        steps, {}, [&](const ConversionStep& step) { return step.after.spec_diff(to); });
    if (nearest == steps.end() || conversion.steps.size() >= kMostSteps) {
      throw base::Error(
          base::ErrorCode::kInvalidArgument,
          "the greedy way from " + from.to_string() + " to " + to.to_string() + " does not arrive",
          std::to_string(conversion.steps.size()) + " steps led to " + here.to_string(),
          "explain(x, placements) shows the way that redistribute() takes");
    }
    conversion.steps.push_back(*nearest);
    here = nearest->after;
  }
  add_costs(conversion, global_shape, mesh_shape, costs);
  return conversion;
}

}  // namespace dtrun::dtensor
