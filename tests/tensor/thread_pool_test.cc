#include "loops/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>

#include "dtrun/base/cpu_list.h"
#include "dtrun/base/cpu_quota.h"
#include "dtrun/base/env.h"
#include "dtrun/base/error.h"
#include "dtrun/tensor/threads.h"

namespace dtrun::tensors {
namespace {

/// Which chunks a loop was cut into, by their first index.
std::vector<std::int64_t> chunk_ends(std::int64_t count, std::int64_t grain, int threads) {
  set_num_threads(threads);
  std::vector<std::int64_t> ends(static_cast<std::size_t>(count), -1);
  parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end) {
    ends[static_cast<std::size_t>(begin)] = end;
  });
  return ends;
}

class ThreadPoolTest : public ::testing::Test {
 protected:
  void TearDown() override { set_num_threads(before_); }
  const int before_ = num_threads();
};

TEST_F(ThreadPoolTest, ChunksDependOnCountAndGrainOnly) {
  const std::vector<std::int64_t> alone = chunk_ends(1000, 64, 1);
  EXPECT_EQ(alone[0], 64);
  EXPECT_EQ(alone[960], 1000);
  for (const int threads : {2, 3, 4, 7}) EXPECT_EQ(chunk_ends(1000, 64, threads), alone);
}

TEST_F(ThreadPoolTest, EveryIndexIsVisitedOnceLoopAfterLoop) {
  set_num_threads(4);
  std::vector<int> visits(5000, 0);
  for (int loop = 0; loop < 2000; ++loop) {
    parallel_for(5000, 100 + loop % 7, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) ++visits[static_cast<std::size_t>(i)];
    });
  }
  EXPECT_EQ(visits, std::vector<int>(5000, 2000));
}

TEST_F(ThreadPoolTest, ANestedLoopRunsInItsChunksThread) {
  set_num_threads(3);
  std::atomic<int> elsewhere{0};
  std::atomic<int> inner{0};
  parallel_for(30, 1, [&](std::int64_t, std::int64_t) {
    const std::thread::id here = std::this_thread::get_id();
    parallel_for(10, 2, [&](std::int64_t, std::int64_t) {
      ++inner;
      if (std::this_thread::get_id() != here) ++elsewhere;
    });
  });
  EXPECT_EQ(inner, 150);
  EXPECT_EQ(elsewhere, 0);
}

/// A variable of the environment; null: none. The one that was comes back.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name), before_(base::get_env(name)) {
    set(value);
  }
  ~Variable() { set(before_ ? before_->c_str() : nullptr); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  void set(const char* value) const {
    if (value != nullptr) {
      ::setenv(name_, value, 1);
    } else {
      ::unsetenv(name_);
    }
  }
  const char* const name_;
  const std::optional<std::string> before_;
};

/// Of a thread that nobody has told how many.
int threads_at_first(const std::function<void()>& before = [] {}) {
  int threads = 0;
  std::thread([&] {
    before();
    threads = num_threads();
  }).join();
  return threads;
}

TEST_F(ThreadPoolTest, TheEnvironmentSaysHowManyThreads) {
  const Variable ranks("LOCAL_WORLD_SIZE", "1000");
  for (const auto& [text, threads] :
       {std::pair("3", 3), std::pair("1", 1), std::pair("700", 700), std::pair("100000", 1024)}) {
    const Variable said("OMP_NUM_THREADS", text);
    EXPECT_EQ(threads_at_first(), threads) << text;
  }
  for (const char* nothing : {"0", "-2", "many", ""}) {
    const Variable said("OMP_NUM_THREADS", nothing);
    EXPECT_EQ(threads_at_first(), 1) << nothing;
  }
}

TEST_F(ThreadPoolTest, WithoutAWordARankTakesItsShareOfTheCpus) {
  const Variable unsaid("OMP_NUM_THREADS", nullptr);
  double cpus = static_cast<double>(base::allowed_cpus().size());
  if (const auto quota = base::cpu_quota()) cpus = std::min(cpus, std::ceil(quota->cpus));
  for (const int ranks : {1, 2, 3, 1000}) {
    const Variable said("LOCAL_WORLD_SIZE", std::to_string(ranks).c_str());
    EXPECT_EQ(threads_at_first(), std::max(1, static_cast<int>(cpus) / ranks)) << ranks;
  }
  const Variable none("LOCAL_WORLD_SIZE", nullptr);
  EXPECT_EQ(threads_at_first(), static_cast<int>(cpus));
  const auto keep_to_one = [] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(base::allowed_cpus().front()), &one);
    ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  };
  EXPECT_EQ(threads_at_first(keep_to_one), 1);
}

TEST_F(ThreadPoolTest, TheFirstChunksExceptionReachesTheCaller) {
  for (const int threads : {1, 2, 4}) {
    set_num_threads(threads);
    for (int round = 0; round < 50; ++round) {
      try {
        parallel_for(400, 1, [](std::int64_t begin, std::int64_t) {
          if (begin % 100 == 37) throw std::runtime_error(std::to_string(begin));
        });
        ADD_FAILURE() << "no exception";
      } catch (const std::runtime_error& error) {
        EXPECT_STREQ(error.what(), "37");
      }
    }
  }
}

TEST_F(ThreadPoolTest, RanksAsThreadsHavePoolsOfTheirOwn) {
  std::vector<std::int64_t> sums(6);
  std::vector<std::thread> ranks;
  for (std::int64_t& sum : sums) {
    ranks.emplace_back([&sum] {
      set_num_threads(3);
      for (int loop = 0; loop < 200; ++loop) {
        std::vector<std::int64_t> parts(50);
        parallel_for(500, 10, [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t i = begin; i < end; ++i)
            parts[static_cast<std::size_t>(begin / 10)] += i;
        });
        sum += std::accumulate(parts.begin(), parts.end(), std::int64_t{0});
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(sums, std::vector<std::int64_t>(6, 200 * 124750));
}

TEST_F(ThreadPoolTest, AForkedChildMakesItsOwn) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer ends a forked child that starts a thread";
#endif
  set_num_threads(3);
  std::atomic<std::int64_t> sum{0};
  const auto add_all = [&] {
    parallel_for(1000, 10, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) sum += i;
    });
  };
  add_all();
  const pid_t child = ::fork();
  if (child == 0) {
    sum = 0;
    add_all();
    ::_exit(sum == 499500 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(ThreadPoolTest, ANestedLoopThatThrowsLeavesThePoolAsItWas) {
  set_num_threads(3);
  for (int round = 0; round < 100; ++round) {
    std::atomic<int> visits{0};
    const auto nested = [&](std::int64_t begin, std::int64_t) {
      set_num_threads(2 + round % 2);
      parallel_for(10, 1, [&](std::int64_t inner, std::int64_t) {
        if (begin >= 20 && inner == 5) throw std::out_of_range(std::to_string(begin));
        ++visits;
      });
    };
    try {
      parallel_for(30, 1, nested);
      ADD_FAILURE() << "no exception";
    } catch (const std::out_of_range& error) {
      EXPECT_STREQ(error.what(), "20");
    }
    EXPECT_GE(visits, 205);
  }
}

TEST_F(ThreadPoolTest, AChildThatIsForkedInAChunkRunsItsLoopsAlone) {
  set_num_threads(3);
  std::atomic<int> failed{0};
  parallel_for(6, 1, [&](std::int64_t, std::int64_t) {
    const pid_t child = ::fork();
    if (child == 0) {
      int visits = 0;
      parallel_for(100, 1, [&](std::int64_t, std::int64_t) { ++visits; });
      ::_exit(visits == 100 ? 0 : 1);
    }
    int status = -1;
    if (::waitpid(child, &status, 0) != child || status != 0) ++failed;
  });
  EXPECT_EQ(failed, 0);
}

TEST_F(ThreadPoolTest, ANumberOfThreadsThatIsNoneIsAnError) {
  EXPECT_THROW(set_num_threads(0), base::Error);
  EXPECT_THROW(set_num_threads(5000), base::Error);
}

}  // namespace
}  // namespace dtrun::tensors
