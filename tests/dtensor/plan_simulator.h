// Plan simulator: applies the steps of a redistribute plan to the boxes of all ranks in one
// process, element by element. It shares nothing with redistribute.cc but the layouts: what a step
// may read is what the ranks on one line of its axis hold, and anything else throws.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <stdexcept>
#include <vector>

#include "dtrun/dtensor/layout/box.h"
#include "dtrun/dtensor/plan/redistribute_plan.h"

namespace dtrun::dtensor {

class PlanSimulator {
 public:
  PlanSimulator(tensors::Shape shape, std::vector<int> mesh_shape)
      : shape_(std::move(shape)), mesh_shape_(std::move(mesh_shape)) {
    for (const int size : mesh_shape_) world_ *= size;
  }

  /// Every rank's local values for a global tensor in `layout`. A Partial axis splits the value
  /// unevenly over its ranks, so that no single rank holds it.
  void fill(const std::vector<double>& global, const Layout& layout) {
    layout_ = layout;
    locals_.assign(static_cast<std::size_t>(world_), {});
    for (int rank = 0; rank < world_; ++rank) {
      const Box box = box_of(rank, layout);
      for_each_index(box, [&](const tensors::Shape& index) {
        local(rank).push_back(part_of(global[flat(index)], rank, layout));
      });
    }
  }

  void run(const std::vector<Step>& steps) {
    for (const Step& step : steps) apply(step);
  }

  const Layout& layout() const { return layout_; }
  const std::vector<double>& local_of(int rank) const {
    return locals_[static_cast<std::size_t>(rank)];
  }

  /// The global value as rank `rank`'s element and, for Partial, those of the other ranks give it.
  double value_at(int rank, const tensors::Shape& index) const { return reduced(rank, index, 0); }
  Box box_of(int rank, const Layout& layout) const {
    return local_box(shape_, mesh_shape_, coordinate(rank), layout);
  }
  std::size_t flat(const tensors::Shape& index) const {
    return offset_in({tensors::Shape(shape_.size(), 0), shape_}, index);
  }
  int world() const { return world_; }

  static void for_each_index(const Box& box, const std::function<void(const tensors::Shape&)>& f) {
    std::int64_t count = 1;
    for (const std::int64_t size : box.shape) count *= size;
    for (std::int64_t i = 0; i < count; ++i) {
      tensors::Shape index = box.offsets;
      std::int64_t rest = i;
      for (std::size_t d = box.shape.size(); d-- > 0;) {
        index[d] += rest % box.shape[d];
        rest /= box.shape[d];
      }
      f(index);
    }
  }

 private:
  std::vector<double>& local(int rank) { return locals_[static_cast<std::size_t>(rank)]; }

  std::vector<int> coordinate(int rank) const {
    std::vector<int> at(mesh_shape_.size());
    for (std::size_t a = at.size(); a-- > 0;) {
      at[a] = rank % mesh_shape_[a];
      rank /= mesh_shape_[a];
    }
    return at;
  }
  /// The rank on the line of `axis` through `rank` whose coordinate there is `position`.
  int on_line(int rank, std::size_t axis, int position) const {
    std::vector<int> at = coordinate(rank);
    at[axis] = position;
    int result = 0;
    for (std::size_t a = 0; a < at.size(); ++a) result = result * mesh_shape_[a] + at[a];
    return result;
  }

  std::vector<int> ranks_along(int rank, const std::vector<int>& axes) const {
    std::vector<int> ranks = {rank};
    for (const int axis : axes) {
      std::vector<int> more;
      for (const int known : ranks) {
        for (int i = 0; i < mesh_shape_[static_cast<std::size_t>(axis)]; ++i)
          more.push_back(on_line(known, static_cast<std::size_t>(axis), i));
      }
      ranks = std::move(more);
    }
    return ranks;
  }

  static bool contains(const Box& box, const tensors::Shape& index) {
    for (std::size_t d = 0; d < index.size(); ++d) {
      if (index[d] < box.offsets[d] || index[d] >= box.offsets[d] + box.shape[d]) return false;
    }
    return true;
  }
  static std::size_t offset_in(const Box& box, const tensors::Shape& index) {
    std::int64_t offset = 0;
    for (std::size_t d = 0; d < index.size(); ++d) {
      offset = offset * box.shape[d] + index[d] - box.offsets[d];
    }
    return static_cast<std::size_t>(offset);
  }

  static double neutral(ReduceOp op) {
    const double infinity = std::numeric_limits<double>::infinity();
    switch (op) {
      case ReduceOp::product:
        return 1;
      case ReduceOp::min:
        return infinity;
      case ReduceOp::max:
        return -infinity;
      default:
        return 0;
    }
  }
  static double combine(ReduceOp op, double a, double b) {
    switch (op) {
      case ReduceOp::product:
        return a * b;
      case ReduceOp::min:
        return std::min(a, b);
      case ReduceOp::max:
        return std::max(a, b);
      default:
        return a + b;
    }
  }

  /// What `rank` holds of `value` so that every Partial axis combines to it. Powers of two keep
  /// all numbers exact.
  double part_of(double value, int rank, const Layout& layout) const {
    const std::vector<int> at = coordinate(rank);
    double part = value;
    for (std::size_t a = 0; a < at.size(); ++a) {
      if (!layout[a].is_partial() || mesh_shape_[a] == 1) continue;
      const ReduceOp op = layout[a].reduce_op();
      const double n = mesh_shape_[a];
      const bool last = at[a] == mesh_shape_[a] - 1;
      switch (op) {
        case ReduceOp::sum:
          part = last ? part - (n - 1) * part - n * (n - 1) / 2 : part + 1 + at[a];
          break;
        case ReduceOp::avg:
          part = last ? n * part - (n - 1) * part - n * (n - 1) / 2 : part + 1 + at[a];
          break;
        case ReduceOp::product:
          part = at[a] == 0 ? part * std::ldexp(1, mesh_shape_[a] - 1) : 0.5;
          break;
        case ReduceOp::min:
          part = last ? part : part + 1 + at[a];
          break;
        default:
          part = last ? part : part - 1 - at[a];
          break;
      }
    }
    return part;
  }

  double element(int rank, const tensors::Shape& index, const Layout& layout) const {
    const Box box = box_of(rank, layout);
    if (!contains(box, index)) throw std::logic_error("a step reads what its rank does not hold");
    return local_of(rank).at(offset_in(box, index));
  }

  double reduced(int rank, const tensors::Shape& index, std::size_t axis) const {
    if (axis == mesh_shape_.size()) return element(rank, index, layout_);
    if (!layout_[axis].is_partial()) return reduced(rank, index, axis + 1);
    const ReduceOp op = layout_[axis].reduce_op();
    double value = neutral(op);
    for (int i = 0; i < mesh_shape_[axis]; ++i) {
      value = combine(op, value, reduced(on_line(rank, axis, i), index, axis + 1));
    }
    return op == ReduceOp::avg ? value / mesh_shape_[axis] : value;
  }

  void apply(const Step& step) {
    if (step.before != layout_)
      throw std::logic_error("a step does not begin where the last ended");
    check(step);
    std::vector<std::vector<double>> next(locals_.size());
    for (int rank = 0; rank < world_; ++rank) {
      for_each_index(box_of(rank, step.after), [&](const tensors::Shape& index) {
        next[static_cast<std::size_t>(rank)].push_back(after_step(step, rank, index));
      });
    }
    locals_ = std::move(next);
    layout_ = step.after;
  }

  double after_step(const Step& step, int rank, const tensors::Shape& index) const {
    const std::size_t axis = static_cast<std::size_t>(step.axis);
    const Placement before = step.before[axis];
    switch (step.kind) {
      case StepKind::local_chunk:
      case StepKind::relabel:
        return element(rank, index, step.before);
      case StepKind::to_partial: {
        const ReduceOp op = step.after[axis].reduce_op();
        const bool mine = before.is_shard() ? contains(box_of(rank, step.before), index)
                                            : coordinate(rank)[axis] == 0 || op == ReduceOp::avg;
        return mine ? element(rank, index, step.before) : neutral(op);
      }
      case StepKind::all_reduce:
      case StepKind::reduce_scatter: {
        double value = neutral(before.reduce_op());
        for (int i = 0; i < mesh_shape_[axis]; ++i) {
          value = combine(before.reduce_op(), value,
                          element(on_line(rank, axis, i), index, step.before));
        }
        return before.reduce_op() == ReduceOp::avg ? value / mesh_shape_[axis] : value;
      }
      case StepKind::exchange:
        for (const int other : ranks_along(rank, step.axes())) {
          if (contains(box_of(other, step.before), index))
            return element(other, index, step.before);
        }
        break;
      case StepKind::all_gather:
      case StepKind::all_to_all:
        for (int i = 0; i < mesh_shape_[axis]; ++i) {
          const int other = on_line(rank, axis, i);
          if (contains(box_of(other, step.before), index))
            return element(other, index, step.before);
        }
    }
    throw std::logic_error("no rank on the line holds what a step needs");
  }

  /// The kind fits the placements, only one axis changes, and it is innermost where it leaves and
  /// where it comes to.
  void check(const Step& step) const {
    const std::size_t axis = static_cast<std::size_t>(step.axis);
    const Placement before = step.before[axis];
    const Placement after = step.after[axis];
    if (step.after !=
        make_layout(shape_, mesh_shape_, step.after.placements(), step.after.order())) {
      throw std::logic_error("a step ends in an incomplete layout");
    }
    if (step.kind == StepKind::relabel) {
      if (mesh_shape_[axis] != 1) throw std::logic_error("relabel of an axis of several ranks");
      return;
    }
    if (step.kind == StepKind::exchange) return check_exchange(step);
    for (std::size_t a = 0; a < mesh_shape_.size(); ++a) {
      if (a != axis && step.before[a] != step.after[a]) {
        throw std::logic_error("a step changes two axes");
      }
    }
    if (step.kind != kind_of(before, after)) throw std::logic_error("a step of the wrong kind");
    if (before.is_shard()) check_innermost(step.before, before.dim(), step.axis);
    if (after.is_shard()) check_innermost(step.after, after.dim(), step.axis);
  }
  void check_exchange(const Step& step) const {
    for (const int axis : step.axes()) {
      const auto a = static_cast<std::size_t>(axis);
      if (mesh_shape_[a] == 1) continue;
      if (!step.before.is_shard(a) || step.after.is_partial(a))
        throw std::logic_error("an exchange along an axis that does not cut, or is to be Partial");
    }
  }
  static StepKind kind_of(const Placement& before, const Placement& after) {
    if (after.is_partial() && !before.is_partial()) return StepKind::to_partial;
    if (before.is_replicate()) return StepKind::local_chunk;
    if (before.is_shard()) return after.is_shard() ? StepKind::all_to_all : StepKind::all_gather;
    if (after.is_partial()) throw std::logic_error("a step from Partial to Partial");
    return after.is_shard() ? StepKind::reduce_scatter : StepKind::all_reduce;
  }
  void check_innermost(const Layout& layout, int dim, int axis) const {
    std::vector<int> axes = layout.order().at(dim);
    std::erase_if(axes, [&](int a) { return mesh_shape_[static_cast<std::size_t>(a)] == 1; });
    if (axes.empty() || axes.back() != axis) {
      throw std::logic_error("a step moves an axis that is not innermost");
    }
  }

  tensors::Shape shape_;
  std::vector<int> mesh_shape_;
  int world_ = 1;
  Layout layout_;
  std::vector<std::vector<double>> locals_;
};

}  // namespace dtrun::dtensor
