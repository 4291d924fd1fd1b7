#include "store/store_session.h"

#include <gtest/gtest.h>

#include "rendezvous/served_store.h"

namespace dtrun::rendezvous {
namespace {

using State = StoreSession::State;

class StoreSessionTest : public testing::Test {
 protected:
  // What the session has to send now; it counts as sent.
  static std::string taken(StoreSession& session) {
    std::string result;
    while (!session.output().empty()) {
      iovec pieces[4];
      const std::size_t count = session.output().front(pieces, 4);
      std::size_t size = 0;
      for (std::size_t i = 0; i < count; ++i) {
        result.append(static_cast<const char*>(pieces[i].iov_base), pieces[i].iov_len);
        size += pieces[i].iov_len;
      }
      session.output().pop(size);
    }
    return result;
  }
  static std::string ask(StoreSession& session, const std::string& request) {
    session.receive(bytes(request));
    return hex(taken(session));
  }
  static std::string reply(const std::string& text) { return hex(bytes(text)); }

  StoreService service_;
  StoreCore& core_ = service_.core;
};

constexpr const char* kHello = "00 ce f7 85 3c";

TEST_F(StoreSessionTest, TheGoldenVectorsOfPyTorchAreAnsweredToTheByte) {
  StoreSession session(service_);
  EXPECT_EQ(ask(session, "00 ce f7 85 3c 0d 01 02 03 04"), reply("01 02 03 04"));
  EXPECT_EQ(ask(session, "01 | 02 0*7 2f 6b | 01 0*7 76"), "");
  EXPECT_EQ(ask(session, "06 | 01 0*7 | 02 0*7 2f 6b"), reply("00"));
  EXPECT_EQ(ask(session, "03 | 02 0*7 2f 6b"), reply("01 0*7 76"));
  core_.set("/n", "5");
  EXPECT_EQ(ask(session, "04 | 02 0*7 2f 6e | f9 ff*7"), reply("fe ff*7"));
  EXPECT_EQ(*core_.get("/n"), "-2");
  EXPECT_EQ(ask(session, "02 | 02 0*7 '/q' | 01 0*7 'x' | 01 0*7 'y'"), reply("01 0*7 'x'"));
  EXPECT_EQ(ask(session, "02 | 02 0*7 '/q' | 0*8 | 01 0*7 'y'"), reply("01 0*7 'y'"));
  EXPECT_EQ(ask(session, "06 | 01 0*7 | 02 0*7 '/z'"), "");
  EXPECT_EQ(ask(session, "0c"), reply("01"));
  EXPECT_EQ(ask(session, "0f | 02 0*7 '/e'"), reply("0*8"));
  EXPECT_TRUE(session.established());
}

TEST_F(StoreSessionTest, EveryOtherOperationIsAnsweredInItsForm) {
  StoreSession session(service_);
  ask(session, kHello);
  EXPECT_EQ(ask(session, "09 01 0*7 'a' 01 0*7 '1' | 09 01 0*7 'a' 01 0*7 '2'"), "");
  EXPECT_EQ(ask(session, "0b 02 0*7 01 0*7 'b' 0*8 01 0*7 'c' 01 0*7 '3'"), "");
  EXPECT_EQ(ask(session, "0a 03 0*7 01 0*7 'a' 01 0*7 'b' 01 0*7 'x'"),
            reply("02 0*7 '12' | 0*8 | 0*8"));
  EXPECT_EQ(ask(session, "05 02 0*7 01 0*7 'a' 01 0*7 'b'"), reply("00"));
  EXPECT_EQ(ask(session, "05 02 0*7 01 0*7 'a' 01 0*7 'x'"), reply("01"));
  EXPECT_EQ(ask(session, "05 0*8 | 06 0*8"), reply("00 00"));
  EXPECT_EQ(ask(session, "07"), reply("03 0*7"));
  EXPECT_EQ(ask(session, "08 01 0*7 'a' | 08 01 0*7 'a'"), reply("01 0*7 | 0*8"));
  EXPECT_EQ(ask(session, "0e 01 0*7 'q' 01 0*7 '1' | 10 01 0*7 'q'"), reply("01 0*7"));
  EXPECT_EQ(ask(session, "0f 01 0*7 'q' | 10 01 0*7 'q'"), reply("01 0*7 01 0*7 '1' | 0*8"));
  EXPECT_EQ(ask(session, "08 01 0*7 'b' | 11"), reply("01 0*7 | 01 0*7 01 0*7 'c'"));
  EXPECT_EQ(ask(session, "03 04 0*7 'none'"), reply("0*8"));
  EXPECT_EQ(ask(session, "12 01 0*7 'B' 01 0*7"), reply("00"));
}

TEST_F(StoreSessionTest, ABarrierAnswersAllWhenTheLastComes) {
  StoreSession first(service_), second(service_);
  ask(first, kHello);
  ask(second, kHello);
  EXPECT_EQ(ask(first, "12 01 0*7 'B' 02 0*7"), "");
  EXPECT_EQ(ask(second, "12 01 0*7 'B' 02 0*7"), reply("00"));
  EXPECT_EQ(hex(taken(first)), reply("00"));
  EXPECT_EQ(service_.released, std::vector<StoreSession*>{&first});
}

TEST_F(StoreSessionTest, ACancelThatCrossesTheReleaseIsAnsweredAfterIt) {
  StoreSession waiter(service_), setter(service_);
  ask(waiter, kHello);
  ask(setter, kHello);
  ask(waiter, "06 01 0*7 01 0*7 'k'");
  ask(setter, "01 01 0*7 'k' 0*8");
  EXPECT_EQ(ask(waiter, "0c"), reply("00 01"));
  EXPECT_EQ(ask(waiter, "0c"), reply("01"));
}

TEST_F(StoreSessionTest, ACancelledWaitIsNotReleasedLater) {
  StoreSession waiter(service_), setter(service_);
  ask(waiter, kHello);
  ask(setter, kHello);
  ask(waiter, "06 01 0*7 01 0*7 'k'");
  EXPECT_EQ(ask(waiter, "0c"), reply("01"));
  ask(setter, "01 01 0*7 'k' 0*8");
  EXPECT_EQ(ask(waiter, "07"), reply("01 0*7"));
}

TEST_F(StoreSessionTest, AGoneWaitersQueueElementWakesTheNextWaiter) {
  StoreSession second(service_), pusher(service_);
  ask(second, kHello);
  ask(pusher, kHello);
  {
    StoreSession first(service_);
    ask(first, kHello);
    ask(first, "06 01 0*7 01 0*7 'q'");
    ask(second, "06 01 0*7 01 0*7 'q'");
    ask(pusher, "0e 01 0*7 'q' 01 0*7 '1'");
    EXPECT_EQ(hex(taken(second)), "");
  }
  EXPECT_EQ(hex(taken(second)), reply("00"));
}

TEST_F(StoreSessionTest, TheHandshakeMayComeByteByByte) {
  StoreSession session(service_);
  EXPECT_TRUE(session.silent());
  for (const char c : bytes("00 ce f7 85 3c")) {
    EXPECT_EQ(session.state(), State::kOpening);
    session.receive(std::string(1, c));
  }
  EXPECT_EQ(session.state(), State::kServing);
  EXPECT_FALSE(session.is_legacy());
  EXPECT_TRUE(session.established());
}

TEST_F(StoreSessionTest, ALegacyClientIsKnownByItsFirstBytesAndEstablishedByARequest) {
  StoreSession session(service_);
  EXPECT_EQ(ask(session, "03"), "");
  EXPECT_TRUE(session.is_legacy());
  EXPECT_FALSE(session.established());
  EXPECT_EQ(ask(session, "05 0*7 'init/' 01 0*7"), reply("01 0*7"));
  EXPECT_TRUE(session.established());
  EXPECT_EQ(ask(session, "06"), reply("01 0*7"));

  StoreSession setter(service_);
  EXPECT_EQ(ask(setter, "00 01 0*3"), "");
  EXPECT_EQ(ask(setter, "0*4 'k' 01 0*7 'v' | 02 01 0*7 'k'"), reply("01 0*7 'v'"));
  EXPECT_TRUE(setter.is_legacy());
}

TEST_F(StoreSessionTest, TheNumberingOf21IsUsedWhereItIsAskedFor) {
  StoreService::Settings settings;
  settings.legacy = StoreDialect::kTorch21;
  StoreService service(settings);
  StoreSession session(service);
  EXPECT_EQ(ask(session, "05 01 0*7 01 0*7 'k'"), "");
  EXPECT_EQ(ask(session, "0b"), reply("01"));
}

TEST_F(StoreSessionTest, WithoutALegacyDialectAWrongFirstByteFails) {
  StoreService::Settings settings;
  settings.legacy.reset();
  StoreService service(settings);
  StoreSession whole(service), split(service), agent(service);
  EXPECT_EQ(ask(whole, "03 01 0*7 'k' 01 0*7"), "");
  EXPECT_EQ(whole.state(), State::kFailed);
  EXPECT_EQ(ask(split, "00 ce"), "");
  EXPECT_EQ(split.state(), State::kOpening);
  EXPECT_EQ(ask(split, "f6"), "");
  EXPECT_EQ(split.state(), State::kFailed);
  EXPECT_NE(split.failure().find("VALIDATE"), std::string::npos);
  EXPECT_EQ(ask(agent, "80"), "");
  EXPECT_EQ(agent.state(), State::kAgent);
  EXPECT_EQ(service.core.key_count(), 0u);
}

TEST_F(StoreSessionTest, ALegacyClientThatAsksAgainHasGivenItsWaitUp) {
  StoreSession session(service_);
  ask(session, "05 01 0*7 01 0*7 'k'");
  EXPECT_EQ(ask(session, "06"), reply("0*8"));
  core_.set("k", "");
  EXPECT_EQ(ask(session, "06"), reply("01 0*7"));
}

TEST_F(StoreSessionTest, AFirstByteAbove127BelongsToAnAgentWithAllThatCame) {
  StoreSession session(service_);
  session.receive(bytes("80 01 02"));
  EXPECT_EQ(session.state(), State::kAgent);
  EXPECT_EQ(session.first_bytes(), bytes("80 01 02"));
}

TEST_F(StoreSessionTest, WhatCannotBeServedFailsAndChangesNothing) {
  core_.set("n", "abc");
  for (const auto& [request, why] : {std::pair{"04 01 0*7 'n' 01 0*7", "ADD to what is no number"},
                                     {"12 01 0*7 'n' 01 0*7", "BARRIER on what is no number"},
                                     {"13", "no operation 19"},
                                     {"00 01 02 03 04", "another magic"},
                                     {"03 00 00 00 00 00 00 00 80", "GET with a key"}}) {
    StoreSession session(service_);
    ask(session, kHello);
    EXPECT_EQ(ask(session, request), "");
    EXPECT_EQ(session.state(), State::kFailed) << request;
    EXPECT_NE(session.failure().find(why), std::string::npos) << session.failure();
  }
  EXPECT_EQ(*core_.get("n"), "abc");
  StoreSession wrong_magic(service_), watcher(service_);
  EXPECT_EQ(ask(wrong_magic, "00 cf f7 85 3c 0d 'pid1'"), "");
  EXPECT_EQ(wrong_magic.state(), State::kFailed);
  EXPECT_EQ(ask(watcher, "07 01 0*7 'k'"), "");
  EXPECT_EQ(watcher.failure(), "WATCH_KEY is not served");
}

TEST_F(StoreSessionTest, AClientThatReadsNothingIsServedNoFurtherUntilItDoes) {
  core_.set("big", std::string(600 << 10, 'x'));
  StoreSession session(service_);
  ask(session, kHello);
  const std::string get = bytes("03 03 0*7 'big'");
  session.receive(get + get + get + get + get);
  EXPECT_TRUE(session.stalled());
  EXPECT_TRUE(session.has_unserved());
  EXPECT_LT(session.output().size(), std::size_t{2} << 20);
  std::size_t all = taken(session).size();
  while (session.has_unserved()) {
    session.resume();
    all += taken(session).size();
  }
  EXPECT_EQ(all, 5 * (8 + (std::size_t{600} << 10)));
  EXPECT_FALSE(session.stalled());
}

}  // namespace
}  // namespace dtrun::rendezvous
