#include "host_meter.h"

#include "dtrun/tensor/host_memory.h"

namespace dtrun::tensors {
namespace host_meter {

constinit std::atomic<bool> counts = false;

namespace {
constinit std::atomic<std::ptrdiff_t> changed = 0, most_changed = 0;
}  // namespace

void note_change(std::ptrdiff_t bytes) noexcept {
  const std::ptrdiff_t now = changed.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  std::ptrdiff_t most = most_changed.load(std::memory_order_relaxed);
  while (most < now && !most_changed.compare_exchange_weak(most, now, std::memory_order_relaxed)) {
  }
}

}  // namespace host_meter

HostMemoryMeter::HostMemoryMeter() : counts_(!host_meter::counts.exchange(true)) {
  if (!counts_) return;
  host_meter::changed = 0;
  host_meter::most_changed = 0;
}
HostMemoryMeter::~HostMemoryMeter() {
  if (counts_) host_meter::counts = false;
}
std::ptrdiff_t HostMemoryMeter::now() const {
  return counts_ ? host_meter::changed.load(std::memory_order_relaxed) : 0;
}
std::ptrdiff_t HostMemoryMeter::peak() const {
  return counts_ ? host_meter::most_changed.load(std::memory_order_relaxed) : 0;
}

}  // namespace dtrun::tensors
