#include "call_meter.h"

namespace dtrun::collectives {

void CallMeter::add_time(OpKind kind, std::chrono::nanoseconds time) {
  Cell& cell = of(kind);
  cell.timed.fetch_add(1, std::memory_order_relaxed);
  cell.total_ns.fetch_add(time.count(), std::memory_order_relaxed);
  std::int64_t longest = cell.longest_ns.load(std::memory_order_relaxed);
  while (longest < time.count() &&
         !cell.longest_ns.compare_exchange_weak(longest, time.count(), std::memory_order_relaxed)) {
  }
}

std::vector<CallCount> CallMeter::counts() const {
  std::vector<CallCount> counts;
  for (std::size_t i = 0; i < cells_.size(); ++i) {
    const Cell& cell = cells_[i];
    CallCount count;
    count.kind = static_cast<OpKind>(i);
    count.calls = cell.calls.load(std::memory_order_relaxed);
    count.failed = cell.failed.load(std::memory_order_relaxed);
    count.bytes = cell.bytes.load(std::memory_order_relaxed);
    count.timed = cell.timed.load(std::memory_order_relaxed);
    count.total = std::chrono::nanoseconds(cell.total_ns.load(std::memory_order_relaxed));
    count.longest = std::chrono::nanoseconds(cell.longest_ns.load(std::memory_order_relaxed));
    if (count.calls > 0) counts.push_back(count);
  }
  return counts;
}

}  // namespace dtrun::collectives
