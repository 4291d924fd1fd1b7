#include "rendezvous/store_promises.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "rendezvous/early_and_late.h"
#include "support/thrown_error.h"

namespace dtrun::rendezvous {

TEST_P(StorePromises, WhatIsSetIsRead) {
  const std::string bytes("\0\xff\n", 3);
  store_->set("k", "v");
  store_->set(bytes, bytes);
  store_->set("empty", "");
  EXPECT_EQ(store_->get("k", late()), "v");
  EXPECT_EQ(store_->get(bytes, late()), bytes);
  EXPECT_EQ(store_->try_get("empty"), "");
  EXPECT_EQ(store_->try_get("none"), std::nullopt);
}

TEST_P(StorePromises, AddCountsFromNothing) {
  EXPECT_EQ(store_->add("n", 5), 5);
  EXPECT_EQ(store_->add("n", -7), -2);
  EXPECT_EQ(store_->get("n", late()), "-2");
}

TEST_P(StorePromises, AddToATextIsAnErrorThatShowsIt) {
  store_->set("n", "seven");
  const auto error = testing_support::error_of([&] { store_->add("n", 1); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), base::ErrorCode::kProtocol);
  EXPECT_TRUE(testing_support::contains(error->why(), "'seven'")) << error->what();
  EXPECT_EQ(store_->get("n", late()), "seven");
}

TEST_P(StorePromises, CompareSetChangesOnlyWhatIsExpected) {
  EXPECT_EQ(store_->compare_set("k", "x", "y"), "x");
  EXPECT_FALSE(store_->check({"k"}));
  EXPECT_EQ(store_->compare_set("k", "", "y"), "y");
  EXPECT_EQ(store_->compare_set("k", "x", "z"), "y");
  EXPECT_EQ(store_->compare_set("k", "y", "z"), "z");
}

TEST_P(StorePromises, DeleteTellsWhetherThereWasAKey) {
  const std::int64_t before = store_->num_keys();
  store_->set("k", "v");
  EXPECT_EQ(store_->num_keys(), before + 1);
  EXPECT_TRUE(store_->delete_key("k"));
  EXPECT_FALSE(store_->delete_key("k"));
  EXPECT_EQ(store_->num_keys(), before);
}

TEST_P(StorePromises, ManyKeysAreSetReadAndListedAtOnce) {
  store_->multi_set({{"a", "1"}, {"b", ""}, {"c", "3"}});
  EXPECT_EQ(store_->multi_get({"c", "a", "b"}, late()), (std::vector<std::string>{"3", "1", ""}));
  EXPECT_EQ(store_->multi_get({}, late()), std::vector<std::string>{});
  EXPECT_TRUE(store_->check({"a", "b", "c"}));
  EXPECT_FALSE(store_->check({"a", "d"}));
  auto keys = store_->list_keys();
  std::sort(keys.begin(), keys.end());
  EXPECT_EQ(keys, (std::vector<std::string>{"a", "b", "c"}));
}

TEST_P(StorePromises, AppendCreatesAndExtends) {
  store_->append("k", "ab");
  store_->append("k", "cd");
  EXPECT_EQ(store_->get("k", late()), "abcd");
}

TEST_P(StorePromises, QueuesGiveWhatWasPushedFirst) {
  store_->queue_push("q", "1");
  store_->queue_push("q", "2");
  EXPECT_EQ(store_->queue_len("q"), 2);
  EXPECT_EQ(store_->queue_pop("q", late()), "1");
  EXPECT_EQ(store_->queue_pop("q", late()), "2");
  EXPECT_EQ(store_->queue_len("q"), 0);
  EXPECT_TRUE(testing_support::error_of([&] { store_->queue_pop("q", soon()); }));
}

TEST_P(StorePromises, APopWaitsForAPush) {
  std::thread consumer([&] { EXPECT_EQ(store_->queue_pop("q", late()), "late"); });
  store_->queue_push("q", "late");
  consumer.join();
}

TEST_P(StorePromises, APlainKeyOfAQueuesNameIsAnErrorAndNoSpin) {
  store_->set("q", "v");
  const auto error = testing_support::error_of([&] { store_->queue_pop("q", late()); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), base::ErrorCode::kInvalidArgument);
}

TEST_P(StorePromises, EveryElementGoesToExactlyOneConsumer) {
  std::vector<std::string> taken[4];
  std::vector<std::thread> consumers;
  for (auto& mine : taken)
    consumers.emplace_back([&] {
      for (std::string element; (element = store_->queue_pop("q", late())) != "end";)
        mine.push_back(element);
    });
  for (int i = 0; i < 200; ++i) store_->queue_push("q", std::to_string(i));
  for (int i = 0; i < 4; ++i) store_->queue_push("q", "end");
  for (std::thread& consumer : consumers) consumer.join();
  std::size_t all = 0;
  for (const auto& mine : taken) all += mine.size();
  EXPECT_EQ(all, 200u);
}

TEST_P(StorePromises, AWaitEndsWithTheLastOfItsKeys) {
  std::thread setter([&] {
    store_->wait({"go"}, late());
    store_->set("a", "1");
    store_->set("b", "2");
  });
  store_->set("go", "");
  store_->wait({"a", "b"}, late());
  EXPECT_EQ(store_->try_get("b"), "2");
  setter.join();
}

TEST_P(StorePromises, ATimeoutNamesTheKeysInPyTorchsWordsAndWhoIsMissing) {
  store_->set("there", "1");
  const auto error = testing_support::error_of([&] { store_->wait({"there", "absent"}, soon()); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), base::ErrorCode::kTimeout);
  // The milliseconds are those left when the wait began: 30, or less on a busy machine.
  EXPECT_TRUE(error->summary().starts_with("wait timeout after ")) << error->what();
  EXPECT_TRUE(testing_support::contains(error->summary(), "ms, keys: ")) << error->what();
  EXPECT_TRUE(testing_support::contains(error->summary(), "there, "));
  EXPECT_TRUE(testing_support::contains(error->why(), "nobody has set "));
  EXPECT_TRUE(testing_support::contains(error->why(), "absent"));
  EXPECT_FALSE(testing_support::contains(error->why(), "there"));
  EXPECT_TRUE(testing_support::error_of([&] { store_->get("absent", soon()); }));
  EXPECT_TRUE(testing_support::error_of([&] { store_->multi_get({"there", "absent"}, soon()); }));
  store_->set("absent", "now");
  EXPECT_EQ(store_->get("absent", late()), "now");
}

TEST_P(StorePromises, ABlockedWaitHoldsUpNobodyElse) {
  std::thread blocked([&] { store_->wait({"key of the other thread"}, late()); });
  for (int i = 0; i < 100; ++i) {
    store_->set("k", std::to_string(i));
    EXPECT_EQ(store_->get("k", late()), std::to_string(i));
  }
  store_->set("key of the other thread", "");
  blocked.join();
}

TEST_P(StorePromises, ABarrierHoldsAllUntilTheLastHasCome) {
  std::atomic<int> arrived{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&] {
      ++arrived;
      store_->barrier("b", 8, late());
      EXPECT_EQ(arrived.load(), 8);
    });
  for (std::thread& thread : threads) thread.join();
}

TEST_P(StorePromises, ABarrierThatSomebodyMissesTellsHowManyCame) {
  const auto error = testing_support::error_of([&] { store_->barrier("b", 2, soon()); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), base::ErrorCode::kTimeout);
  EXPECT_TRUE(error->why().starts_with("1 of 2 have come to this barrier")) << error->what();
  store_->set("text", "no number");
  EXPECT_EQ(testing_support::error_of([&] { store_->barrier("text", 2, soon()); })->code(),
            base::ErrorCode::kProtocol);
}

TEST_P(StorePromises, WithoutADeadlineAnOperationHasTheStoresTimeout) {
  EXPECT_EQ(store_->timeout(), std::chrono::seconds(300));
  store_->set_timeout(std::chrono::milliseconds(40));
  EXPECT_EQ(store_->timeout(), std::chrono::milliseconds(40));
  const auto begin = base::Deadline::Clock::now();
  const auto code = [&](const std::function<void()>& operation) {
    const auto error = testing_support::error_of(operation);
    return error ? error->code() : base::ErrorCode::kAborted;
  };
  EXPECT_EQ(code([&] { store_->get("absent"); }), base::ErrorCode::kTimeout);
  EXPECT_EQ(code([&] { store_->wait({"absent"}); }), base::ErrorCode::kTimeout);
  EXPECT_EQ(code([&] { store_->multi_get({"absent"}); }), base::ErrorCode::kTimeout);
  EXPECT_EQ(code([&] { store_->queue_pop("absent"); }), base::ErrorCode::kTimeout);
  EXPECT_EQ(code([&] { store_->barrier("meeting", 2); }), base::ErrorCode::kTimeout);
  EXPECT_GE(base::Deadline::Clock::now() - begin, std::chrono::milliseconds(5 * 40));
}

TEST_P(StorePromises, ADeadlineThatHasPassedDoesWhatNeedsNobodyElse) {
  const base::Deadline past = base::Deadline::after(std::chrono::seconds(-1));
  store_->set("k", "v", past);
  store_->append("k", "w", past);
  store_->multi_set({{"m", "1"}}, past);
  EXPECT_EQ(store_->get("k", past), "vw");
  EXPECT_EQ(store_->try_get("k", past), "vw");
  EXPECT_EQ(store_->multi_get({"k", "m"}, past), (std::vector<std::string>{"vw", "1"}));
  EXPECT_EQ(store_->add("n", 3, past), 3);
  EXPECT_EQ(store_->compare_set("c", "", "1", past), "1");
  EXPECT_TRUE(store_->check({"k", "c"}, past));
  store_->wait({"k", "c"}, past);
  EXPECT_GE(store_->num_keys(past), 4);
  EXPECT_EQ(store_->list_keys(past).size(), 4u);
  EXPECT_TRUE(store_->delete_key("k", past));
  store_->queue_push("q", "1", past);
  EXPECT_EQ(store_->queue_len("q", past), 1);
  EXPECT_EQ(store_->queue_pop("q", past), "1");
  store_->barrier("alone", 1, past);
  EXPECT_TRUE(testing_support::error_of([&] { store_->get("k", past); }));
}

TEST_P(StorePromises, KeysAndValuesMayHoldAnyBytesAndValuesBeLarge) {
  std::string key;
  for (int byte = 0; byte < 256; ++byte) key += static_cast<char>(byte);
  std::string large(300000, '\0');
  for (std::size_t i = 0; i < large.size(); ++i) large[i] = static_cast<char>(i * 7);
  store_->set(key, large);
  EXPECT_EQ(store_->get(key, late()), large);
  store_->append(key, key);
  EXPECT_EQ(store_->get(key, late()), large + key);
  EXPECT_EQ(store_->compare_set(key, large + key, large), large);
  store_->queue_push(key + "q", large);
  EXPECT_EQ(store_->queue_pop(key + "q", late()), large);
  store_->multi_set({{key, key}, {key + "2", large}});
  EXPECT_EQ(store_->multi_get({key + "2", key}, late()), (std::vector<std::string>{large, key}));
  auto keys = store_->list_keys();
  std::sort(keys.begin(), keys.end());
  EXPECT_EQ(keys, (std::vector<std::string>{key, key + "2"}));
}

TEST_P(StorePromises, AllWhoWaitAreReleasedHoweverTheyWait) {
  std::atomic<int> released{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      EXPECT_EQ(store_->get("value", late()), "v");
      ++released;
    });
    threads.emplace_back([&] {
      store_->wait({"value", "counter"}, late());
      ++released;
    });
    threads.emplace_back([&] {
      EXPECT_EQ(store_->multi_get({"appended", "value"}, late()).back(), "v");
      ++released;
    });
    threads.emplace_back([&] {
      EXPECT_EQ(store_->queue_pop("queue", late()), "element");
      ++released;
    });
  }
  store_->add("counter", 1);
  store_->append("appended", "a");
  for (int i = 0; i < 3; ++i) store_->queue_push("queue", "element");
  EXPECT_EQ(store_->compare_set("value", "", "v"), "v");
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(released.load(), 12);
  EXPECT_EQ(store_->queue_len("queue"), 0);
}

TEST_P(StorePromises, AQueueReadAsAValueIsAnError) {
  store_->queue_push("q", "1");
  const auto error = testing_support::error_of([&] { store_->get("q", late()); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), base::ErrorCode::kInvalidArgument);
}

}  // namespace dtrun::rendezvous
