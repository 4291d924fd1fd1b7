// CallMeter: where a group counts this rank's calls. Calls are counted by the one thread that makes
// them; their times and failures by whichever thread ends them; anybody may read.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

#include "dtrun/collectives/call_counters.h"

namespace dtrun::collectives {

class CallMeter {
 public:
  void count(OpKind kind, std::uint64_t bytes) {
    Cell& cell = of(kind);
    // One thread writes: an atomic addition would take a share of a small collective's time.
    cell.calls.store(cell.calls.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    cell.bytes.store(cell.bytes.load(std::memory_order_relaxed) + bytes, std::memory_order_relaxed);
  }
  void add_time(OpKind kind, std::chrono::nanoseconds time);
  void add_failure(OpKind kind) { of(kind).failed.fetch_add(1, std::memory_order_relaxed); }

  CallTiming timing() const { return timing_.load(std::memory_order_relaxed); }
  void set_timing(CallTiming timing) { timing_.store(timing, std::memory_order_relaxed); }

  /// Of the kinds that were called.
  std::vector<CallCount> counts() const;

 private:
  static constexpr std::size_t kKinds = static_cast<std::size_t>(OpKind::monitored_barrier) + 1;
  struct Cell {
    std::atomic<std::uint64_t> calls{0};
    std::atomic<std::uint64_t> bytes{0};
    std::atomic<std::uint64_t> failed{0};
    std::atomic<std::uint64_t> timed{0};
    std::atomic<std::int64_t> total_ns{0};
    std::atomic<std::int64_t> longest_ns{0};
  };
  Cell& of(OpKind kind) { return cells_[static_cast<std::size_t>(kind)]; }

  std::atomic<CallTiming> timing_{CallTiming::long_calls};
  std::array<Cell, kKinds> cells_;
};

}  // namespace dtrun::collectives
