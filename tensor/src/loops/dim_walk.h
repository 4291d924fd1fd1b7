// DimWalk: some dims of a tensor, walked in row-major order. A value.
#pragma once

#include <cstdint>

#include "dtrun/tensor/dims.h"

namespace dtrun::tensors {

/// Dims that continue each other are one.
class DimWalk {
 public:
  /// Outermost first. @param step bytes
  void add(std::int64_t size, std::int64_t step) {
    if (size == 1) return;
    if (!sizes_.empty() && steps_.back() == size * step) {
      sizes_.back() *= size;
      steps_.back() = step;
      return;
    }
    sizes_.push_back(size);
    steps_.push_back(step);
  }
  std::int64_t inner_size() const { return sizes_.empty() ? 1 : sizes_.back(); }
  std::int64_t inner_step() const { return steps_.empty() ? 0 : steps_.back(); }
  std::int64_t count() const {
    std::int64_t product = 1;
    for (const std::int64_t size : sizes_) product *= size;
    return product;
  }
  bool is_one_run() const { return sizes_.size() <= 1; }
  std::int64_t offset(std::int64_t index) const {
    std::int64_t bytes = 0;
    for (std::size_t d = sizes_.size(); d-- > 0;) {
      bytes += index % sizes_[d] * steps_[d];
      index /= sizes_[d];
    }
    return bytes;
  }

 private:
  Dims sizes_;
  Dims steps_;
};

}  // namespace dtrun::tensors
