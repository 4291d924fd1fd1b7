#include "support/rank_threads.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <numeric>
#include <thread>

#include "dtrun/rendezvous/hash_store.h"
#include "dtrun/rendezvous/job_page.h"

namespace dtrun::test {

using collectives::GroupOptions;
using collectives::ProcessGroup;

GroupOptions group_options(std::shared_ptr<rendezvous::Store> store, int rank, int size,
                           const RankOptions& options) {
  GroupOptions group;
  group.store = std::move(store);
  group.rank = rank;
  group.global_ranks.resize(static_cast<std::size_t>(size));
  std::iota(group.global_ranks.begin(), group.global_ranks.end(), 0);
  group.backend = options.backend;
  group.timeout = options.timeout;
  group.transport = options.transport;
  group.single_copy = options.single_copy;
  group.connections_per_peer = options.connections_per_peer;
  if (!options.costs.empty())
    group.costs = collectives::CostTable::parse(options.costs, "costs.json");
  group.job_page = options.job_page;
  if (options.job_page) group.local_rank = rank;
  if (!options.machines.empty()) {
    int machine = 0, last = 0;
    for (const int ranks : options.machines) machine += rank >= (last += ranks) ? 1 : 0;
    group.machine = std::to_string(machine);
  }
  return group;
}

void bind_to_cpus(int cpus) {
  cpu_set_t own, few;
  ASSERT_EQ(::sched_getaffinity(0, sizeof(own), &own), 0);
  CPU_ZERO(&few);
  for (std::size_t cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&few) < cpus; ++cpu)
    if (CPU_ISSET(cpu, &own)) CPU_SET(cpu, &few);
  ASSERT_EQ(::sched_setaffinity(0, sizeof(few), &few), 0);
}

std::shared_ptr<rendezvous::JobPage> page_of_ranks(int size) {
  const auto page = std::make_shared<rendezvous::JobPage>(rendezvous::JobPage::create(size));
  for (int rank = 0; rank < size; ++rank) page->slot(rank).global_rank = rank;
  return page;
}

std::vector<std::optional<Thrown>> run_failing_ranks(int size, const RankOptions& options,
                                                     const RankBody& body) {
  const std::shared_ptr<rendezvous::Store> store = rendezvous::make_hash_store();
  std::vector<std::optional<Thrown>> thrown(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      std::optional<Thrown>& mine = thrown[static_cast<std::size_t>(rank)];
      try {
        if (options.cpus != 0) bind_to_cpus(options.cpus);
        const ProcessGroup group = ProcessGroup::create(group_options(store, rank, size, options));
        const std::shared_ptr<tensors::HostAllocator> memory =
            options.shared_memory ? group.shared_memory() : nullptr;
        std::optional<tensors::HostAllocatorScope> scope;
        if (memory) scope.emplace(*memory);
        body(group);
      } catch (const base::Error& error) {
        mine = Thrown{error.code(), error.what()};
      } catch (const std::exception& error) {
        mine = Thrown{base::ErrorCode::kSystem, error.what()};
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return thrown;
}

void run_ranks(int size, const RankOptions& options, const RankBody& body) {
  const std::vector<std::optional<Thrown>> thrown = run_failing_ranks(size, options, body);
  for (int rank = 0; rank < size; ++rank) {
    const std::optional<Thrown>& mine = thrown[static_cast<std::size_t>(rank)];
    EXPECT_FALSE(mine.has_value()) << "rank " << rank << " of " << size << ": " << mine->text;
  }
}

}  // namespace dtrun::test
