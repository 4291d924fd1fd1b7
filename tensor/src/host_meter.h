// What a HostMemoryMeter hears of: each CPU storage that is made or freed. Without one it costs the
// look at a flag.
#pragma once

#include <atomic>
#include <cstddef>

namespace dtrun::tensors::host_meter {

extern constinit std::atomic<bool> counts;
void note_change(std::ptrdiff_t bytes) noexcept;

inline void note(std::ptrdiff_t bytes) noexcept {
  if (counts.load(std::memory_order_relaxed)) [[unlikely]]
    note_change(bytes);
}

}  // namespace dtrun::tensors::host_meter
