// The progress thread beside owners that move their operations themselves, and beside some that do
// not any more.
#include "cpu/progress_thread.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "dtrun/base/futex.h"

namespace dtrun::collectives::cpu {
namespace {

using Attendance = Drivable::Attendance;

/// Is attended, and idle, as the test wants, and counts.
class CountedDrivable : public Drivable {
 public:
  explicit CountedDrivable(Attendance attendance) : attendance_(attendance) {}
  Outcome drive() override {
    const std::scoped_lock lock(mutex_);
    ++drives_;
    changed_.notify_all();
    return outcome_;
  }
  base::Deadline next_look() override {
    ++next_looks_;
    return base::Deadline::never();
  }
  Attendance attendance() override {
    const std::scoped_lock lock(mutex_);
    ++questions_;
    changed_.notify_all();
    return attendance_;
  }
  void set_attendance(Attendance attendance) {
    const std::scoped_lock lock(mutex_);
    attendance_ = attendance;
  }
  /// @return how many drives there were before
  int set_outcome(Outcome outcome) {
    const std::scoped_lock lock(mutex_);
    outcome_ = outcome;
    return drives_;
  }
  int drives() {
    const std::scoped_lock lock(mutex_);
    return drives_;
  }
  int questions() {
    const std::scoped_lock lock(mutex_);
    return questions_;
  }
  int next_looks() const { return next_looks_; }
  void await_drives(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return drives_ >= count; });
  }
  void await_questions(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return questions_ >= count; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Attendance attendance_;
  Outcome outcome_ = Outcome::waiting;
  int drives_ = 0;
  int questions_ = 0;
  std::atomic<int> next_looks_ = 0;
};

class ProgressThreadWithCpuTest : public testing::Test {
 protected:
  Doorbell doorbell_;
  ProgressThread thread_{doorbell_, [this](std::uint32_t ticket, base::Deadline) {
                           base::futex_wait(doorbell_.word, ticket, base::Deadline::never());
                         }};
};

class ProgressThreadTest : public ProgressThreadWithCpuTest {
 protected:
  ProgressThreadTest() { thread_.look_seldom(); }
};

TEST_F(ProgressThreadTest, WhatItsOwnerMovesIsLeftToItAndNobodyNeedRing) {
  CountedDrivable attended(Attendance::moves);
  thread_.add(attended);
  attended.await_questions(5);
  EXPECT_EQ(attended.drives(), 0);
  EXPECT_EQ(doorbell_.sleepers.load(), 0U);
  thread_.remove(attended);
}

// Nobody says that the owner has gone, or does something else.
TEST_F(ProgressThreadTest, WhatItsOwnerMovesNoMoreIsMoved) {
  CountedDrivable drivable(Attendance::moves);
  thread_.add(drivable);
  drivable.await_questions(2);
  drivable.set_attendance(Attendance::none);
  drivable.await_drives(1);
  // It is left again to an owner that comes back.
  const int asked = drivable.questions();
  drivable.set_attendance(Attendance::moves);
  doorbell_.ring();
  drivable.await_questions(asked + 5);
  EXPECT_EQ(doorbell_.sleepers.load(), 0U);
  thread_.remove(drivable);
}

TEST_F(ProgressThreadTest, OneThatIsAttendedDoesNotHoldUpAnother) {
  CountedDrivable attended(Attendance::moves), left(Attendance::none);
  thread_.add(attended);
  attended.await_questions(2);
  thread_.add(left);
  left.await_drives(1);
  thread_.remove(left);
  thread_.remove(attended);
}

// The nap is a long one by then, and ends with the word that the owner is awake.
TEST_F(ProgressThreadTest, WhatItsSleepingOwnerLeavesIsMoved) {
  CountedDrivable drivable(Attendance::asleep);
  thread_.add(drivable);
  drivable.await_questions(12);
  EXPECT_EQ(drivable.drives(), 0);
  drivable.set_attendance(Attendance::none);
  thread_.end_long_nap();
  drivable.await_drives(1);
  thread_.remove(drivable);
}

TEST_F(ProgressThreadTest, OneThatIsAddedInALongNapIsMoved) {
  CountedDrivable asleep(Attendance::asleep), left(Attendance::none);
  thread_.add(asleep);
  asleep.await_questions(12);
  thread_.add(left);
  left.await_drives(1);
  thread_.remove(left);
  thread_.remove(asleep);
}

// Only when it has been driven and had nothing to do, not because somebody attended to it.
TEST_F(ProgressThreadTest, AnAttendedOneStaysUntilItIsIdle) {
  CountedDrivable drivable(Attendance::moves);
  thread_.add(drivable);
  drivable.await_questions(3);
  drivable.set_outcome(Drivable::Outcome::idle);
  drivable.set_attendance(Attendance::none);
  drivable.await_drives(1);
  // Idle, and added again.
  drivable.set_outcome(Drivable::Outcome::waiting);
  thread_.add(drivable);
  drivable.await_drives(2);
  thread_.remove(drivable);
}

// A sleeper would have to be rung for each of these drives, and would cost its peers a system call.
TEST_F(ProgressThreadWithCpuTest, WhatItsOwnerMovesItLooksAtAndNobodyNeedRing) {
  CountedDrivable attended(Attendance::moves);
  thread_.add(attended);
  attended.await_drives(5);
  EXPECT_EQ(doorbell_.sleepers.load(), 0U);
  thread_.remove(attended);
  // That is asked before a sleep, and lets sockets ring.
  EXPECT_EQ(attended.next_looks(), 0);
}

// A long nap of those before is none of its own. A busy machine may delay most first looks.
TEST_F(ProgressThreadWithCpuTest, WhatIsAddedAfterOthersWereIdleIsLookedAtSoon) {
  using Clock = std::chrono::steady_clock;
  CountedDrivable drivable(Attendance::moves);
  Clock::duration least = Clock::duration::max();
  for (int round = 0; round < 200 && least >= std::chrono::microseconds(900); ++round) {
    drivable.set_outcome(Drivable::Outcome::waiting);
    thread_.add(drivable);
    drivable.await_drives(drivable.drives() + 5);
    const int driven = drivable.set_outcome(Drivable::Outcome::idle) + 1;
    drivable.await_drives(driven);
    // Until the thread has forgotten it.
    thread_.remove(drivable);
    const Clock::time_point added = Clock::now();
    thread_.add(drivable);
    drivable.await_drives(driven + 1);
    least = std::min(least, Clock::now() - added);
    thread_.remove(drivable);
  }
  EXPECT_LT(least, std::chrono::microseconds(900));
}

// The other may be added just when the idle one is about to be forgotten, which is put off then.
TEST_F(ProgressThreadWithCpuTest, AnAttendedOneThatIsIdleIsForgotten) {
  CountedDrivable attended(Attendance::moves), later(Attendance::moves);
  attended.set_outcome(Drivable::Outcome::idle);
  thread_.add(attended);
  attended.await_drives(1);
  thread_.add(later);
  later.await_drives(6);
  EXPECT_LE(attended.drives(), 2);
  thread_.remove(later);
  thread_.remove(attended);
}

TEST_F(ProgressThreadWithCpuTest, WhatItsOwnerLeavesIsMovedAndSleepsUntilItIsRung) {
  CountedDrivable left(Attendance::none);
  thread_.add(left);
  left.await_drives(1);
  const int driven = left.drives();
  doorbell_.ring();
  left.await_drives(driven + 1);
  thread_.remove(left);
}

}  // namespace
}  // namespace dtrun::collectives::cpu
