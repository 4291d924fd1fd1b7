// One loop over up to four strided operands of one shape, cut into rows. Dims that lie one after
// the other in memory are merged, so that contiguous operands are one long row. Nothing is
// allocated. Large loops are dealt to the calling thread's pool.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "dtrun/tensor/tensor.h"
#include "loops/thread_pool.h"

namespace dtrun::tensors {

constexpr int kMostOperands = 4;
/// Elements of a loop that one chunk handles, more or less.
constexpr std::int64_t kLoopGrain = 32768;

/// What the loop walks over. Strides in elements; a stride of 0 repeats an element.
struct LoopOperand {
  void* data;
  Strides strides;
  std::size_t item_size;

  static LoopOperand of(const LocalTensor& tensor);
};

using LoopPointers = std::array<char*, kMostOperands>;
using LoopSteps = std::array<std::int64_t, kMostOperands>;  ///< bytes

struct LoopDim {
  std::int64_t size;
  LoopSteps steps;
};

/// The merged dims, innermost first, and where the operands begin.
class StridedLoop {
 public:
  void set_operand(int k, void* data) {
    first_[static_cast<std::size_t>(k)] = static_cast<char*>(data);
  }
  /// Outer to inner, or the other way round: where they belong is found here.
  /// @param steps 0 for an operand that is not set
  void add_dim(std::int64_t size, const LoopSteps& steps);
  /// Once all dims are there.
  void merge();

  const LoopDim& inner() const { return dims_[0]; }
  int dims() const { return count_; }
  const LoopDim& dim(int d) const { return dims_[static_cast<std::size_t>(d)]; }
  /// Whether operands disagree about the fastest dim.
  bool is_tiled() const { return tiled_; }

  /// row(pointers, steps, count) for all rows, or for pieces of them. Dealt to the pool.
  template <typename Row>
  void run(const Row& row) const {
    const LoopDim& outer = dims_[static_cast<std::size_t>(count_ - 1)];
    std::int64_t below = 1;
    for (int d = 0; d + 1 < count_; ++d) below *= dims_[static_cast<std::size_t>(d)].size;
    std::int64_t grain = below >= kLoopGrain ? 1 : (kLoopGrain + below - 1) / below;
    parallel_for(outer.size, grain, [&](std::int64_t begin, std::int64_t end) {
      LoopPointers start = first_;
      move(start, outer, begin);
      walk(count_ - 1, end - begin, start, row);
    });
  }

 private:
  static constexpr int kMostDims = 64;
  /// Where the operands disagree about the fastest dim, squares of this side stay in the cache.
  static constexpr std::int64_t kTile = 64;

  void move(LoopPointers& pointers, const LoopDim& dim, std::int64_t count) const {
    // All of them: an operand that is not set has steps of 0.
    for (std::size_t k = 0; k < kMostOperands; ++k) pointers[k] += dim.steps[k] * count;
  }

  template <typename Row>
  void walk(int d, std::int64_t size, LoopPointers pointers, const Row& row) const {
    const LoopDim& dim = dims_[static_cast<std::size_t>(d)];
    if (d == 0) return row(pointers, dim.steps, size);
    if (d == 1 && tiled_) return tiles(size, pointers, row);
    const LoopDim& below = dims_[static_cast<std::size_t>(d - 1)];
    for (std::int64_t i = 0; i < size; ++i) {
      if (d == 1) {
        row(pointers, below.steps, below.size);
      } else {
        walk(d - 1, below.size, pointers, row);
      }
      move(pointers, dim, 1);
    }
  }

  template <typename Row>
  void tiles(std::int64_t size, const LoopPointers& pointers, const Row& row) const {
    for (std::int64_t i = 0; i < size; i += kTile) {
      for (std::int64_t j = 0; j < dims_[0].size; j += kTile) {
        LoopPointers start = pointers;
        move(start, dims_[1], i);
        move(start, dims_[0], j);
        const std::int64_t rows = size - i < kTile ? size - i : kTile;
        const std::int64_t count = dims_[0].size - j < kTile ? dims_[0].size - j : kTile;
        for (std::int64_t r = 0; r < rows; ++r) {
          row(start, dims_[0].steps, count);
          move(start, dims_[1], 1);
        }
      }
    }
  }

  int count_ = 0;
  bool tiled_ = false;
  LoopPointers first_{};
  std::array<LoopDim, kMostDims> dims_;
};

/// Handles `count` elements; operand k starts at operands[k] and steps strides[k] bytes.
using RowKernel = void (*)(char* const* operands, const std::int64_t* strides, std::int64_t count);

/// The order of the rows and of the elements is not promised, nor that one thread runs them.
void for_each_row(const Shape& shape, std::span<const LoopOperand> operands, RowKernel kernel);

}  // namespace dtrun::tensors
