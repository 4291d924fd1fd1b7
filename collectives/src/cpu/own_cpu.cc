#include "own_cpu.h"

#include <sched.h>

#include "rank_board.h"

namespace dtrun::collectives::cpu {

namespace {
/// A move costs some microseconds.
constexpr std::int64_t kBetweenLooksNs = 1'000'000;
/// A rank may have gone elsewhere since.
constexpr std::int64_t kMomentNs = 5'000'000;
}  // namespace

int OwnCpu::tell() {
  const int cpu = ::sched_getcpu();
  const std::int64_t now = monotonic_ns();
  Cell& cell = commons_.cell(rank_);
  cell.cpu.store(cpu, std::memory_order_relaxed);
  cell.cpu_ns.store(now, std::memory_order_relaxed);
  if (now - looked_ns_.load(std::memory_order_relaxed) < kBetweenLooksNs) return -1;
  looked_ns_.store(now, std::memory_order_relaxed);
  return cpu;
}

bool OwnCpu::waits_on(const Cell& cell, int cpu) const {
  return cell.cpu.load(std::memory_order_relaxed) == cpu && has_yielded(cell);
}

bool OwnCpu::has_yielded(const Cell& cell) const {
  return looked_ns_.load(std::memory_order_relaxed) - cell.cpu_ns.load(std::memory_order_relaxed) <
         kMomentNs;
}

void OwnCpu::leave_for_fewer(int cpu, const Counts& counts) {
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  std::size_t fewest = static_cast<std::size_t>(cpu);
  for (std::size_t other = 0; other < counts.size(); ++other)
    if (CPU_ISSET(other, &allowed) && counts[other] < counts[fewest]) fewest = other;
  if (counts[fewest] + 2 > counts[static_cast<std::size_t>(cpu)]) return;
  cpu_set_t there;
  CPU_ZERO(&there);
  CPU_SET(fewest, &there);
  if (::sched_setaffinity(0, sizeof(there), &there) == 0)
    static_cast<void>(::sched_setaffinity(0, sizeof(allowed), &allowed));
}

/// A hint: where the kernel does not allow it, the rank stays.
void OwnCpu::leave(int cpu) {
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  cpu_set_t others = allowed;
  CPU_CLR(static_cast<std::size_t>(cpu), &others);
  if (CPU_COUNT(&others) == 0) return;
  if (::sched_setaffinity(0, sizeof(others), &others) == 0)
    static_cast<void>(::sched_setaffinity(0, sizeof(allowed), &allowed));
}

}  // namespace dtrun::collectives::cpu
