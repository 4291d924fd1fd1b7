// RankGrid: the N-dimensional grid of a mesh's ranks, as a program writes it: {0, 1, 2, 3}, {{0,
// 1}, {2, 3}}, a vector, or a tensor of integers such as arange(4).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

namespace dtrun::dtensor {

template <typename T>
concept RankTensor = requires(const T& tensor) {
  tensor.to_vector_i64();
  tensor.shape();
};

class RankGrid {
 public:
  /// One rank; in braces with others a row of them.
  RankGrid(int rank) : ranks_{rank} {}
  /// A row per entry, all of one shape. @throws Error kInvalidArgument
  RankGrid(std::initializer_list<RankGrid> rows);
  RankGrid(std::vector<int> ranks)
      : ranks_(std::move(ranks)), shape_{static_cast<int>(ranks_.size())} {}
  template <RankTensor T>
  RankGrid(const T& tensor) {
    for (const std::int64_t rank : tensor.to_vector_i64()) ranks_.push_back(static_cast<int>(rank));
    for (const std::int64_t size : tensor.shape()) shape_.push_back(static_cast<int>(size));
  }

  /// Row-major.
  const std::vector<int>& ranks() const { return ranks_; }
  const std::vector<int>& shape() const { return shape_; }

 private:
  std::vector<int> ranks_;
  std::vector<int> shape_;
};

}  // namespace dtrun::dtensor
