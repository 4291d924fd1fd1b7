#include "dtrun/dtensor/plan/memory.h"

#include <algorithm>

#include "dtrun/dtensor/layout/box.h"

namespace dtrun::dtensor {
namespace {

using tensors::Shape;

/// Whether a part of a tensor that lies in rows is itself without gaps.
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

/// What a collective copies of it, before or after: all of a part with gaps.
std::int64_t copied(const Shape& part, const Shape& whole) {
  return lies_together(part, whole) ? 0 : tensors::numel(part);
}

/// Of one step, in elements; what move/ does, without doing it.
class StepMemory {
 public:
  StepMemory(const Shape& global_shape, const std::vector<int>& mesh_shape, const Step& step,
             const std::vector<int>& coordinate)
      : global_shape_(global_shape),
        mesh_shape_(mesh_shape),
        step_(step),
        axis_(static_cast<std::size_t>(step.axis)),
        coordinate_(coordinate),
        before_(box_at(coordinate, step.before)),
        after_(box_at(coordinate, step.after)) {}

  /// The result, where it is not the same memory.
  std::int64_t result() const {
    return step_.kind == StepKind::relabel ? 0 : tensors::numel(after_.shape);
  }
  /// Only until the step is over.
  std::int64_t temporary() const {
    switch (step_.kind) {
      case StepKind::all_gather:
        return chunks_copied(after_.shape, step_.before);
      case StepKind::reduce_scatter:
        return chunks_copied(before_.shape, step_.after);
      case StepKind::all_to_all: {
        const bool is_packed = step_.before.dim(axis_) == 0 &&
                               is_even(after_.shape, step_.before) &&
                               is_even(before_.shape, step_.after);
        if (is_packed) return tensors::numel(before_.shape);
        return chunks_copied(after_.shape, step_.before) +
               chunks_copied(before_.shape, step_.after);
      }
      case StepKind::exchange:
        return exchange_copies();
      default:
        return 0;
    }
  }

 private:
  Box box_at(const std::vector<int>& coordinate, const Layout& layout) const {
    return local_box(global_shape_, mesh_shape_, coordinate, layout);
  }
  bool is_even(const Shape& shape, const Layout& layout) const {
    const std::int64_t size = shape[static_cast<std::size_t>(layout.dim(axis_))];
    return !layout.is_ragged(axis_) && size % mesh_shape_[axis_] == 0;
  }

  /// Of the chunks that the axis cuts `shape` into.
  std::int64_t chunks_copied(const Shape& shape, const Layout& layout) const {
    const auto dim = static_cast<std::size_t>(layout.dim(axis_));
    std::int64_t elements = 0;
    for (int rank = 0; rank < mesh_shape_[axis_]; ++rank) {
      Shape chunk = shape;
      chunk[dim] = layout.chunk(axis_, shape[dim], mesh_shape_[axis_], rank).size;
      elements += copied(chunk, shape);
    }
    return elements;
  }

  /// Of what this rank gives to each along the axes, and gets from it.
  std::int64_t exchange_copies() const {
    std::int64_t elements = 0;
    std::vector<int> other = coordinate_;
    const std::vector<int> axes = step_.axes();
    for (const int axis : axes) other[static_cast<std::size_t>(axis)] = 0;
    do {
      const Box given = intersection(before_, box_at(other, step_.after));
      const Box got = intersection(after_, box_at(other, step_.before));
      elements += copied(given.shape, before_.shape) + copied(got.shape, after_.shape);
    } while (advance(other, axes));
    return elements;
  }
  bool advance(std::vector<int>& coordinate, const std::vector<int>& axes) const {
    for (const int axis : axes) {
      const auto at = static_cast<std::size_t>(axis);
      if (++coordinate[at] < mesh_shape_[at]) return true;
      coordinate[at] = 0;
    }
    return false;
  }

  const Shape& global_shape_;
  const std::vector<int>& mesh_shape_;
  const Step& step_;
  const std::size_t axis_;
  const std::vector<int>& coordinate_;
  const Box before_, after_;
};

}  // namespace

PlanMemory plan_memory(const Shape& global_shape, const std::vector<int>& mesh_shape,
                       const Layout& from, const std::vector<Step>& steps,
                       const std::vector<int>& coordinate, std::int64_t item_bytes) {
  const auto elements_in = [&](const Layout& layout) {
    return tensors::numel(local_box(global_shape, mesh_shape, coordinate, layout).shape);
  };
  const std::int64_t first = elements_in(from);
  std::int64_t peak = first, on_the_way = 0;
  for (const Step& step : steps) {
    const StepMemory memory(global_shape, mesh_shape, step, coordinate);
    const std::int64_t result = memory.result();
    peak = std::max(peak, first + on_the_way + result + memory.temporary());
    if (step.kind != StepKind::relabel) on_the_way = result;
  }
  const std::int64_t last = steps.empty() ? first : elements_in(steps.back().after);
  return {first * item_bytes, last * item_bytes, peak * item_bytes};
}

}  // namespace dtrun::dtensor
