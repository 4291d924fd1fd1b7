#include "ops/cut_line.h"

#include <algorithm>
#include <utility>

#include "dtrun/dtensor/layout/box.h"
#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/ops/index.h"
#include "move/cause.h"
#include "move/move_log.h"
#include "move/move_observer.h"
#include "plan/step_cost.h"

namespace dtrun::dtensor {
namespace {

/// Of a dim.
struct Stretch {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

Stretch stretch_of(const Box& box, int dim) {
  const auto place = static_cast<std::size_t>(dim);
  return {box.offsets[place], box.offsets[place] + box.shape[place]};
}

/// The parts of the moves that lead from one stretch into another.
std::vector<BlockMove> moves_between(const std::vector<BlockMove>& moves, BlockOrder order,
                                     const Stretch& source, const Stretch& target) {
  std::vector<BlockMove> parts;
  for (const BlockMove& move : moves) {
    const bool is_reversed = order == BlockOrder::reversed;
    // Where the target's stretch comes from.
    const std::int64_t wanted = std::max(target.begin, move.to) - move.to;
    const std::int64_t wanted_end = std::min(target.end, move.to + move.length) - move.to;
    const std::int64_t first = move.from + (is_reversed ? move.length - wanted_end : wanted);
    const std::int64_t begin = std::max(first, source.begin);
    const std::int64_t end = std::min(first + wanted_end - wanted, source.end);
    if (wanted >= wanted_end || begin >= end) continue;
    const std::int64_t to =
        move.to + (is_reversed ? move.from + move.length - end : begin - move.from);
    parts.push_back({begin, to, end - begin});
  }
  return parts;
}

/// The ranks among whom a dim is dealt, as a group: those of the one axis that cuts it, or all, of
/// whom some have other parts of other dims.
class Line {
 public:
  Line(const Tensor& a, int dim) : a_(a), mesh_(a.device_mesh()), dim_(dim) {
    const Layout& layout = a.spec().layout();
    for (std::size_t axis = 0; axis < layout.axes(); ++axis) {
      if (layout.is_shard(axis) && layout.dim(axis) == dim && mesh_.shape()[axis] > 1)
        axes_.push_back(axis);
    }
  }

  const std::vector<std::size_t>& axes() const { return axes_; }
  int ranks() const {
    return axes_.size() == 1 ? mesh_.shape()[axes_[0]] : static_cast<int>(mesh_.size());
  }
  /// This rank's place in the group.
  int rank() const { return axes_.size() == 1 ? mesh_.coordinate()[axes_[0]] : mesh_.rank(); }
  const ProcessGroup& group() const {
    return axes_.size() == 1 ? mesh_.group(static_cast<int>(axes_[0])) : mesh_.group();
  }
  /// Of the dim, what that rank of the group has; nothing where it is none of the line.
  Stretch stretch(int rank) const {
    std::vector<int> coordinate = mesh_.coordinate();
    if (axes_.size() == 1) {
      coordinate[axes_[0]] = rank;
    } else {
      const std::vector<int> other = mesh_.coordinate_of(rank);
      for (const std::size_t axis : axes_) coordinate[axis] = other[axis];
      if (coordinate != other) return {};
    }
    return stretch_of(local_box(a_.shape(), mesh_.shape(), coordinate, a_.spec().layout()), dim_);
  }

 private:
  const Tensor& a_;
  const DeviceMesh mesh_;
  const int dim_;
  std::vector<std::size_t> axes_;
};

LocalTensor block_for(const LocalTensor& like, int dim, const std::vector<BlockMove>& moves) {
  Shape shape = like.shape();
  std::int64_t& size = shape[static_cast<std::size_t>(dim)];
  size = 0;
  for (const BlockMove& move : moves) size += move.length;
  return tensors::empty(shape, {like.dtype(), like.device()});
}

/// The elements that a rank gives to another, one move behind the other.
LocalTensor packed(const LocalTensor& part, int dim, std::int64_t begin,
                   const std::vector<BlockMove>& moves) {
  if (moves.size() == 1) return part.narrow(dim, moves[0].from - begin, moves[0].length);
  const LocalTensor block = block_for(part, dim, moves);
  std::int64_t next = 0;
  for (const BlockMove& move : moves) {
    block.narrow(dim, next, move.length).copy_(part.narrow(dim, move.from - begin, move.length));
    next += move.length;
  }
  return block;
}

void unpack(const LocalTensor& block, int dim, std::int64_t begin,
            const std::vector<BlockMove>& moves, BlockOrder order, const LocalTensor& result) {
  std::int64_t next = 0;
  for (const BlockMove& move : moves) {
    const LocalTensor elements = block.narrow(dim, next, move.length);
    result.narrow(dim, move.to - begin, move.length)
        .copy_(order == BlockOrder::kept ? elements : tensors::flip(elements, {dim}));
    next += move.length;
  }
}

std::int64_t length_of(const std::vector<BlockMove>& moves) {
  std::int64_t length = 0;
  for (const BlockMove& move : moves) length += move.length;
  return length;
}

/// Along the dim, in its elements, of that rank of the line.
Traffic traffic_along(const Line& line, int rank, const std::vector<BlockMove>& moves,
                      BlockOrder order) {
  const Stretch own = line.stretch(rank);
  Traffic traffic;
  for (int peer = 0; peer < line.ranks(); ++peer) {
    if (peer == rank) continue;
    const Stretch other = line.stretch(peer);
    traffic += {length_of(moves_between(moves, order, own, other)),
                length_of(moves_between(moves, order, other, own))};
  }
  return traffic;
}

/// @param part whose other dims each element of `dim` has
Traffic in_bytes(const Traffic& along, Shape part, int dim, DType dtype) {
  part[static_cast<std::size_t>(dim)] = 1;
  const auto bytes = tensors::numel(part) * static_cast<std::int64_t>(tensors::item_size(dtype));
  return {along.sent * bytes, along.received * bytes};
}

/// Other dims are cut by other axes: some rank has the most of both.
BlockMovement movement_of(const Tensor& a, int dim, const Line& line,
                          const std::vector<BlockMove>& moves, BlockOrder order) {
  const auto most = [](const Traffic& traffic) { return std::max(traffic.sent, traffic.received); };
  Traffic busiest;
  for (int rank = 0; rank < line.ranks(); ++rank) {
    const Traffic one = traffic_along(line, rank, moves, order);
    if (most(one) > most(busiest)) busiest = one;
  }
  const Shape fullest = fullest_shape(a.shape(), a.device_mesh().shape(), a.spec().layout());
  const Traffic own = traffic_along(line, line.rank(), moves, order);
  return {a.spec(), dim, line.axes(), in_bytes(own, a.local().shape(), dim, a.dtype()),
          in_bytes(busiest, fullest, dim, a.dtype())};
}

}  // namespace

Tensor moved_along(std::string_view op, const Tensor& a, int dim,
                   const std::vector<BlockMove>& moves, BlockOrder order) {
  const LocalTensor& part = a.local();
  const auto zeros = [&] {
    return Tensor(a.spec(), tensors::zeros(part.shape(), {part.dtype(), part.device()}));
  };
  if (a.spec().is_outside()) return zeros();
  const Cause cause(op, 0);
  const Line line(a, dim);
  const Stretch own = stretch_of(a.spec().local_box(), dim);
  if (MoveObserver::any() || are_moves_logged()) {
    const BlockMovement movement = movement_of(a, dim, line, moves, order);
    if (!MoveObserver::allow(movement)) return zeros();
    log_blocks(movement);
  }
  std::vector<std::vector<BlockMove>> coming;
  std::vector<LocalTensor> received, sent;
  for (int rank = 0; rank < line.ranks(); ++rank) {
    const Stretch other = line.stretch(rank);
    sent.push_back(packed(part, dim, own.begin, moves_between(moves, order, own, other)));
    coming.push_back(moves_between(moves, order, other, own));
    received.push_back(block_for(part, dim, coming.back()));
  }
  line.group().all_to_all(received, sent, {}, Cause::site_of_call());
  LocalTensor result = tensors::empty(part.shape(), {part.dtype(), part.device()});
  for (std::size_t rank = 0; rank < received.size(); ++rank) {
    unpack(received[rank], dim, own.begin, coming[rank], order, result);
  }
  return Tensor(a.spec(), std::move(result));
}

}  // namespace dtrun::dtensor
