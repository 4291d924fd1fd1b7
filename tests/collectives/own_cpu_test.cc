// A rank that waits on the CPU of another one goes to a CPU of its own.
#include "cpu/own_cpu.h"

#include <gtest/gtest.h>
#include <sched.h>

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
  cpu_set_t allowed_{};
  const Commons commons_ = Commons::create(2);
};

TEST_F(OwnCpuTest, ARankSaysWhereItRunsAndTheHigherOneLeaves) {
  int tries = 0;
  for (bool had_one_cpu = false; !had_one_cpu; ++tries) {
    ASSERT_LT(tries, 1000);
    std::thread([&] {
      OwnCpu(commons_, 0).leave_if_shared(kAllShare);
      const int before = commons_.cell(0).cpu.load();
      ASSERT_GE(before, 0);
      OwnCpu(commons_, 1).leave_if_shared(kAllShare);
      const int now = ::sched_getcpu();
      // Otherwise the kernel has moved the thread in between: then once more.
      had_one_cpu = commons_.cell(1).cpu.load() == before;
      if (had_one_cpu) {
        EXPECT_NE(now, before);
      }
      cpu_set_t after;
      ASSERT_EQ(::sched_getaffinity(0, sizeof(after), &after), 0);
      EXPECT_TRUE(CPU_EQUAL(&after, &allowed_));
    }).join();
  }
}

TEST_F(OwnCpuTest, WhereARankWasLongAgoIsNoReason) {
  int tries = 0;
  for (bool had_one_cpu = false; !had_one_cpu; ++tries) {
    ASSERT_LT(tries, 1000);
    std::thread([&] {
      OwnCpu(commons_, 0).leave_if_shared(kAllShare);
      const int before = commons_.cell(0).cpu.load();
      commons_.cell(0).cpu_ns.store(monotonic_ns() - 1'000'000'000);
      OwnCpu(commons_, 1).leave_if_shared(kAllShare);
      const int now = ::sched_getcpu();
      had_one_cpu = commons_.cell(1).cpu.load() == before && now == before;
    }).join();
  }
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

}  // namespace
}  // namespace dtrun::collectives::cpu
