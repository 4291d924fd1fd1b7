#include "cpu_share.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <bit>

namespace dtrun::collectives::cpu {

CpuShare::CpuShare(const Commons& commons, int world_rank) : commons_(commons) {
  cpu_set_t set;
  CPU_ZERO(&set);
  // With more CPUs than the set holds the kernel refuses; then all that it holds are counted.
  if (::sched_getaffinity(0, sizeof(set), &set) != 0)
    for (int cpu = 0; cpu < std::min<long>(CPU_SETSIZE, ::sysconf(_SC_NPROCESSORS_ONLN)); ++cpu)
      CPU_SET(cpu, &set);
  static_assert(CPU_SETSIZE == 64 * Commons::kCpuWords);
  for (std::size_t word = 0; word < Commons::kCpuWords; ++word) {
    std::uint64_t bits = 0;
    for (std::size_t bit = 0; bit < 64; ++bit)
      if (CPU_ISSET(64 * word + bit, &set)) bits |= std::uint64_t{1} << bit;
    if (bits != 0) commons.cpus()[word].fetch_or(bits);
  }
  if (!quota_) return;
  commons.cell(world_rank).quota_cgroup.store(quota_->cgroup);
  commons.cell(world_rank).quota_cpus.store(quota_->cpus);
}

int CpuShare::cpus_of_all() const {
  int count = 0;
  for (std::size_t word = 0; word < Commons::kCpuWords; ++word)
    count += std::popcount(commons_.cpus()[word].load());
  return count;
}

}  // namespace dtrun::collectives::cpu
