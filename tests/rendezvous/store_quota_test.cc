// max_store_bytes: who would exceed it goes, what is there stays, the others go on; and what is
// given up is free again.
#include <gtest/gtest.h>
#include <poll.h>

#include <vector>

#include "rendezvous/served_store.h"
#include "store_session.h"

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

}  // namespace
}  // namespace dtrun::rendezvous
