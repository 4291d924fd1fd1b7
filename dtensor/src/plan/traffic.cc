#include "dtrun/dtensor/plan/traffic.h"

#include <algorithm>
#include <optional>

#include "dtrun/dtensor/layout/box.h"
#include "plan/exchange.h"

namespace dtrun::dtensor {
namespace {

using tensors::Shape;

/// The shape that a layout leaves of a tensor at a coordinate.
class CutShape {
 public:
  CutShape(const Shape& shape, const std::vector<int>& mesh_shape, const Layout& layout)
      : whole_(shape), layout_(layout) {
    for (int depth = 0; depth < static_cast<int>(layout.axes()); ++depth) {
      for (std::size_t axis = 0; axis < layout.axes(); ++axis) {
        if (!layout.is_shard(axis) || layout.depth(axis) != depth) continue;
        cuts_.push_back({axis, static_cast<std::size_t>(layout.dim(axis)), mesh_shape[axis]});
      }
    }
  }

  Shape at(const std::vector<int>& coordinate) const {
    Shape shape = whole_;
    for (const AxisCut& cut : cuts_) {
      shape[cut.dim] =
          layout_.chunk(cut.axis, shape[cut.dim], cut.parts, coordinate[cut.axis]).size;
    }
    return shape;
  }
  /// All ranks have the same shape.
  bool is_even() const {
    Shape shape = whole_;
    return std::all_of(cuts_.begin(), cuts_.end(), [&](const AxisCut& cut) {
      std::int64_t& size = shape[cut.dim];
      const bool divides = !layout_.is_ragged(cut.axis) && size % cut.parts == 0;
      size /= cut.parts;
      return divides;
    });
  }
  void mark_axes(std::vector<bool>& axes) const {
    for (const AxisCut& cut : cuts_) axes[cut.axis] = true;
  }

 private:
  struct AxisCut {
    std::size_t axis;
    std::size_t dim;
    int parts;
  };
  const Shape& whole_;
  const Layout layout_;
  std::vector<AxisCut> cuts_;  ///< outermost first
};

/// What an exchange moves: a rank gives each element that it has to all that have it afterwards.
class ExchangeTraffic {
 public:
  ExchangeTraffic(const Shape& shape, const std::vector<int>& mesh_shape, const Step& step)
      : shape_(shape),
        mesh_shape_(mesh_shape),
        step_(step),
        copies_(copies_after_exchange(mesh_shape, step.before, step.after)) {}

  Traffic at(const std::vector<int>& coordinate) const {
    const Box before = local_box(shape_, mesh_shape_, coordinate, step_.before);
    const Box after = local_box(shape_, mesh_shape_, coordinate, step_.after);
    const std::int64_t kept = tensors::numel(intersection(before, after).shape);
    return {tensors::numel(before.shape) * copies_ - kept, tensors::numel(after.shape) - kept};
  }

 private:
  const Shape& shape_;
  const std::vector<int>& mesh_shape_;
  const Step& step_;
  const int copies_;
};

class StepTraffic {
 public:
  StepTraffic(const Shape& shape, const std::vector<int>& mesh_shape, const Step& step)
      : exchange_(shape, mesh_shape, step),
        kind_(step.kind),
        axes_(step.axes()),
        axis_(static_cast<std::size_t>(step.axis)),
        ranks_(mesh_shape[axis_]),
        layout_after_(step.after),
        before_(shape, mesh_shape, step.before),
        after_(shape, mesh_shape, step.after) {
    const std::vector<int> first(mesh_shape.size(), 0);
    if (is_same_for_all(first)) of_all_ = at(first);
  }

  /// In elements.
  Traffic at(const std::vector<int>& coordinate) const {
    if (of_all_) return *of_all_;
    if (!is_collective(kind_)) return {};
    if (kind_ == StepKind::exchange) return exchange_.at(coordinate);
    const Shape before = before_.at(coordinate);
    const std::int64_t had = tensors::numel(before);
    const std::int64_t has = tensors::numel(after_.at(coordinate));
    const std::int64_t others = ranks_ - 1;
    switch (kind_) {
      case StepKind::all_gather:
        return {had * others, has - had};
      case StepKind::all_to_all: {
        const std::int64_t kept = own_chunk(before, coordinate);
        return {had - kept, has - kept};
      }
      case StepKind::reduce_scatter:
        return {had - has, has * others};
      default: {
        // Each rank reduces a part and gives the result to all.
        const std::int64_t part = chunk_of(had, ranks_, coordinate[axis_]).size;
        return {had - part + part * others, had - part + part * others};
      }
    }
  }
  /// Those that what is sent depends on.
  void mark_axes(std::vector<bool>& axes) const {
    if (of_all_) return;
    for (const int axis : axes_) axes[static_cast<std::size_t>(axis)] = true;
    before_.mark_axes(axes);
    after_.mark_axes(axes);
  }

 private:
  /// Whatever the coordinate is: then a mesh of many ranks need not be walked.
  bool is_same_for_all(const std::vector<int>& first) const {
    if (kind_ == StepKind::exchange || !before_.is_even() || !after_.is_even()) return false;
    const Shape before = before_.at(first);
    if (kind_ == StepKind::all_reduce) return tensors::numel(before) % ranks_ == 0;
    if (kind_ != StepKind::all_to_all) return true;
    const auto dim = static_cast<std::size_t>(layout_after_.dim(axis_));
    return !layout_after_.is_ragged(axis_) && before[dim] % ranks_ == 0;
  }

  std::int64_t own_chunk(Shape shape, const std::vector<int>& coordinate) const {
    std::int64_t& size = shape[static_cast<std::size_t>(layout_after_.dim(axis_))];
    size = layout_after_.chunk(axis_, size, ranks_, coordinate[axis_]).size;
    return tensors::numel(shape);
  }

  const ExchangeTraffic exchange_;
  const StepKind kind_;
  const std::vector<int> axes_;
  const std::size_t axis_;
  const int ranks_;
  const Layout layout_after_;
  const CutShape before_;
  const CutShape after_;
  std::optional<Traffic> of_all_;
};

std::vector<StepTraffic> traffic_of(const Shape& shape, const std::vector<int>& mesh_shape,
                                    const std::vector<Step>& steps) {
  std::vector<StepTraffic> traffic;
  for (const Step& step : steps) {
    if (is_collective(step.kind)) traffic.emplace_back(shape, mesh_shape, step);
  }
  return traffic;
}

/// The next coordinate of those that differ on marked axes only. @return false after the last one
bool advance(std::vector<int>& coordinate, const std::vector<int>& mesh_shape,
             const std::vector<bool>& marked) {
  for (std::size_t axis = mesh_shape.size(); axis-- > 0;) {
    if (!marked[axis]) continue;
    if (++coordinate[axis] < mesh_shape[axis]) return true;
    coordinate[axis] = 0;
  }
  return false;
}

}  // namespace

std::vector<Traffic> plan_traffic(const Shape& global_shape, const std::vector<int>& mesh_shape,
                                  const std::vector<Step>& steps,
                                  const std::vector<int>& coordinate, std::int64_t item_bytes) {
  std::vector<Traffic> traffic;
  for (const Step& step : steps) {
    const Traffic elements = StepTraffic(global_shape, mesh_shape, step).at(coordinate);
    traffic.push_back({elements.sent * item_bytes, elements.received * item_bytes});
  }
  return traffic;
}

MeshTraffic mesh_traffic(const Shape& global_shape, const std::vector<int>& mesh_shape,
                         const std::vector<Step>& steps, std::int64_t item_bytes) {
  const std::vector<StepTraffic> each = traffic_of(global_shape, mesh_shape, steps);
  std::vector<bool> marked(mesh_shape.size(), false);
  for (const StepTraffic& step : each) step.mark_axes(marked);
  std::int64_t alike = 1;
  for (std::size_t axis = 0; axis < mesh_shape.size(); ++axis) {
    if (!marked[axis]) alike *= mesh_shape[axis];
  }
  MeshTraffic result;
  std::vector<int> coordinate(mesh_shape.size(), 0);
  do {
    Traffic traffic;
    for (const StepTraffic& step : each) traffic += step.at(coordinate);
    result.total += traffic.sent * alike * item_bytes;
    if (traffic.sent * item_bytes > result.busiest.sent) {
      result.busiest = {traffic.sent * item_bytes, traffic.received * item_bytes};
    }
  } while (advance(coordinate, mesh_shape, marked));
  return result;
}

}  // namespace dtrun::dtensor
