// How many CPUs the ranks of a machine have, by their affinities and their cgroups' quotas.
#include "cpu/cpu_share.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>
#include <vector>

#include "cpu/world.h"
#include "dtrun/rendezvous/hash_store.h"
#include "support/rank_threads.h"

namespace dtrun::collectives::cpu {
namespace {

/// Whether two ranks bound to those CPUs before they join are in each other's way.
Crowding crowding_of(const std::vector<int>& cpus) {
  const auto store = rendezvous::make_hash_store();
  std::vector<Crowding> found(2);
  std::vector<std::thread> threads;
  for (int rank : {0, 1}) {
    threads.emplace_back([&, rank] {
      const auto index = static_cast<std::size_t>(rank);
      cpu_set_t set;
      CPU_ZERO(&set);
      CPU_SET(cpus[index], &set);
      ASSERT_EQ(::sched_setaffinity(0, sizeof(set), &set), 0);
      found[index] = World::create(test::group_options(store, rank, 2))->crowding();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(found[0], found[1]);
  return found[0];
}

TEST(CpuShareTest, RanksThatAreBoundToACpuEachAreNotCrowded) {
  cpu_set_t own;
  ASSERT_EQ(::sched_getaffinity(0, sizeof(own), &own), 0);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &own)) cpus.push_back(cpu);
  if (cpus.size() < 2 || base::cpu_quota()) GTEST_SKIP() << "needs two CPUs without a quota";
  EXPECT_EQ(crowding_of({cpus[0], cpus[1]}), Crowding::alone);
  EXPECT_EQ(crowding_of({cpus[0], cpus[0]}), Crowding::crowded);
}

/// The commons of ranks that may run on so many CPUs, and what their cores are. A quota is written
/// as each rank writes its own.
class Shares {
 public:
  Shares(int ranks, int cpus) : ranks_(ranks), commons_(Commons::create(ranks)) {
    for (int rank = 0; rank < ranks; ++rank) give_quota(rank, 0, 0);
    for (std::size_t word = 0; word < Commons::kCpuWords; ++word) commons_.cpus()[word].store(0);
    for (int cpu = 0; cpu < cpus; ++cpu)
      commons_.cpus()[cpu / 64].fetch_or(std::uint64_t{1} << cpu % 64);
  }
  void give_quota(int rank, std::uint64_t cgroup, double cpus) {
    commons_.cell(rank).quota_cgroup.store(cgroup);
    commons_.cell(rank).quota_cpus.store(cpus);
  }
  int cores() const {
    return share_.cores_of_all(ranks_, [](int) { return true; });
  }
  int cores_of_first(int ranks) const {
    return share_.cores_of_all(ranks_, [ranks](int rank) { return rank < ranks; });
  }

 private:
  const int ranks_;
  const Commons commons_;
  const CpuShare share_{commons_, 0};
};

TEST(CpuShareTest, CoresAreTheCpusOnWhichAnyOfTheRanksMayRun) {
  EXPECT_EQ(Shares(4, 2).cores(), 2);
  EXPECT_EQ(Shares(4, 64).cores(), 64);
  EXPECT_EQ(Shares(4, 0).cores(), 1);
}

TEST(CpuShareTest, AQuotaCountsAsIfEachRankHadAsMuchAsTheScarcestOne) {
  // All under one quota; and so many that parts of a CPU do not add up to it exactly.
  for (const int ranks : {3, 4, 6, 7, 49, 93}) {
    Shares one(ranks, 200);
    for (int rank = 0; rank < ranks; ++rank) one.give_quota(rank, 7, 5);
    EXPECT_EQ(one.cores(), 5) << ranks;
    for (int rank = 0; rank < ranks; ++rank) one.give_quota(rank, 7, 0.5);
    EXPECT_EQ(one.cores(), 1) << ranks;
  }
  // Two pods of two and of four ranks, with two CPUs each: half a CPU for each rank of the second.
  Shares two(6, 64);
  for (int rank = 0; rank < 6; ++rank) two.give_quota(rank, rank < 2 ? 7 : 8, 2);
  EXPECT_EQ(two.cores(), 3);
  // Without the second pod's ranks, which are of another machine.
  EXPECT_EQ(two.cores_of_first(2), 2);
  // One pod without a quota.
  for (int rank = 0; rank < 2; ++rank) two.give_quota(rank, 0, 0);
  EXPECT_EQ(two.cores(), 3);
  // A quota of more than there is.
  Shares wide(2, 2);
  wide.give_quota(0, 7, 16);
  EXPECT_EQ(wide.cores(), 2);
}

}  // namespace
}  // namespace dtrun::collectives::cpu
