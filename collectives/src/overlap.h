// Whether buffers have memory in common. An empty one whose data is null overlaps none.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>

#include "dtrun/collectives/backend.h"

namespace dtrun::collectives {

inline bool overlap(const Buffer& a, const Buffer& b) {
  const auto first = reinterpret_cast<std::uintptr_t>(a.data);
  const auto second = reinterpret_cast<std::uintptr_t>(b.data);
  return first < second + b.bytes() && second < first + a.bytes();
}

/// As CollectiveView::bytes(), in line.
[[gnu::always_inline]] inline std::uint64_t bytes_of_all(const CollectiveView& collective) {
  std::int64_t elements = 0;
  for (const Buffer& output : collective.outputs) elements += output.count;
  for (const Buffer& input : collective.inputs) {
    bool is_output = false;
    for (const Buffer& output : collective.outputs) is_output |= output.data == input.data;
    if (!is_output) elements += input.count;
  }
  // All buffers are of one dtype.
  return static_cast<std::uint64_t>(elements) * tensors::item_size(collective.fingerprint.dtype);
}

/// From the first byte of some buffers to behind the last one.
struct Extent {
  std::uintptr_t begin = std::numeric_limits<std::uintptr_t>::max();
  std::uintptr_t end = 0;

  bool overlaps(const Extent& other) const { return begin < other.end && other.begin < end; }
};

/// Of buffers of one dtype.
inline Extent extent_of(std::span<const Buffer> buffers, std::size_t item_bytes) {
  Extent extent;
  for (const Buffer& buffer : buffers) {
    if (buffer.count == 0) continue;
    const auto first = reinterpret_cast<std::uintptr_t>(buffer.data);
    extent.begin = std::min(extent.begin, first);
    extent.end = std::max(extent.end, first + static_cast<std::size_t>(buffer.count) * item_bytes);
  }
  return extent;
}

}  // namespace dtrun::collectives
