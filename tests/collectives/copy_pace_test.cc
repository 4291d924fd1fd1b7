// Copies that others read go around the caches where lines come slowly from other cores, and only
// there; and SharedCopy copies every byte, whichever way it goes.
#include "cpu/copy_pace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <random>
#include <vector>

#include "cpu/shared_copy.h"

namespace dtrun::collectives::cpu {
namespace {

using std::chrono::nanoseconds;

constexpr auto kAround = CopyPace::Way::around;
constexpr std::size_t kBytes = 32 << 10;
constexpr int kMany = 4096;
constexpr nanoseconds kLimit =
    CopyPace::kSlowLine * static_cast<std::int64_t>(kBytes / CopyPace::kLine);
constexpr nanoseconds kSlow = 2 * kLimit, kFast = kLimit / 2;

/// Makes copies. @param time_of one with that number through the caches
/// @return how many of them went around
template <typename TimeOf>
int around_of(CopyPace& pace, TimeOf time_of, std::size_t bytes = kBytes) {
  int around = 0;
  for (int i = 0; i < kMany; ++i) {
    const CopyPace::Next next = pace.next(bytes);
    if (next.way == kAround) ++around;
    EXPECT_FALSE(next.is_timed && next.way == kAround);
    pace.note(bytes, next.is_timed ? time_of(i) : nanoseconds());
  }
  return around;
}
int around_of(CopyPace& pace, nanoseconds time) {
  return around_of(pace, [time](int) { return time; });
}

TEST(CopyPaceTest, FastCopiesGoThroughTheCaches) {
  CopyPace pace;
  EXPECT_EQ(around_of(pace, kFast), 0);
}

TEST(CopyPaceTest, SlowOnesSoonGoAroundThem) {
  CopyPace pace;
  EXPECT_GT(around_of(pace, kSlow), kMany * 9 / 10);
}

TEST(CopyPaceTest, OneSlowCopyAloneChangesNothing) {
  CopyPace pace;
  // Another thread has run.
  EXPECT_EQ(around_of(pace, [](int i) { return i % 8 == 3 ? 1000 * kSlow : kFast / 2; }), 0);
}

TEST(CopyPaceTest, SlowFirstTouchesAreSoonForgotten) {
  CopyPace pace;
  EXPECT_LT(around_of(pace, [](int i) { return i < 64 ? kSlow : kFast; }), 128);
}

TEST(CopyPaceTest, CopiesForSeveralReadersCountTogether) {
  CopyPace pace;
  EXPECT_GT(around_of(pace, [](int i) { return i % 7 < 3 ? kFast / 2 : kSlow; }), kMany / 2);
}

TEST(CopyPaceTest, LongCopiesAreTimedToo) {
  for (const std::size_t bytes : {4 * kBytes, 16 * kBytes, 64 * kBytes}) {
    const nanoseconds slow = kSlow * static_cast<std::int64_t>(bytes / kBytes);
    CopyPace pace;
    EXPECT_GT(around_of(
                  pace, [&](int) { return slow; }, bytes),
              kMany / 2)
        << bytes;
  }
}

TEST(CopyPaceTest, ItGoesBackOnceLinesComeFastAgain) {
  CopyPace pace;
  around_of(pace, kSlow);
  EXPECT_LT(around_of(pace, kFast), kMany / 2);
  EXPECT_EQ(around_of(pace, kFast), 0);
  EXPECT_GT(around_of(pace, kSlow), kMany * 9 / 10);
}

TEST(CopyPaceTest, SharedCopiesAreWhole) {
  constexpr std::size_t kRoom = 64, kLeast = CopyPace::kLeastBytes, kMost = 12 * kLeast;
  constexpr std::byte kOther{0xa5};
  std::vector<std::byte> source(kMost + kRoom), target(source.size());
  std::mt19937 random(7);
  std::ranges::generate(source, [&] { return static_cast<std::byte>(random()); });
  SharedCopy copies;
  for (std::size_t i = 0; i < 300; ++i) {
    const std::size_t bytes = kLeast + i * 997 % (11 * kLeast), from = i % 40, to = i % kRoom;
    std::ranges::fill(target, kOther);
    copies.copy(target.data() + to, source.data() + from, bytes);
    const auto begin = target.begin() + static_cast<std::ptrdiff_t>(to);
    const auto end = begin + static_cast<std::ptrdiff_t>(bytes);
    ASSERT_TRUE(std::equal(begin, end, source.begin() + static_cast<std::ptrdiff_t>(from))) << i;
    const auto is_other = [&](std::byte byte) { return byte == kOther; };
    ASSERT_TRUE(std::all_of(target.begin(), begin, is_other)) << i;
    ASSERT_TRUE(std::all_of(end, target.end(), is_other)) << i;
  }
}

}  // namespace
}  // namespace dtrun::collectives::cpu
