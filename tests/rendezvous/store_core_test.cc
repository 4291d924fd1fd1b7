#include "store/store_core.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>

namespace dtrun::rendezvous {
namespace {

class CountingWaiter : public Waiter {
 public:
  int releases = 0;

 private:
  void released() override { ++releases; }
};

TEST(StoreCoreTest, AddReadsNumbersAsStrtollDoesAndStoresDecimals) {
  StoreCore core;
  EXPECT_EQ(core.add("n", 5), 5);
  EXPECT_EQ(core.add("n", -7), -2);
  EXPECT_EQ(*core.get("n"), "-2");
  core.set("junk", " +12abc");
  EXPECT_EQ(core.add("junk", 1), 13);
}

TEST(StoreCoreTest, AddToWhatIsNoNumberChangesNothing) {
  StoreCore core;
  for (const char* bad : {"", "abc", "99999999999999999999", "9223372036854775807"}) {
    core.set("n", bad);
    EXPECT_FALSE(core.add("n", 1)) << bad;
    EXPECT_EQ(*core.get("n"), bad);
  }
}

TEST(StoreCoreTest, CompareSetAnswersAsPyTorchDocuments) {
  StoreCore core;
  EXPECT_EQ(*core.compare_set("k", "x", "y"), "x");
  EXPECT_FALSE(core.get("k"));
  EXPECT_EQ(*core.compare_set("k", "", "y"), "y");
  EXPECT_EQ(*core.compare_set("k", "x", "z"), "y");
  EXPECT_EQ(*core.compare_set("k", "y", "z"), "z");
  EXPECT_EQ(*core.get("k"), "z");
}

TEST(StoreCoreTest, ACompareSetThatStoresNothingWakesNobody) {
  StoreCore core;
  CountingWaiter waiter;
  EXPECT_FALSE(core.wait(waiter, {"k"}));
  core.compare_set("k", "x", "y");
  EXPECT_EQ(waiter.releases, 0);
  core.compare_set("k", "", "y");
  EXPECT_EQ(waiter.releases, 1);
}

TEST(StoreCoreTest, AWaitCountsEachKeyOnceEvenIfItIsDeletedAgain) {
  StoreCore core;
  CountingWaiter waiter;
  core.set("there", "1");
  EXPECT_FALSE(core.wait(waiter, {"there", "a", "b", "a"}));
  core.set("a", "1");
  core.remove("a");
  EXPECT_TRUE(waiter.waiting());
  core.append("b", "1");
  EXPECT_EQ(waiter.releases, 1);
  EXPECT_FALSE(waiter.waiting());
  EXPECT_TRUE(core.wait(waiter, std::vector<std::string>{}));
}

TEST(StoreCoreTest, APushWakesSomebodyThoughTheFirstWaitsForMore) {
  StoreCore core;
  CountingWaiter for_two, for_one;
  EXPECT_FALSE(core.wait(for_two, {"q", "k"}));
  EXPECT_FALSE(core.wait(for_one, {"q"}));
  core.queue_push("q", "1");
  EXPECT_EQ(for_one.releases, 1);
  EXPECT_EQ(for_two.releases, 0);
  core.set("k", "1");
  EXPECT_EQ(for_two.releases, 1);
}

TEST(StoreCoreTest, AQueueSatisfiesAWaitAndIsNotCountedAsMissing) {
  StoreCore core;
  CountingWaiter waiter;
  core.queue_push("q", "1");
  EXPECT_TRUE(core.wait(waiter, {"q"}));
  EXPECT_FALSE(core.wait(waiter, {"q", "k"}));
  core.set("k", "1");
  EXPECT_EQ(waiter.releases, 1);
  EXPECT_EQ(core.key_count(), 1u);
  EXPECT_EQ(core.list_keys(), std::vector<std::string>{"k"});
}

TEST(StoreCoreTest, AnEmptiedQueueIsAbsentAndDeleteLeavesQueuesAlone) {
  StoreCore core;
  core.queue_push("q", "1");
  EXPECT_FALSE(core.remove("q"));
  EXPECT_TRUE(core.check({"q"}));
  EXPECT_EQ(*core.queue_pop("q"), "1");
  EXPECT_FALSE(core.check({"q"}));
  EXPECT_FALSE(core.queue_pop("q"));
}

TEST(StoreCoreTest, EachPushWakesOneWaiterInOrderOfArrival) {
  StoreCore core;
  CountingWaiter first, second;
  core.wait(first, {"q"});
  core.wait(second, {"q"});
  core.queue_push("q", "1");
  EXPECT_EQ(first.releases, 1);
  EXPECT_EQ(second.releases, 0);
  core.queue_push("q", "2");
  EXPECT_EQ(second.releases, 1);
}

TEST(StoreCoreTest, AQueuesWakeThatItsReceiverGivesUpGoesToTheNext) {
  StoreCore core;
  CountingWaiter first, second;
  core.wait(first, {"q"});
  core.wait(second, {"q"});
  core.queue_push("q", "1");
  core.cancel(first);
  EXPECT_EQ(second.releases, 1);
  core.settle(second);
  core.cancel(second);
  EXPECT_EQ(core.queue_length("q"), 1u);
}

TEST(StoreCoreTest, ABarrierPassesWithTheLastAndAPlainWaitWithTheFirst) {
  StoreCore core;
  CountingWaiter plain, first, second, third;
  core.wait(plain, {"b"});
  EXPECT_EQ(core.barrier(first, "b", 3), StoreCore::Barrier::kWaiting);
  EXPECT_EQ(plain.releases, 1);
  EXPECT_EQ(core.barrier(second, "b", 3), StoreCore::Barrier::kWaiting);
  EXPECT_EQ(first.releases, 0);
  EXPECT_EQ(core.barrier(third, "b", 3), StoreCore::Barrier::kPassed);
  EXPECT_EQ(first.releases, 1);
  EXPECT_EQ(second.releases, 1);
  EXPECT_EQ(*core.get("b"), "3");
  EXPECT_EQ(core.barrier(first, "b", 3), StoreCore::Barrier::kPassed);
  core.set("b", "no number");
  EXPECT_EQ(core.barrier(first, "b", 3), StoreCore::Barrier::kNotANumber);
}

TEST(StoreCoreTest, AnAppendDoesNotChangeAValueThatIsStillHeld) {
  StoreCore core;
  core.set("k", "a");
  const Value held = core.get("k");
  core.append("k", "b");
  core.append("k", "c");
  EXPECT_EQ(*held, "a");
  EXPECT_EQ(*core.get("k"), "abc");
}

// The same script on the core and on a model that is too simple to be wrong: for each waiter the
// set of keys it still misses.
TEST(StoreCoreTest, RandomWaitsCancelsAndSetsMatchTheModel) {
  for (unsigned seed = 1; seed <= 200; ++seed) {
    std::mt19937 random(seed);
    StoreCore core;
    std::set<std::string> present;
    std::vector<std::unique_ptr<CountingWaiter>> waiters(20);
    std::vector<std::multiset<std::string>> missing(waiters.size());
    std::vector<int> releases(waiters.size());
    for (auto& waiter : waiters) waiter = std::make_unique<CountingWaiter>();
    for (int step = 0; step < 500; ++step) {
      const std::size_t who = random() % waiters.size();
      const std::string key(1, static_cast<char>('a' + random() % 6));
      switch (random() % 4) {
        case 0: {
          std::vector<std::string> keys;
          for (unsigned i = random() % 4; i > 0; --i)
            keys.push_back(std::string(1, static_cast<char>('a' + random() % 6)));
          missing[who].clear();
          for (const std::string& wanted : keys)
            if (!present.count(wanted)) missing[who].insert(wanted);
          EXPECT_EQ(core.wait(*waiters[who], keys), missing[who].empty());
          break;
        }
        case 1:
          core.set(key, "1");
          present.insert(key);
          for (std::size_t i = 0; i < waiters.size(); ++i)
            if (missing[i].erase(key) > 0 && missing[i].empty()) ++releases[i];
          break;
        case 2:
          EXPECT_EQ(core.remove(key), present.erase(key) > 0);
          break;
        default:
          core.cancel(*waiters[who]);
          missing[who].clear();
      }
      for (std::size_t i = 0; i < waiters.size(); ++i) {
        ASSERT_EQ(waiters[i]->releases, releases[i]) << "seed " << seed << " step " << step;
        ASSERT_EQ(waiters[i]->waiting(), !missing[i].empty());
      }
    }
    for (auto& waiter : waiters) core.cancel(*waiter);
  }
}

}  // namespace
}  // namespace dtrun::rendezvous
