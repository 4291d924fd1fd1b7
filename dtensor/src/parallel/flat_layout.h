// FlatLayout: where tensors lie in one block of memory: whole, one after the other, and as what
// each of several ranks has of them by rows. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "dtrun/dtensor/layout/chunk.h"
#include "dtrun/tensor/tensor.h"

namespace dtrun::dtensor {

class FlatLayout {
 public:
  /// Of a tensor that is not cut: each rank has all of it.
  static constexpr int kNoDim = -1;

  /// @param shapes of the whole tensors; of at least one dim where they are cut
  /// @param dims that are cut, by torch.chunk's rule, or kNoDim; empty: dim 0 of all
  FlatLayout(std::vector<tensors::Shape> shapes, int ranks, std::vector<int> dims = {});

  std::size_t count() const { return shapes_.size(); }
  int ranks() const { return ranks_; }
  const tensors::Shape& shape(std::size_t tensor) const { return shapes_[tensor]; }

  /// Elements of all whole tensors; each begins at a cache line.
  std::int64_t whole_elements() const { return whole_elements_; }
  tensors::LocalTensor whole(const tensors::LocalTensor& block, std::size_t tensor) const;

  /// Elements of what a rank has of all tensors.
  std::int64_t part_elements(int rank) const { return part_elements_[index(rank)]; }
  tensors::Shape part_shape(std::size_t tensor, int rank) const;
  /// @param block what the rank has, at its beginning
  tensors::LocalTensor part(const tensors::LocalTensor& block, std::size_t tensor, int rank) const;
  /// The rows of a whole tensor that a rank has, or its columns.
  tensors::LocalTensor rows(const tensors::LocalTensor& whole, std::size_t tensor, int rank) const;

 private:
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  Chunk chunk(std::size_t tensor, int rank) const;

  std::vector<tensors::Shape> shapes_;
  std::vector<int> dims_;
  const int ranks_;
  std::vector<std::int64_t> whole_offsets_;
  std::int64_t whole_elements_ = 0;
  std::vector<std::vector<std::int64_t>> part_offsets_;  ///< by rank, then by tensor
  std::vector<std::int64_t> part_elements_;
};

}  // namespace dtrun::dtensor
