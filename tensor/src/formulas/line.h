// Line: numbers at equal distances, for the host and for CUDA devices.
#pragma once

#include <cstdint>

#include "host_device.h"

namespace dtrun::tensors {

/// From both ends, as PyTorch, so that the last is the end.
struct Line {
  double start;
  double end;
  std::int64_t count;
  double step;

  static Line between(double start, double end, std::int64_t count) {
    return {start, end, count, count > 1 ? (end - start) / static_cast<double>(count - 1) : 0};
  }
  DTRUN_BOTH double at(std::int64_t i) const {
    return i < count / 2 || count == 1 ? start + static_cast<double>(i) * step
                                       : end - static_cast<double>(count - 1 - i) * step;
  }
};

}  // namespace dtrun::tensors
