// place_in_whole: where an element of a rank's part stands in the whole tensor.
#pragma once

#include <cstdint>

#include "dtrun/dtensor/layout/box.h"

namespace dtrun::dtensor {

/// Both in row-major order.
inline std::int64_t place_in_whole(std::int64_t in_part, const Box& part,
                                   const tensors::Shape& whole) {
  std::int64_t place = 0, step = 1;
  for (std::size_t d = whole.size(); d-- > 0;) {
    place += (in_part % part.shape[d] + part.offsets[d]) * step;
    in_part /= part.shape[d];
    step *= whole[d];
  }
  return place;
}

}  // namespace dtrun::dtensor
