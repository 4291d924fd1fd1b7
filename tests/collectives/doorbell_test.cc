// Threads that sleep on one doorbell while others publish: none sleeps through what it waits for.
#include "cpu/doorbell.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "dtrun/base/deadline.h"
#include "dtrun/base/futex.h"

namespace dtrun::collectives::cpu {
namespace {

using base::Deadline;

/// Sleeps until the number is there. @return false: it came, and nobody rang
bool await_number(Doorbell& doorbell, const std::atomic<int>& number, int wanted) {
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  for (;;) {
    const std::uint32_t ticket = doorbell.take_ticket();
    const Sleeper sleeper(doorbell);
    if (number.load(std::memory_order_seq_cst) >= wanted) return true;
    if (deadline.expired()) return false;
    base::futex_wait(doorbell.word, ticket, deadline);
  }
}

TEST(DoorbellTest, NobodySleepsThroughWhatItWaitsFor) {
  constexpr int kNumbers = 20000, kSleepers = 3;
  Doorbell doorbell, answer;
  std::atomic<int> number{0};
  std::vector<std::atomic<int>> heard(kSleepers);
  std::vector<std::thread> sleepers;
  for (std::atomic<int>& mine : heard)
    sleepers.emplace_back([&] {
      for (int wanted = 1; wanted <= kNumbers; ++wanted) {
        if (!await_number(doorbell, number, wanted)) return ADD_FAILURE() << wanted;
        mine.store(wanted, std::memory_order_seq_cst);
        answer.ring_sleepers();
      }
    });
  for (int wanted = 1; wanted <= kNumbers; ++wanted) {
    number.store(wanted, std::memory_order_seq_cst);
    doorbell.ring_sleepers();
    // At each number somebody else is waited for, so the others come late or early.
    if (!await_number(answer, heard[static_cast<std::size_t>(wanted % kSleepers)], wanted)) {
      ADD_FAILURE() << wanted;
      break;
    }
  }
  number.store(kNumbers, std::memory_order_seq_cst);
  doorbell.ring();
  for (std::thread& sleeper : sleepers) sleeper.join();
}

TEST(DoorbellTest, WhoHasBeenRungIsNotRungAgain) {
  Doorbell doorbell;
  EXPECT_EQ(doorbell.take_ticket(), 0U);
  doorbell.ring_sleepers();  // nobody sleeps
  EXPECT_EQ(doorbell.ticket(), 0U);
  const Sleeper sleeper(doorbell);
  doorbell.ring_sleepers();
  EXPECT_EQ(doorbell.ticket(), 1U);
  doorbell.ring_sleepers();
  EXPECT_EQ(doorbell.ticket(), 1U);
  EXPECT_EQ(doorbell.take_ticket(), 1U);
  doorbell.ring_sleepers();
  EXPECT_EQ(doorbell.ticket(), 2U);
}

TEST(DoorbellTest, TicketsGoAroundTheEndOfTheirNumbers) {
  Doorbell doorbell;
  doorbell.word = doorbell.newest = 0xfffffffe;
  const Sleeper sleeper(doorbell);
  for (int ring = 0; ring < 4; ++ring) {
    const std::uint32_t ticket = doorbell.take_ticket();
    doorbell.ring_sleepers();
    EXPECT_EQ(doorbell.ticket(), ticket + 1);
  }
}

}  // namespace
}  // namespace dtrun::collectives::cpu
