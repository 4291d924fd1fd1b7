#include "dtrun/dtensor/plan/memory.h"

#include <algorithm>

#include "dtrun/dtensor/layout/box.h"
#include "layout/mesh_coordinate.h"
#include "plan/exchange_copies.h"

namespace dtrun::dtensor {
namespace {

using tensors::Shape;

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
        return copied_in_exchange();
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
  std::int64_t copied_in_exchange() const {
    const std::vector<int> axes = step_.axes();
    return exchange_copies(global_shape_, mesh_shape_, axes, coordinate_, before_, step_.after) +
           exchange_copies(global_shape_, mesh_shape_, axes, coordinate_, after_, step_.before);
  }

  const Shape& global_shape_;
  const std::vector<int>& mesh_shape_;
  const Step& step_;
  const std::size_t axis_;
  const std::vector<int>& coordinate_;
  const Box before_, after_;
};

/// What a rank has while one stage after the other runs, in elements.
class Course {
 public:
  explicit Course(std::int64_t first) : first_(first), peak_(first), last_(first) {}

  /// A stage that makes `result` out of what the one before has made, which is freed behind it.
  void pass(std::int64_t result, std::int64_t temporary) {
    peak_ = std::max(peak_, first_ + on_the_way_ + result + temporary);
    on_the_way_ = last_ = result;
  }
  /// The steps of a plan on a mesh.
  void pass(const Shape& global_shape, const std::vector<int>& mesh_shape,
            const std::vector<Step>& steps, const std::vector<int>& coordinate) {
    for (const Step& step : steps) {
      if (step.kind == StepKind::relabel) continue;
      const StepMemory memory(global_shape, mesh_shape, step, coordinate);
      pass(memory.result(), memory.temporary());
    }
  }
  PlanMemory memory(std::int64_t item_bytes) const {
    return {first_ * item_bytes, last_ * item_bytes, peak_ * item_bytes};
  }

 private:
  const std::int64_t first_;  ///< stays: the program has it
  std::int64_t on_the_way_ = 0;
  std::int64_t peak_;
  std::int64_t last_;
};

/// A rank's coordinate on a mesh and its part there; none outside of it.
struct Seat {
  Seat(const Shape& global_shape, const PlacedLayout& on, int rank) {
    const auto found = std::ranges::find(on.ranks, rank);
    if (found == on.ranks.end()) return;
    coordinate = coordinate_in(on.mesh_shape, static_cast<int>(found - on.ranks.begin()));
    is_taken = true;
    shape = local_box(global_shape, on.mesh_shape, coordinate, on.layout).shape;
  }
  std::int64_t elements() const { return is_taken ? tensors::numel(shape) : 0; }

  bool is_taken = false;
  std::vector<int> coordinate;
  Shape shape;
};

}  // namespace

PlanMemory plan_memory(const Shape& global_shape, const std::vector<int>& mesh_shape,
                       const Layout& from, const std::vector<Step>& steps,
                       const std::vector<int>& coordinate, std::int64_t item_bytes) {
  Course course(tensors::numel(local_box(global_shape, mesh_shape, coordinate, from).shape));
  course.pass(global_shape, mesh_shape, steps, coordinate);
  return course.memory(item_bytes);
}

PlanMemory crossing_memory(const Shape& global_shape, const PlacedLayout& from,
                           const PlacedLayout& to, const CrossMeshPlan& plan, HostImages images,
                           int rank, std::int64_t item_bytes) {
  const PlacedLayout given{from.mesh_shape, from.ranks, plan.given};
  const PlacedLayout wanted{to.mesh_shape, to.ranks, plan.wanted};
  const Seat first(global_shape, from, rank), source(global_shape, given, rank),
      target(global_shape, wanted, rank);
  Course course(first.elements());
  if (source.is_taken) course.pass(global_shape, from.mesh_shape, plan.before, source.coordinate);
  std::int64_t temporary = images == HostImages::before ? source.elements() : 0;
  for (const BoxMessage& message : BoxMessages(global_shape, given, wanted).of_rank(rank)) {
    if (message.from == message.to) continue;  // copied from one to the other
    temporary += copied(message.box.shape, message.from == rank ? source.shape : target.shape);
  }
  course.pass(target.elements(), temporary);
  if (images == HostImages::after) course.pass(target.elements(), 0);
  if (target.is_taken) course.pass(global_shape, to.mesh_shape, plan.after, target.coordinate);
  return course.memory(item_bytes);
}

}  // namespace dtrun::dtensor
