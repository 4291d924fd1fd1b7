// The memory that the bound of dtrun-bench copies, over ranks that are threads.
#include "bench/neighbours_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <thread>
#include <vector>

#include "bench/copy_bound.h"

namespace dtrun::bench {
namespace {

/// What the ranks of one job have in common.
struct Job {
  explicit Job(int ranks) : all(ranks), values(static_cast<std::size_t>(ranks)) {}
  std::barrier<> all;
  std::vector<std::vector<double>> values;
};

class ThreadContender : public Contender {
 public:
  ThreadContender(Job& job, int rank) : job_(job), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(job_.values.size()); }
  void prepare(const Call&, const std::vector<Buffers>&) override {}
  void run(std::size_t) override {}
  void barrier() override { job_.all.arrive_and_wait(); }
  std::vector<double> collect(const std::vector<double>& values) override {
    const std::vector<double> all = share(values);
    return rank_ == 0 ? all : std::vector<double>();
  }
  std::vector<double> share(const std::vector<double>& values) override {
    job_.values[static_cast<std::size_t>(rank_)] = values;
    barrier();
    std::vector<double> all;
    for (const std::vector<double>& one : job_.values)
      all.insert(all.end(), one.begin(), one.end());
    barrier();
    return all;
  }

 private:
  Job& job_;
  const int rank_;
};

template <typename Body>
void run_threads(int ranks, const Body& body) {
  Job job(ranks);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&job, &body, rank] {
      ThreadContender contender(job, rank);
      body(contender);
    });
  }
}

TEST(NeighboursMemoryTest, EachRankReadsWhatTheOneBeforeItHasWritten) {
  static constexpr std::ptrdiff_t kBytes = 10'000;
  run_threads(3, [](ThreadContender& contender) {
    const NeighboursMemory memory(contender, kBytes);
    ASSERT_TRUE(memory.is_shared());
    for (int round = 0; round < 3; ++round) {
      std::fill_n(memory.own(), kBytes, static_cast<std::byte>(10 * round + contender.rank()));
      contender.barrier();
      const auto expected = static_cast<std::byte>(10 * round + (contender.rank() + 2) % 3);
      EXPECT_EQ(std::count(memory.neighbours(), memory.neighbours() + kBytes, expected), kBytes);
      contender.barrier();
    }
  });
}

// More than any machine has.
TEST(NeighboursMemoryTest, WhereARankGetsNoneNobodyUsesIt) {
  run_threads(3, [](ThreadContender& contender) {
    const NeighboursMemory memory(contender, std::size_t{1} << (contender.rank() == 1 ? 62 : 12));
    EXPECT_FALSE(memory.exists());
    EXPECT_FALSE(memory.is_shared());
  });
}

TEST(CopyBoundTest, RankZeroIsToldHowFastAllCopy) {
  run_threads(2, [](ThreadContender& contender) {
    const CopyBandwidth rates = copy_bandwidth(contender, 1 << 20);
    for (const double rate : {rates.of_all, rates.of_one}) {
      // Of any machine: between a megabyte and ten terabytes a second.
      if (contender.rank() == 0) {
        EXPECT_GT(rate, 1e6);
        EXPECT_LT(rate, 1e13);
      } else {
        EXPECT_EQ(rate, 0);
      }
    }
  });
}

/// Many ranks copy one after the other where there are few cores. If each counted its own time
/// only, they would seem to be as fast as if each had a core.
TEST(CopyBoundTest, RanksThatTakeTurnsAreNoFasterThanTheirCores) {
  constexpr int kRanksOnACore = 8;
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  run_threads(kRanksOnACore * cores, [&](ThreadContender& contender) {
    const CopyBandwidth rates = copy_bandwidth(contender, 1 << 20);
    if (contender.rank() == 0) {
      EXPECT_LT(rates.of_all, 2.0 * cores * rates.of_one);
    }
  });
}

TEST(CopyBoundTest, TheBusiestRankBoundsACallThatTheOthersCannotHelp) {
  const Call call{.operation = Operation::gather, .count = 1 << 18};
  const double bytes = bytes_moved(call, 4);
  EXPECT_DOUBLE_EQ(copy_bound(call, 4, {.of_all = 4e9, .of_one = 1e9}), bytes / 1e3);
  EXPECT_DOUBLE_EQ(copy_bound(call, 4, {.of_all = 4e9, .of_one = 8e9}), bytes / 4e3);
  EXPECT_EQ(copy_bound(call, 4, {}), 0);
}

}  // namespace
}  // namespace dtrun::bench
