// A rank that waits on the CPU of another one goes to a CPU of its own, or to one with fewer ranks.
#include "cpu/own_cpu.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <cstdint>
#include <thread>

#include "rank_board.h"

namespace dtrun::collectives::cpu {
namespace {

constexpr auto kAllShare = [](int) { return true; };

class OwnCpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(::sched_getaffinity(0, sizeof(allowed_), &allowed_), 0);
    if (CPU_COUNT(&allowed_) < 2) GTEST_SKIP() << "needs two CPUs";
  }
  /// Both ranks look on one thread, which is on one CPU unless the kernel moves it in between: then
  /// they look once more. @param seen of the first one's CPU, whether it was so
  template <typename Seen>
  void until_seen(Seen seen) {
    until_over([&](bool& is_over) {
      OwnCpu(commons_, 0).leave_if_shared(kAllShare);
      const int first_cpu = commons_.cell(0).cpu.load();
      ASSERT_GE(first_cpu, 0);
      if (first_was_there_ != 0) commons_.cell(0).cpu_ns.store(first_was_there_);
      OwnCpu(commons_, 1).leave_if_shared(kAllShare);
      is_over = seen(first_cpu);
    });
  }
  /// On a thread of its own each time.
  template <typename Try>
  void until_over(Try try_once) {
    int tries = 0;
    for (bool is_over = false; !is_over; ++tries) {
      ASSERT_LT(tries, 1000);
      std::thread([&] { try_once(is_over); }).join();
    }
  }
  /// Where this thread's rank has looked on the first one's CPU, it has left that. Its affinity is
  /// as before. @return whether it has looked there
  bool has_left(const Cell& rank, int first_cpu) const {
    const int now = ::sched_getcpu();
    const bool had_one_cpu = rank.cpu.load() == first_cpu;
    if (had_one_cpu) {
      EXPECT_NE(now, first_cpu);
    }
    cpu_set_t after;
    EXPECT_EQ(::sched_getaffinity(0, sizeof(after), &after), 0);
    EXPECT_TRUE(CPU_EQUAL(&after, &allowed_));
    return had_one_cpu;
  }

  cpu_set_t allowed_{};
  const Commons commons_ = Commons::create(2);
  std::int64_t first_was_there_ = 0;  ///< by monotonic_ns(); 0: as it says itself
};

TEST_F(OwnCpuTest, ARankSaysWhereItRunsAndTheHigherOneLeaves) {
  until_seen([&](int first_cpu) { return has_left(commons_.cell(1), first_cpu); });
}

TEST_F(OwnCpuTest, WhereARankWasLongAgoIsNoReason) {
  first_was_there_ = monotonic_ns() - 1'000'000'000;
  until_seen([&](int first_cpu) {
    const int now = ::sched_getcpu();
    return commons_.cell(1).cpu.load() == first_cpu && now == first_cpu;
  });
}

TEST_F(OwnCpuTest, ARankThatIsBoundToOneCpuStays) {
  std::thread([&] {
    const int cpu = ::sched_getcpu();
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(cpu), &one);
    ASSERT_EQ(::sched_setaffinity(0, sizeof(one), &one), 0);
    OwnCpu(commons_, 0).leave_if_shared(kAllShare);
    OwnCpu(commons_, 1).leave_if_shared(kAllShare);
    EXPECT_EQ(::sched_getcpu(), cpu);
    EXPECT_EQ(commons_.cell(1).cpu.load(), cpu);
    cpu_set_t after;
    ASSERT_EQ(::sched_getaffinity(0, sizeof(after), &after), 0);
    EXPECT_TRUE(CPU_EQUAL(&after, &one));
  }).join();
}

TEST_F(OwnCpuTest, OfThreeRanksThatWaitOnOneCpuTheHighestLeaves) {
  const Commons commons = Commons::create(3);
  until_over([&](bool& is_over) {
    OwnCpu(commons, 0).leave_if_crowded(3, kAllShare);
    const int first_cpu = commons.cell(0).cpu.load();
    commons.cell(1).cpu.store(first_cpu);
    commons.cell(1).cpu_ns.store(commons.cell(0).cpu_ns.load());
    commons.cell(2).cpu_ns.store(0);
    OwnCpu(commons, 2).leave_if_crowded(3, kAllShare);
    is_over = has_left(commons.cell(2), first_cpu);
  });
}

TEST_F(OwnCpuTest, ACpuWithOneRankLessIsNoReason) {
  const Commons commons = Commons::create(3);
  until_over([&](bool& is_over) {
    OwnCpu(commons, 0).leave_if_crowded(3, kAllShare);
    const int first_cpu = commons.cell(0).cpu.load();
    int other = 0;
    while (other == first_cpu || !CPU_ISSET(static_cast<std::size_t>(other), &allowed_)) ++other;
    commons.cell(1).cpu.store(other);
    commons.cell(1).cpu_ns.store(commons.cell(0).cpu_ns.load());
    OwnCpu(commons, 2).leave_if_crowded(3, kAllShare);
    is_over = commons.cell(2).cpu.load() == first_cpu && ::sched_getcpu() == first_cpu;
  });
}

}  // namespace
}  // namespace dtrun::collectives::cpu
