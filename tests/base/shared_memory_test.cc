#include "dtrun/base/shared_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <new>
#include <thread>

#include "dtrun/base/error.h"
#include "dtrun/base/futex.h"

namespace dtrun::base {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Word = std::atomic<std::uint32_t>;

TEST(SharedMemoryTest, TwoMappingsOfOneMemfdShowTheSameBytes) {
  const SharedMemory first = SharedMemory::create("test", 4096);
  const SharedMemory second =
      SharedMemory::map(UniqueFd(::fcntl(first.fd(), F_DUPFD_CLOEXEC, 0)), 4096);
  first.data()[100] = std::byte{7};
  EXPECT_EQ(second.data()[100], std::byte{7});
  EXPECT_NE(first.data(), second.data());
}

TEST(SharedMemoryTest, MoreThanThereIsIsAnErrorAtOnce) {
  EXPECT_THROW(SharedMemory::create("test", std::size_t{1} << 50), Error);
}

TEST(SharedMemoryTest, WhatIsReservedIsUsableOnceCommitted) {
  const SharedMemory memory =
      SharedMemory::reserve("test", std::size_t{1} << 30, std::size_t{1} << 30);
  memory.commit(1 << 20, 4096);
  memory.data()[(1 << 20) + 4095] = std::byte{3};
  EXPECT_EQ(memory.data()[(1 << 20) + 4095], std::byte{3});
  EXPECT_THROW(memory.commit(0, std::size_t{1} << 50), Error);
  EXPECT_THROW(SharedMemory::reserve("test", std::size_t{1} << 63, 4096), Error);
}

TEST(FutexTest, AnyOfSeveralWordsWakesTheWaiter) {
  Word first(0);
  Word second(0);
  const FutexWord words[] = {{&first, 0}, {&second, 0}};
  std::thread waker([&second] {
    second.store(1);
    futex_wake_all(second);
  });
  const Deadline deadline = Deadline::after(seconds(20));
  while (second.load() == 0 && !deadline.expired()) futex_wait_any(words, deadline);
  waker.join();
  EXPECT_EQ(second.load(), 1U);
  futex_wait_any(words, Deadline::never());  // one of them has changed: does not block
  const FutexWord unchanged[] = {{&first, 0}, {&second, 1}};
  futex_wait_any(unchanged, Deadline::after(milliseconds(5)));
}

TEST(FutexTest, AWaiterInAnotherProcessIsWoken) {
  const SharedMemory memory = SharedMemory::create("test", 4096);
  auto* word = new (memory.data()) Word(0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const Deadline deadline = Deadline::after(seconds(20));
    while (word->load() == 0 && !deadline.expired()) futex_wait(*word, 0, deadline);
    ::_exit(word->load() == 1 ? 0 : 1);
  }
  word->store(1);
  futex_wake_all(*word);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(FutexTest, AWordThatHasChangedOrAPassedDeadlineDoesNotBlock) {
  Word word(5);
  futex_wait(word, 4, Deadline::never());
  const auto start = Deadline::Clock::now();
  futex_wait(word, 5, Deadline::after(milliseconds(5)));
  futex_wait(word, 5, Deadline::after(milliseconds(-5)));
  EXPECT_LT(Deadline::Clock::now() - start, seconds(10));
}

}  // namespace
}  // namespace dtrun::base
