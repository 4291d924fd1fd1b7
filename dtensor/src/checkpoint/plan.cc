#include "dtrun/dtensor/checkpoint/plan.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "dtrun/base/error.h"

namespace dtrun::dtensor::dcp {

using base::Error;
using base::ErrorCode;
using tensors::Shape;

namespace {

std::string box_text(const Box& box) {
  std::string text = "[";
  for (std::size_t dim = 0; dim < box.shape.size(); ++dim) {
    text += (dim == 0 ? "" : ", ") + std::to_string(box.offsets[dim]) + ":" +
            std::to_string(static_cast<std::uint64_t>(box.offsets[dim]) +
                           static_cast<std::uint64_t>(box.shape[dim]));
  }
  return text + "]";
}

std::vector<std::int64_t> numbers_of(const Box& box) {
  std::vector<std::int64_t> numbers(box.offsets.begin(), box.offsets.end());
  numbers.insert(numbers.end(), box.shape.begin(), box.shape.end());
  return numbers;
}

bool overlap(const Box& a, const Box& b) {
  for (std::size_t dim = 0; dim < a.shape.size(); ++dim) {
    if (a.offsets[dim] >= b.offsets[dim] + b.shape[dim] ||
        b.offsets[dim] >= a.offsets[dim] + a.shape[dim])
      return false;
  }
  return true;
}

/// The dim in which the boxes begin at the most different places: along it few are next to a box.
std::size_t busiest_dim(std::size_t dims, const std::vector<Box>& boxes) {
  std::size_t busiest = 0, most = 0;
  for (std::size_t dim = 0; dim < dims; ++dim) {
    std::set<std::int64_t> places;
    for (const Box& box : boxes) places.insert(box.offsets[dim]);
    if (places.size() > most) most = places.size(), busiest = dim;
  }
  return busiest;
}

/// Those of a pair that share elements; null: there are none.
std::pair<const Box*, const Box*> shared(std::size_t dims, const std::vector<Box>& boxes) {
  if (dims == 0) return {boxes.data(), boxes.data() + 1};
  const std::size_t dim = busiest_dim(dims, boxes);
  std::vector<const Box*> sorted, open;
  for (const Box& box : boxes) sorted.push_back(&box);
  std::ranges::sort(sorted, {}, [dim](const Box* box) { return box->offsets[dim]; });
  for (const Box* const box : sorted) {
    std::erase_if(open, [&](const Box* other) {
      return other->offsets[dim] + other->shape[dim] <= box->offsets[dim];
    });
    for (const Box* const other : open) {
      if (overlap(*box, *other)) return {other, box};
    }
    open.push_back(box);
  }
  return {nullptr, nullptr};
}

/// One box of a tensor, and who has it.
struct HeldBox {
  std::size_t tensor;
  Box box;
  std::vector<int> holders;
  std::uint64_t bytes;
};

void check_alike(const TensorPart& a, const TensorPart& b, int rank) {
  if (a.dtype == b.dtype && a.shape == b.shape) return;
  const auto text = [](const TensorPart& part) {
    return std::string(tensors::dtype_short_name(part.dtype)) +
           tensors::shape_to_string(part.shape);
  };
  throw Error(ErrorCode::kDisagreement,
              "\"" + a.name + "\" is " + text(b) + " on rank " + std::to_string(rank) + " and " +
                  text(a) + " on a rank before it",
              "one name is one tensor of all ranks", "different names for different tensors");
}

/// A piece for each of at most so many ranks: along the first dim that can be cut, so that each
/// stands in one piece in its holders' memory.
std::vector<Box> pieces_of(const Box& box, std::int64_t most) {
  std::size_t dim = 0;
  while (dim < box.shape.size() && box.shape[dim] == 1) ++dim;
  if (dim == box.shape.size()) return {box};
  const std::int64_t count = std::min(most, box.shape[dim]);
  std::vector<Box> pieces;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t begin = box.shape[dim] * i / count, end = box.shape[dim] * (i + 1) / count;
    pieces.push_back(box);
    pieces.back().offsets[dim] += begin;
    pieces.back().shape[dim] = end - begin;
  }
  return pieces;
}

/// By tensor and place; boxes without elements are nobody's.
std::vector<HeldBox> held_boxes(const std::vector<std::vector<TensorPart>>& parts,
                                std::vector<TensorPart>& tensors) {
  std::map<std::string, TensorPart> by_name;
  std::map<std::string, std::map<std::vector<std::int64_t>, HeldBox>> boxes;
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    for (const TensorPart& part : parts[rank]) {
      const auto [known, is_new] = by_name.try_emplace(part.name, part);
      if (!is_new) check_alike(known->second, part, static_cast<int>(rank));
      if (!part.box || tensors::numel(part.box->shape) == 0) continue;
      const std::uint64_t bytes = static_cast<std::uint64_t>(tensors::numel(part.box->shape)) *
                                  tensors::item_size(part.dtype);
      HeldBox& held = boxes[part.name]
                          .try_emplace(numbers_of(*part.box), HeldBox{0, *part.box, {}, bytes})
                          .first->second;
      held.holders.push_back(static_cast<int>(rank));
    }
  }
  std::vector<HeldBox> all;
  for (auto& [name, part] : by_name) {
    std::vector<Box> of_tensor;
    for (auto& [place, held] : boxes[name]) {
      held.tensor = tensors.size();
      of_tensor.push_back(held.box);
      all.push_back(std::move(held));
    }
    const std::string fault = tiling_fault(part.shape, of_tensor);
    if (!fault.empty())
      throw Error(ErrorCode::kInvalidArgument, "cannot save \"" + name + "\"",
                  "the ranks' parts of it " + fault,
                  "all ranks of its mesh must save; a tensor that is each rank's own needs a name "
                  "of its own");
    part.box.reset();
    tensors.push_back(std::move(part));
  }
  return all;
}

}  // namespace

std::string tiling_fault(const Shape& shape, const std::vector<Box>& boxes) {
  std::int64_t left = tensors::numel(shape);
  for (const Box& box : boxes) {
    for (std::size_t dim = 0; dim < shape.size(); ++dim) {
      if (box.shape[dim] < 1) return "have one without elements: " + box_text(box);
      if (box.offsets[dim] < 0 || box.shape[dim] > shape[dim] ||
          box.offsets[dim] > shape[dim] - box.shape[dim])
        return "have one outside of " + tensors::shape_to_string(shape) + ": " + box_text(box);
    }
    left -= tensors::numel(box.shape);
    if (left < 0) break;
  }
  if (boxes.size() > 1) {
    const auto [a, b] = shared(shape.size(), boxes);
    if (a != nullptr) return "overlap: " + box_text(*a) + " and " + box_text(*b);
  }
  if (left > 0) return "lack " + std::to_string(left) + " of its elements";
  return "";
}

std::uint64_t SavePlan::bytes_of(const PlannedChunk& chunk) const {
  return static_cast<std::uint64_t>(tensors::numel(chunk.box.shape)) *
         tensors::item_size(tensors[chunk.tensor].dtype);
}

SavePlan plan_save(const std::vector<std::vector<TensorPart>>& parts, std::uint64_t split_above) {
  SavePlan plan;
  const std::vector<HeldBox> boxes = held_boxes(parts, plan.tensors);
  std::uint64_t total = 0;
  for (const HeldBox& held : boxes) total += held.bytes;
  const std::uint64_t share = std::max({total / parts.size(), split_above, std::uint64_t{1}});
  std::vector<std::size_t> order(boxes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  // Boxes of one holder leave no choice; then the largest first.
  std::ranges::stable_sort(order, {}, [&](std::size_t i) {
    return std::tuple(boxes[i].holders.size() > 1, ~boxes[i].bytes);
  });
  std::vector<std::uint64_t> written(parts.size(), 0);
  for (const std::size_t i : order) {
    const HeldBox& held = boxes[i];
    const auto most = static_cast<std::int64_t>(
        std::min<std::uint64_t>(held.holders.size(), (held.bytes + share - 1) / share));
    std::vector<int> free = held.holders;
    for (const Box& piece : pieces_of(held.box, most)) {
      const auto writer = std::ranges::min_element(
          free, {}, [&](int rank) { return written[static_cast<std::size_t>(rank)]; });
      plan.chunks.push_back({held.tensor, piece, *writer});
      written[static_cast<std::size_t>(*writer)] += plan.bytes_of(plan.chunks.back());
      free.erase(writer);
    }
  }
  std::ranges::sort(plan.chunks, {}, [](const PlannedChunk& chunk) {
    return std::tuple(chunk.tensor, numbers_of(chunk.box));
  });
  return plan;
}

ByteRuns::ByteRuns(const Box& from, const Box& to, std::size_t item_bytes)
    : ByteRuns(from, to, item_bytes, intersection(from, to)) {}

ByteRuns::ByteRuns(const Box& from, const Box& to, std::size_t item_bytes, const Box& part)
    : common_(part) {
  elements_ = static_cast<std::uint64_t>(tensors::numel(common_.shape));
  is_done_ = elements_ == 0;
  // What the inner dims have in common stands in one piece on both sides, as long as it is all of
  // both; the next dim outwards may be cut.
  std::uint64_t piece = item_bytes;
  outer_dims_ = common_.shape.size();
  while (outer_dims_ > 0) {
    const std::size_t dim = --outer_dims_;
    piece *= static_cast<std::uint64_t>(common_.shape[dim]);
    if (common_.shape[dim] != from.shape[dim] || common_.shape[dim] != to.shape[dim]) break;
  }
  const Shape from_all = tensors::contiguous_strides(from.shape),
              to_all = tensors::contiguous_strides(to.shape);
  first_.bytes = piece;
  for (std::size_t dim = 0; dim < common_.shape.size(); ++dim) {
    const auto item = static_cast<std::int64_t>(item_bytes);
    first_.from += static_cast<std::uint64_t>((common_.offsets[dim] - from.offsets[dim]) *
                                              from_all[dim] * item);
    first_.to +=
        static_cast<std::uint64_t>((common_.offsets[dim] - to.offsets[dim]) * to_all[dim] * item);
    if (dim < outer_dims_) {
      from_strides_.push_back(from_all[dim] * item);
      to_strides_.push_back(to_all[dim] * item);
    }
  }
  at_ = Shape(outer_dims_, 0);
}

ByteRun ByteRuns::take() {
  ByteRun run = first_;
  for (std::size_t dim = 0; dim < outer_dims_; ++dim) {
    run.from += static_cast<std::uint64_t>(at_[dim] * from_strides_[dim]);
    run.to += static_cast<std::uint64_t>(at_[dim] * to_strides_[dim]);
  }
  std::size_t dim = outer_dims_;
  while (dim > 0 && ++at_[dim - 1] == common_.shape[dim - 1]) at_[--dim] = 0;
  is_done_ = dim == 0;
  return run;
}

std::optional<ByteRun> ByteRuns::next() {
  while (!is_done_) {
    ByteRun run = take();
    if (run.from >= end_) is_done_ = true;
    const std::uint64_t before = begin_ > run.from ? begin_ - run.from : 0;
    if (run.from >= end_ || before >= run.bytes) continue;
    run = {run.from + before, run.to + before, run.bytes - before};
    run.bytes = std::min(run.bytes, end_ - run.from);
    return run;
  }
  return std::nullopt;
}

ByteRuns ByteRuns::within(std::uint64_t begin, std::uint64_t end) const {
  ByteRuns part = *this;
  part.begin_ = std::max(begin_, begin);
  part.end_ = std::min(end_, end);
  part.seek(part.begin_);
  return part;
}

// To the last run that begins there or before: a step of an outer dim is longer than all steps of
// the dims within it.
void ByteRuns::seek(std::uint64_t begin) {
  if (is_done_ || begin <= first_.from) return;
  auto left = static_cast<std::int64_t>(begin - first_.from);
  Shape place(outer_dims_, 0);
  for (std::size_t dim = 0; dim < outer_dims_; ++dim) {
    place[dim] = std::min(left / from_strides_[dim], common_.shape[dim] - 1);
    left -= place[dim] * from_strides_[dim];
  }
  if (std::ranges::lexicographical_compare(at_, place)) at_ = place;
}

}  // namespace dtrun::dtensor::dcp
