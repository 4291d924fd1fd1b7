#include "own_cpu.h"

#include <sched.h>

#include "rank_board.h"

namespace dtrun::collectives::cpu {

namespace {
/// What a rank has said of a CPU may be old, and a move costs some microseconds.
constexpr std::int64_t kBetweenLooksNs = 1'000'000;
}  // namespace

int OwnCpu::tell() {
  const int cpu = ::sched_getcpu();
  commons_.cell(rank_).cpu.store(cpu, std::memory_order_relaxed);
  const std::int64_t now = monotonic_ns();
  if (now - looked_ns_.load(std::memory_order_relaxed) < kBetweenLooksNs) return -1;
  looked_ns_.store(now, std::memory_order_relaxed);
  return cpu;
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
