// max_store_bytes: who would exceed it goes, what is there stays, the others go on; and what is
// given up is free again.
#include <gtest/gtest.h>
#include <poll.h>

#include <functional>
#include <memory>
#include <vector>

#include "rendezvous/served_store.h"
#include "store/store_session.h"

namespace dtrun::rendezvous {
namespace {

constexpr std::size_t kKiB = 1 << 10;

TcpStoreServerOptions options_with_a_mebibyte() {
  TcpStoreServerOptions options;
  options.max_store_bytes = 1 << 20;
  return options;
}

std::string length(std::size_t size) {
  std::string bytes(8, '\0');
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<char>(size >> (8 * i) & 0xff);
  return bytes;
}

std::string request(char op, const std::string& key, std::size_t value_size) {
  return op + length(key.size()) + key + length(value_size) + std::string(value_size, 'v');
}

StoreService::Settings service_settings(std::size_t most_bytes) {
  StoreService::Settings settings;
  settings.most_bytes = most_bytes;
  return settings;
}

class StoreQuotaTest : public testing::Test {
 protected:
  RawClient greeted() {
    RawClient client(server_.port());
    client.handshake();
    return client;
  }
  // One who comes while the store is still full is sent away, and comes again.
  template <typename Action>
  void once_there_is_room(Action action) {
    for (const base::Deadline limit = RawClient::limit();;) try {
        return action();
      } catch (const base::Error& error) {
        if (error.code() != base::ErrorCode::kConnection || limit.expired()) throw;
      }
  }
  static bool one_is_closed(const std::vector<RawClient>& clients) {
    std::vector<pollfd> ends;
    for (const RawClient& client : clients) ends.push_back({client.fd(), POLLRDHUP, 0});
    return ::poll(ends.data(), ends.size(), 30'000) > 0;
  }
  void expect_refused(const std::string& asked) {
    RawClient client = greeted();
    client.send(asked);
    EXPECT_TRUE(client.closed_by_peer()) << static_cast<int>(asked[0]);
  }

  const ServedStore server_{options_with_a_mebibyte()};
};

TEST_F(StoreQuotaTest, WhatDoesNotFitIsRefusedAndTheRestGoesOn) {
  RawClient owner = greeted();
  owner.send(request(1, "mine", 600 * kKiB));
  owner.expect_in_step();
  for (const char op : {1, 9, 14}) expect_refused(request(op, "more", 600 * kKiB));  // SET and kin
  expect_refused(request(9, "mine", 600 * kKiB));
  // Small things still fit, and what is there is read and deleted.
  RawClient other = greeted();
  other.exchange("01 01 0*7 'k' 01 0*7 'v' | 03 01 0*7 'k'", "01 0*7 'v'");
  other.send(bytes("03 04 0*7 'mine'"));
  EXPECT_EQ(other.receive(8 + 600 * kKiB).size(), 8 + 600 * kKiB);
  other.exchange("08 04 0*7 'mine'", "01 0*7");
  other.send(request(1, "more", 600 * kKiB));
  other.expect_in_step();
  owner.expect_in_step();
}

TEST_F(StoreQuotaTest, AQueueThatOnlyGrowsIsRefusedAndCanBeEmptied) {
  RawClient pusher = greeted();
  std::string pushes;
  for (int i = 0; i < 8; ++i) pushes += request(14, "q", 200 * kKiB);
  try {
    pusher.send(pushes);
  } catch (const base::Error& error) {  // the server closed before all was sent
    EXPECT_EQ(error.code(), base::ErrorCode::kConnection);
  }
  EXPECT_TRUE(pusher.closed_by_peer());
  RawClient popper = greeted();
  for (int left = 5; left > 0; --left) {
    popper.send(bytes("0f 01 0*7 'q'"));
    EXPECT_EQ(hex(popper.receive(8)), hex(length(left)));
    popper.receive(8 + 200 * kKiB);
  }
  popper.exchange("10 01 0*7 'q'", "0*8");
}

TEST_F(StoreQuotaTest, HalfRequestsCountAndAreFreeAgainWhenTheyGo) {
  for (int round = 0; round < 3; ++round) {
    std::vector<RawClient> halves;
    // 16 halves of 100 KiB: somewhere on the way one is too many, and that one goes.
    for (int i = 0; i < 16; ++i) {
      once_there_is_room([&] { halves.push_back(greeted()); });
      try {
        halves.back().send(request(1, "half", 200 * kKiB).substr(0, 100 * kKiB));
        halves.back().send("x");
      } catch (const base::Error& error) {
        EXPECT_EQ(error.code(), base::ErrorCode::kConnection);
      }
    }
    EXPECT_TRUE(one_is_closed(halves));
  }
  once_there_is_room([&] {
    RawClient other = greeted();
    other.send(request(1, "whole", 900 * kKiB));
    other.expect_in_step();
  });
}

TEST_F(StoreQuotaTest, WaitsForKeysThatNobodySetsCount) {
  std::string wait = bytes("06") + length(4000);
  for (int i = 0; i < 4000; ++i) wait += length(4) + std::to_string(1000 + i);
  expect_refused(wait);
  greeted().exchange("01 01 0*7 'k' 01 0*7 'v' | 03 01 0*7 'k'", "01 0*7 'v'");
}

TEST_F(StoreQuotaTest, AShortQuestionWithALongAnswerIsRefused) {
  RawClient asker = greeted();
  asker.send(request(1, "k", 4000));
  constexpr std::size_t kTimes = 50'000;  // 200 MB of answer
  std::string gets = bytes("0a") + length(kTimes);
  for (std::size_t i = 0; i < kTimes; ++i) gets += length(1) + "k";
  asker.send(gets);
  std::size_t came = 0;
  try {
    while (came < kTimes * 4008) came += asker.receive(4008).size();
  } catch (const base::Error& error) {
    EXPECT_EQ(error.code(), base::ErrorCode::kConnection);
  }
  EXPECT_LT(came, std::size_t{1} << 20);
  greeted().exchange("03 01 0*7 'x'", "0*8");
}

TEST_F(StoreQuotaTest, AListOfAllKeysCountsAsWell) {
  RawClient owner = greeted();
  for (int i = 0; i < 80; ++i)
    owner.send(request(1, std::string(8000, 'k') + std::to_string(i), 0));
  owner.expect_in_step();
  RawClient lister = greeted();
  lister.send(bytes("11"));
  try {
    lister.receive(80 * 8000);
    ADD_FAILURE() << "the list was sent whole";
  } catch (const base::Error& error) {
    EXPECT_EQ(error.code(), base::ErrorCode::kConnection);
  }
  owner.expect_in_step();
}

TEST_F(StoreQuotaTest, AStoreFullOfQueuesIsStillReadAndEmptied) {
  RawClient owner = greeted();
  owner.send(request(1, "mine", 10));
  owner.expect_in_step();
  RawClient pusher = greeted();
  try {
    for (int i = 0;; ++i) {
      pusher.send(request(14, "q" + std::to_string(i), 1));
      pusher.expect_in_step();
    }
  } catch (const base::Error& error) {
    EXPECT_EQ(error.code(), base::ErrorCode::kConnection);
  }
  owner.expect_in_step();
  RawClient other = greeted();
  other.exchange("03 04 0*7 'mine'", "0a 0*7 'vvvvvvvvvv'");
  other.exchange("0f 02 0*7 'q0' | 08 04 0*7 'mine'", "01 0*7 01 0*7 'v' | 01 0*7");
  // What was deleted is free: an entry is.
  other.send(request(1, "new", 1));
  other.expect_in_step();
}

TEST_F(StoreQuotaTest, ACounterThatIsThereCountsInAFullStore) {
  RawClient owner = greeted();
  owner.exchange("04 01 0*7 'n' 01 0*7", "01 0*7");
  try {
    for (int i = 0;; ++i) {
      RawClient filler = greeted();
      filler.send(request(1, "fill" + std::to_string(i), i < 9 ? 100 * kKiB : 0));
      filler.expect_in_step();
    }
  } catch (const base::Error& error) {
    EXPECT_EQ(error.code(), base::ErrorCode::kConnection);
  }
  owner.exchange("04 01 0*7 'n' 01 0*7", "02 0*7");
}

TEST(StoreMemoryTest, NothingIsChargedForWhatIsGone) {
  StoreService service;
  const StoreMemory& memory = service.core.memory();
  {
    StoreSession session(service);
    session.receive(bytes("00 ce f7 85 3c"));
    for (const char op : {1, 9, 14, 9}) session.receive(request(op, "a", 5000));
    session.receive(request(1, "a", 10) + bytes("04 01 0*7 'n' 01 0*7 | 12 01 0*7 'b' 02 0*7"));
    session.receive(bytes("06 02 0*7 01 0*7 'x' 01 0*7 'y' | 03 01 0*7 'a'"));
    EXPECT_GT(memory.used(), 5000u);
    session.receive(bytes("0c 08 01 0*7 'a' 08 01 0*7 'n' 08 01 0*7 'b' 0f 01 0*7 'a'"));
    session.receive(request(1, "half", 50'000).substr(0, 20'000));
    EXPECT_GT(memory.used(), 20'000u);
  }
  EXPECT_EQ(memory.used(), 0u);
}

// Whatever is asked for, and however little is left: what is held is never more than it may be.
TEST(StoreMemoryTest, WhatIsCheckedIsWhatIsCharged) {
  const std::string preamble = bytes("00 ce f7 85 3c");
  const auto named = [](int i) { return "name" + std::to_string(i); };
  const std::vector<std::function<std::string(int)>> requests = {
      [&](int i) { return request(1, named(i), 20); },
      [&](int i) { return request(14, named(i), 1); },
      [&](int) { return request(14, "one queue", 1); },
      [&](int) { return request(9, "one value", 50); },
      [&](int i) { return request(9, named(i), 50); },
      [&](int i) { return bytes("04") + length(named(i).size()) + named(i) + length(1); },
      [&](int i) { return bytes("12") + length(named(i).size()) + named(i) + length(9); },
      [&](int i) { return bytes("06") + length(1) + length(named(i).size()) + named(i); },
      [&](int i) {
        return bytes("0b") + length(2) + request(1, named(i), 9).substr(1) +
               request(1, "m" + named(i), 9).substr(1);
      },
  };
  for (std::size_t kind = 0; kind < requests.size(); ++kind) {
    for (std::size_t pad = 0; pad < 700; pad += 23) {
      StoreService service(service_settings(32 << 10));
      std::vector<std::unique_ptr<StoreSession>> sessions;
      for (int i = 0; sessions.empty() || sessions.back()->state() == StoreSession::State::kServing;
           ++i) {
        // Of those that wait each has a connection of its own.
        if (i == 0 || requests[kind](0)[0] == 6 || requests[kind](0)[0] == 18)
          sessions.push_back(std::make_unique<StoreSession>(service));
        StoreSession& session = *sessions.back();
        if (session.silent()) session.receive(preamble);
        if (i == 0) session.receive(request(1, "pad", pad));
        session.receive(requests[kind](i));
        session.output().pop(session.output().size());
        ASSERT_LE(service.core.memory().used(), service.core.memory().most())
            << kind << ", " << pad;
      }
      EXPECT_NE(sessions.back()->failure().find("bytes in use"), std::string::npos);
      // The others are none the worse.
      StoreSession reader(service);
      reader.receive(preamble + bytes("03 03 0*7 'pad' 08 03 0*7 'pad'"));
      reader.limit_memory();
      EXPECT_EQ(reader.state(), StoreSession::State::kServing) << reader.failure();
    }
  }
}

TEST(StoreMemoryTest, AnAppendUnderASlowReaderKeepsOneCopy) {
  constexpr std::size_t kStep = 40'000;
  StoreService service;
  StoreSession writer(service);
  writer.receive(bytes("00 ce f7 85 3c"));
  std::vector<std::unique_ptr<StoreSession>> readers;
  for (int i = 1; i <= 50; ++i) {
    writer.receive(request(9, "k", kStep));
    readers.push_back(std::make_unique<StoreSession>(service));
    readers.back()->receive(bytes("00 ce f7 85 3c 03 01 0*7 'k'"));
    // Each sees the value as it was when it asked.
    EXPECT_EQ(readers.back()->output().size(), 8 + i * kStep);
  }
  EXPECT_LT(service.core.memory().used(), 50 * kStep * 5 / 4);
  for (const auto& reader : readers) {
    iovec pieces[4];
    ASSERT_EQ(reader->output().front(pieces, 4), 2u);
    EXPECT_EQ(std::string(static_cast<char*>(pieces[1].iov_base), pieces[1].iov_len),
              std::string(pieces[1].iov_len, 'v'));
  }
}

TEST(StoreMemoryTest, ABigValueIsNotCopiedOutOfItsRequest) {
  constexpr std::size_t kSize = 800 * kKiB;
  StoreService service(service_settings(1 << 20));
  StoreSession session(service);
  session.receive(bytes("00 ce f7 85 3c"));
  for (const char op : {1, 14, 1}) {
    const std::string whole = request(op, "k", kSize) + bytes("0d 'ping'");
    for (std::size_t at = 0; at < whole.size(); at += 50'000)
      session.receive(whole.substr(at, 50'000));
    ASSERT_EQ(session.state(), StoreSession::State::kServing) << session.failure();
    EXPECT_EQ(session.output().size(), 4u);
    session.output().pop(4);
    EXPECT_LT(service.core.memory().used(), kSize * 21 / 20);
    if (op == 14) {
      const Value popped = service.core.queue_pop("k");
      EXPECT_EQ(*popped, std::string(kSize, 'v'));
    } else {
      EXPECT_EQ(*service.core.get("k"), std::string(kSize, 'v'));
      service.core.remove("k");
    }
  }
}

TEST(StoreMemoryTest, AMultiSetIsDoneWholeOrNotAtAll) {
  StoreService service(service_settings(16 << 10));
  StoreSession session(service);
  session.receive(bytes("00 ce f7 85 3c 0b 02 0*7") + request(1, "a", 4000).substr(1) +
                  request(1, "b", 14'000).substr(1));
  EXPECT_EQ(session.state(), StoreSession::State::kFailed);
  EXPECT_FALSE(service.core.get("a"));
}

}  // namespace
}  // namespace dtrun::rendezvous
