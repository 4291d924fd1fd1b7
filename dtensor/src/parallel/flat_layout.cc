#include "parallel/flat_layout.h"

#include <utility>

namespace dtrun::dtensor {

using tensors::LocalTensor;
using tensors::Shape;

namespace {
/// 64 bytes of the smallest elements.
constexpr std::int64_t kAligned = 64;
}  // namespace

FlatLayout::FlatLayout(std::vector<Shape> shapes, int ranks, std::vector<int> dims)
    : shapes_(std::move(shapes)),
      dims_(std::move(dims)),
      ranks_(ranks),
      part_offsets_(index(ranks)) {
  dims_.resize(shapes_.size());
  for (const Shape& shape : shapes_) {
    whole_offsets_.push_back(whole_elements_);
    whole_elements_ += (tensors::numel(shape) + kAligned - 1) / kAligned * kAligned;
  }
  for (int rank = 0; rank < ranks_; ++rank) {
    std::int64_t elements = 0;
    for (std::size_t i = 0; i < shapes_.size(); ++i) {
      part_offsets_[index(rank)].push_back(elements);
      elements += tensors::numel(part_shape(i, rank));
    }
    part_elements_.push_back(elements);
  }
}

Chunk FlatLayout::chunk(std::size_t tensor, int rank) const {
  return chunk_of(shapes_[tensor][index(dims_[tensor])], ranks_, rank);
}

Shape FlatLayout::part_shape(std::size_t tensor, int rank) const {
  Shape shape = shapes_[tensor];
  if (dims_[tensor] == kNoDim) return shape;
  shape[index(dims_[tensor])] = chunk(tensor, rank).size;
  return shape;
}

LocalTensor FlatLayout::whole(const LocalTensor& block, std::size_t tensor) const {
  return block.narrow(0, whole_offsets_[tensor], tensors::numel(shapes_[tensor]))
      .view(shapes_[tensor]);
}

LocalTensor FlatLayout::part(const LocalTensor& block, std::size_t tensor, int rank) const {
  const Shape shape = part_shape(tensor, rank);
  return block.narrow(0, part_offsets_[index(rank)][tensor], tensors::numel(shape)).view(shape);
}

LocalTensor FlatLayout::rows(const LocalTensor& whole, std::size_t tensor, int rank) const {
  if (dims_[tensor] == kNoDim) return whole;
  const Chunk its = chunk(tensor, rank);
  return whole.narrow(dims_[tensor], its.offset, its.size);
}

}  // namespace dtrun::dtensor
