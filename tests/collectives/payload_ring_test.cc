// Where the payloads of posts lie: never on one that somebody may still read.
#include "cpu/payload_ring.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <utility>
#include <vector>

namespace dtrun::collectives::cpu {
namespace {

struct Laid {
  Turn turn;
  std::size_t begin;
  std::size_t bytes;
};

/// How far apart two turns are.
int distance(Turn from, Turn to) {
  return static_cast<int>(to - from);
}

TEST(PayloadRingTest, NothingUnreadIsOverwrittenAndTheTurnBeforeNeedNotBeRead) {
  for (const auto& [members, most] :
       std::vector<std::pair<std::size_t, std::size_t>>{{8, 100},
                                                        {8, 4096},
                                                        {2, most_post_bytes(2)},
                                                        {3, most_post_bytes(3)},
                                                        {8, most_post_bytes(8)}}) {
    std::mt19937 random(static_cast<unsigned>(most));
    const std::size_t all = payload_area_bytes(members);
    PayloadRing ring(all);
    std::deque<Laid> laid;
    Turn last = kFirstTurn - 1, come = last;
    for (int call = 0; call < 20000; ++call) {
      const Turn next = last + 1;
      // Others come on by some turns, or by none.
      come += random() % static_cast<unsigned>(distance(come, last) + 1);
      if (distance(come, next) > static_cast<int>(kAhead)) come = next - kAhead;
      const std::size_t bytes = random() % 5 == 0 ? 0 : 1 + random() % most;
      if (bytes == 0) {
        ring.skip(next);
      } else {
        const Turn needed = ring.needed(bytes, next, come);
        ASSERT_GE(distance(come, needed), 0);
        ASSERT_LE(distance(needed, last), distance(come, last));
        ASSERT_NE(needed, next);
        // The place depends on how far they have come, too.
        come = needed + random() % static_cast<unsigned>(distance(needed, last) + 1);
        const std::size_t begin = ring.take(bytes, next, come);
        ASSERT_EQ(begin % 64, 0U);
        ASSERT_LE(begin + bytes, all);
        while (!laid.empty() && distance(laid.front().turn, come) > 0) laid.pop_front();
        for (const Laid& other : laid)
          ASSERT_TRUE(begin + bytes <= other.begin || other.begin + other.bytes <= begin)
              << "turn " << next << " on turn " << other.turn;
        laid.push_back({next, begin, bytes});
      }
      last = next;
    }
  }
}

TEST(PayloadRingTest, AllOfItIsUsedAndThenTheOldestMustBeRead) {
  PayloadRing ring(kLeastAreaBytes);
  const Turn before = kFirstTurn - 1;
  Turn next = kFirstTurn;
  for (std::size_t used = 0; used < kLeastAreaBytes; used += 4096, ++next) {
    EXPECT_EQ(ring.needed(4096, next, before), before) << used;
    EXPECT_EQ(ring.take(4096, next, before), used);
  }
  EXPECT_EQ(ring.needed(4096, next, before), kFirstTurn + 1);
  EXPECT_EQ(ring.needed(3 * 4096, next, before), kFirstTurn + 3);
}

TEST(PayloadRingTest, RanksSideBySideUseTwoPlacesInTurnAndForLongPayloadsTheWholeRing) {
  for (const auto& [bytes, places] : {std::pair<std::size_t, Turn>{16 << 10, 2}, {64 << 10, 4}}) {
    PayloadRing ring(kLeastAreaBytes);
    for (Turn call = 0; call < 100; ++call) {
      const Turn next = kFirstTurn + call;
      EXPECT_EQ(ring.needed(bytes, next, next - 1), next - 1);
      EXPECT_EQ(ring.take(bytes, next, next - 1), call % places * bytes);
    }
  }
}

}  // namespace
}  // namespace dtrun::collectives::cpu
