// One request that releases so many that several threads answer them: each client is answered as
// ever, whatever it is up to meanwhile.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <vector>

#include "rendezvous/served_store.h"
#include "store/send_pool.h"

namespace dtrun::rendezvous {
namespace {

constexpr int kWaiters = 1200;

// Both ends of all connections live in this process.
void allow_descriptors() {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = std::min<rlim_t>(8192, limit.rlim_max);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
}

class StoreReleaseTest : public testing::Test {
 protected:
  void SetUp() override {
    allow_descriptors();
    for (int i = 0; i < kWaiters; ++i) {
      waiters_.emplace_back(server_.port());
      waiters_.back().handshake();
    }
  }

  // Its PING's answer says that the server has heard of the wait.
  void let_all_wait(const std::string& wait) {
    for (RawClient& waiter : waiters_) waiter.exchange(wait + " | 0d 'wait'", "'wait'");
  }

  ServedStore server_;
  std::vector<RawClient> waiters_;
};

TEST_F(StoreReleaseTest, EveryoneIsAnsweredOnceAndInOrderTimeAfterTime) {
  for (int round = 0; round < 3; ++round) {
    const std::string key = " 02 0*7 '/" + std::to_string(round) + "'";
    let_all_wait("06 01 0*7" + key);
    // What they ask afterwards must be answered afterwards.
    for (RawClient& waiter : waiters_) waiter.send(bytes("0d 'next'"));
    RawClient setter(server_.port());
    setter.handshake();
    setter.exchange("01" + key + " 0*8 | 0d 'done'", "'done'");
    for (RawClient& waiter : waiters_) {
      const std::string answer = waiter.receive(5);
      EXPECT_TRUE(answer == bytes("00 'next'") || answer == bytes("'next' 00")) << hex(answer);
    }
  }
  for (RawClient& waiter : waiters_) waiter.expect_in_step();
}

TEST_F(StoreReleaseTest, WhoIsGoneOrDoesNotReadConcernsNobodyElse) {
  const std::string value(1 << 20, 'x');
  const auto store = server_.client();
  store->set("big", value);
  ASSERT_TRUE(store->check({"big"}));
  RawClient& slow = waiters_[5];
  slow.send(
      bytes("03 04 0*7 '/big' 03 04 0*7 '/big' 03 04 0*7 '/big' 03 04 0*7 '/big' "
            "03 04 0*7 '/big' 03 04 0*7 '/big' 03 04 0*7 '/big' 03 04 0*7 '/big' "));
  for (std::size_t i = 0; i < waiters_.size(); ++i)
    if (i != 5) waiters_[i].exchange("06 01 0*7 02 0*7 '/k' | 0d 'wait'", "'wait'");
  slow.send(bytes("06 01 0*7 02 0*7 '/k'"));
  for (std::size_t i = 0; i < waiters_.size(); i += 10) waiters_[i].reset();
  store->set("k", "");
  for (std::size_t i = 0; i < waiters_.size(); ++i)
    if (i % 10 != 0 && i != 5) {
      EXPECT_EQ(hex(waiters_[i].receive(1)), "00 ") << i;
    }
  for (int i = 0; i < 8; ++i) {
    slow.receive(8);
    EXPECT_TRUE(slow.receive(value.size()) == value);
  }
  EXPECT_EQ(hex(slow.receive(1)), "00 ");
  for (std::size_t i = 0; i < waiters_.size(); ++i)
    if (i % 10 != 0) waiters_[i].expect_in_step();
}

// It is released by itself, twice, in the same turn as all others.
TEST_F(StoreReleaseTest, WhoIsReleasedTwiceAtOnceIsAnsweredTwice) {
  let_all_wait("06 01 0*7 02 0*7 '/k'");
  RawClient both(server_.port());
  both.handshake();
  both.exchange(
      "06 01 0*7 02 0*7 '/k' | 01 02 0*7 '/k' 0*8 | 06 01 0*7 02 0*7 '/l' | 01 02 0*7 '/l' 0*8",
      "00 00");
  both.expect_in_step();
  for (RawClient& waiter : waiters_) waiter.exchange("", "00");
}

TEST(SendPoolTest, WhatIsNotTakenIsToldAndTheRestGoesOn) {
  SendPool pool;
  const base::UniqueFd listener = base::listen_tcp("127.0.0.1", 0);
  RawClient client(base::local_port(listener.get()));
  const std::string much(64 << 20, 'x');
  for (int round = 0; round < 20; ++round) {
    std::vector<PendingSend> sends(500, PendingSend{-1, "x"});
    sends[250] = {client.fd(), much};
    pool.send_all(sends);
    EXPECT_LT(sends[250].sent, much.size());
    EXPECT_TRUE(round > 0 || sends[250].sent > 0);
    sends[250].sent = 0;
    for (const PendingSend& send : sends) EXPECT_EQ(send.sent, 0U);
  }
}

}  // namespace
}  // namespace dtrun::rendezvous
