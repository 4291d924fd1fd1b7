// Whether buffers have memory in common. An empty one whose data is null overlaps none.
#pragma once

#include <cstdint>

#include "dtrun/collectives/backend.h"

namespace dtrun::collectives {

inline bool overlap(const Buffer& a, const Buffer& b) {
  const auto first = reinterpret_cast<std::uintptr_t>(a.data);
  const auto second = reinterpret_cast<std::uintptr_t>(b.data);
  return first < second + b.bytes() && second < first + a.bytes();
}

}  // namespace dtrun::collectives
