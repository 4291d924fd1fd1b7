#include "dtrun/base/quick_mutex.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

namespace dtrun::base {
namespace {

TEST(QuickMutexTest, OneThreadAtATimeIsInside) {
  constexpr int kThreads = 4, kTimes = 20'000;
  QuickMutex mutex;
  long count = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&] {
      for (int time = 0; time < kTimes; ++time) {
        const std::scoped_lock lock(mutex);
        ++count;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, long{kThreads} * kTimes);
}

// Each round two threads wait for the third, so that one of them is woken by one who has slept.
TEST(QuickMutexTest, AllWhoSleepAreWoken) {
  for (int round = 0; round < 200; ++round) {
    QuickMutex mutex;
    std::atomic<int> about_to_wait{0}, inside{0};
    mutex.lock();
    std::vector<std::thread> waiters;
    for (int i = 0; i < 2; ++i)
      waiters.emplace_back([&] {
        ++about_to_wait;
        const std::scoped_lock lock(mutex);
        ++inside;
      });
    while (about_to_wait.load() < 2) std::this_thread::yield();
    EXPECT_EQ(inside.load(), 0);
    mutex.unlock();
    for (std::thread& waiter : waiters) waiter.join();
    EXPECT_EQ(inside.load(), 2);
  }
}

}  // namespace
}  // namespace dtrun::base
