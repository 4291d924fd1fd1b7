// What the operations mean to several clients at once, over real sockets: where PyTorch documents
// or tests it, as there; where its server was seen to fail, as docs/protocols.md says.
#include <gtest/gtest.h>

#include "rendezvous/wire_words.h"

namespace dtrun::rendezvous {
namespace {

class WireSemanticsTest : public testing::Test {
 protected:
  WireClient modern() const { return WireClient(server_.port(), kModernWire); }
  WireClient legacy() const { return WireClient(server_.port(), kWire19To20); }

  // Sends what is not answered, and returns when it has been served.
  static void tell(WireClient& client, const std::string& text) {
    client.say(text);
    client.in_step();
  }
  // It waits, and stays able to be asked: nothing came but the answer of the round trip.
  static void still_waits(WireClient& client) { client.in_step(); }

  const ServedStore server_;
};

TEST_F(WireSemanticsTest, ModernAndLegacyClientsShareOneStore) {
  WireClient young = modern(), old = legacy();
  old.ask("ADD 05 0*7 'init/' 01 0*7", "01 0*7");
  young.ask("ADD 05 0*7 'init/' 01 0*7", "02 0*7");
  tell(old, "SET 02 0*7 '/k' 01 0*7 'v'");
  young.ask("GET 02 0*7 '/k'", "01 0*7 'v'");
  young.say("WAIT 01 0*7 02 0*7 '/m'");
  still_waits(young);
  old.say("SET 02 0*7 '/m' 01 0*7 'w'");
  young.hear("00");
  old.say("WAIT 01 0*7 02 0*7 '/o'");
  young.in_step();
  young.ask("COMPARE_SET 02 0*7 '/o' 0*8 01 0*7 'x'", "01 0*7 'x'");
  old.hear("00");
  old.ask("NUM_KEYS", "04 0*7");
  old.ask("DELETE_KEY 02 0*7 '/o'", "01 0*7");
  young.ask("CHECK 01 0*7 02 0*7 '/o'", "01");
}

TEST_F(WireSemanticsTest, EveryChangeOfAKeyReleasesAllWhoWaitForIt) {
  for (const char* change :
       {"SET 01 0*7 'k' 0*8", "ADD 01 0*7 'k' 0*8", "COMPARE_SET 01 0*7 'k' 0*8 0*8",
        "APPEND 01 0*7 'k' 0*8", "MULTI_SET 02 0*7 01 0*7 'z' 0*8 01 0*7 'k' 0*8",
        "BARRIER 01 0*7 'k' 63 0*7"}) {
    SCOPED_TRACE(change);
    WireClient first = modern(), second = legacy(), changer = modern();
    first.say("WAIT 01 0*7 01 0*7 'k'");
    second.say("WAIT 01 0*7 01 0*7 'k'");
    changer.let_others_be_served();
    changer.say(change);
    first.hear("00");
    second.hear("00");
    WireClient cleaner = modern();
    cleaner.ask("DELETE_KEY 01 0*7 'k'", "01 0*7");
    first.in_step();
  }
}

TEST_F(WireSemanticsTest, ACompareSetThatStoresNothingReleasesNobody) {
  WireClient waiter = modern(), other = modern();
  tell(waiter, "WAIT 01 0*7 01 0*7 'k'");
  other.ask("COMPARE_SET 01 0*7 'k' 01 0*7 'x' 01 0*7 'y'", "01 0*7 'x'");
  still_waits(waiter);
  other.ask("COMPARE_SET 01 0*7 'k' 0*8 01 0*7 'y'", "01 0*7 'y'");
  waiter.hear("00");
  other.ask("COMPARE_SET 01 0*7 'k' 01 0*7 'x' 01 0*7 'z'", "01 0*7 'y'");
}

TEST_F(WireSemanticsTest, WhatWasSetAndDeletedSinceStillCountsForAWaiter) {
  WireClient waiter = modern(), other = modern();
  tell(waiter, "WAIT 02 0*7 01 0*7 'a' 01 0*7 'b'");
  other.ask("SET 01 0*7 'a' 0*8 DELETE_KEY 01 0*7 'a'", "01 0*7");
  still_waits(waiter);
  other.say("SET 01 0*7 'b' 0*8");
  waiter.hear("00");
  waiter.in_step();
}

TEST_F(WireSemanticsTest, DeletingReleasesNobody) {
  WireClient waiter = modern(), other = modern();
  tell(waiter, "WAIT 01 0*7 01 0*7 'a'");
  other.ask("DELETE_KEY 01 0*7 'a'", "0*8");
  still_waits(waiter);
}

TEST_F(WireSemanticsTest, ACancelHearsWhatWasOnItsWayFirst) {
  for (int round = 0; round < 20; ++round) {
    WireClient waiter = modern(), other = modern();
    tell(waiter, "WAIT 01 0*7 01 0*7 'k'");
    tell(other, "SET 01 0*7 'k' 0*8");
    waiter.ask("CANCEL_WAIT", "00 01");
    waiter.ask("DELETE_KEY 01 0*7 'k'", "01 0*7");
    tell(waiter, "WAIT 01 0*7 01 0*7 'k'");
    waiter.ask("CANCEL_WAIT", "01");
    tell(other, "SET 01 0*7 'k' 0*8");
    waiter.in_step();
    waiter.ask("CANCEL_WAIT DELETE_KEY 01 0*7 'k'", "01 01 0*7");
  }
}

TEST_F(WireSemanticsTest, ABarrierReleasesAllAndItsKeyIsUsedUp) {
  WireClient first = modern(), second = modern(), third = modern(), waiter = modern();
  tell(waiter, "WAIT 01 0*7 01 0*7 'B'");
  tell(first, "BARRIER 01 0*7 'B' 03 0*7");
  waiter.hear("00");
  tell(second, "BARRIER 01 0*7 'B' 03 0*7");
  third.ask("BARRIER 01 0*7 'B' 03 0*7", "00");
  first.hear("00");
  second.hear("00");
  waiter.ask("BARRIER 01 0*7 'B' 03 0*7", "00");
  waiter.ask("GET 01 0*7 'B'", "01 0*7 '4'");
}

TEST_F(WireSemanticsTest, WhoLeavesABarrierHasComeAllTheSame) {
  WireClient cancels = modern(), last = modern(), released_by_set = modern();
  {
    WireClient vanishes = modern();
    tell(vanishes, "BARRIER 01 0*7 'B' 03 0*7");
  }
  tell(cancels, "BARRIER 01 0*7 'B' 03 0*7");
  cancels.ask("CANCEL_WAIT", "01");
  last.ask("BARRIER 01 0*7 'B' 03 0*7", "00");
  cancels.in_step();
  tell(released_by_set, "BARRIER 01 0*7 'C' 03 0*7");
  last.say("SET 01 0*7 'C' 01 0*7 '0'");
  released_by_set.hear("00");
}

TEST_F(WireSemanticsTest, AWaitForAFilledQueueAndAMissingKeyEndsWithTheKey) {
  WireClient waiter = modern(), other = modern();
  tell(other, "QUEUE_PUSH 01 0*7 'q' 01 0*7 '1'");
  tell(waiter, "WAIT 02 0*7 01 0*7 'q' 01 0*7 'k'");
  other.say("SET 01 0*7 'k' 0*8");
  waiter.hear("00");
  waiter.in_step();
}

TEST_F(WireSemanticsTest, APushReleasesOneWaiterAndEachWaiterOnce) {
  WireClient first = modern(), second = modern(), pusher = modern();
  tell(first, "WAIT 01 0*7 01 0*7 'q'");
  tell(second, "WAIT 01 0*7 01 0*7 'q'");
  tell(pusher, "QUEUE_PUSH 01 0*7 'q' 01 0*7 '1'");
  first.hear("00");
  still_waits(second);
  first.ask("QUEUE_POP 01 0*7 'q'", "01 0*7 01 0*7 '1'");
  // The second waiter has not lost its place, and the first is not told again.
  tell(pusher, "QUEUE_PUSH 01 0*7 'q' 01 0*7 '2' QUEUE_PUSH 01 0*7 'q' 01 0*7 '3'");
  second.hear("00");
  second.ask("QUEUE_POP 01 0*7 'q'", "02 0*7 01 0*7 '2'");
  first.in_step();
  second.in_step();
  first.ask("QUEUE_POP 01 0*7 'q' QUEUE_POP 01 0*7 'q'", "01 0*7 01 0*7 '3' 0*8");
}

TEST_F(WireSemanticsTest, AWakeThatItsReceiverCannotUseGoesToTheNext) {
  WireClient second = modern(), third = modern(), pusher = modern();
  {
    WireClient first = modern();
    tell(first, "WAIT 01 0*7 01 0*7 'q'");
    tell(second, "WAIT 01 0*7 01 0*7 'q'");
    tell(third, "WAIT 01 0*7 01 0*7 'q'");
    tell(pusher, "QUEUE_PUSH 01 0*7 'q' 0*8");
    first.hear("00");
  }
  second.hear("00");
  still_waits(third);
  second.ask("CANCEL_WAIT", "01");
  third.hear("00");
}

TEST_F(WireSemanticsTest, TwoPushesAreOneQueueAndNoKey) {
  WireClient client = modern();
  client.say("QUEUE_PUSH 01 0*7 'q' 01 0*7 '1' QUEUE_PUSH 01 0*7 'q' 01 0*7 '2'");
  client.ask("NUM_KEYS", "0*8");
  client.ask("LIST_KEYS", "0*8");
  client.ask("QUEUE_LEN 01 0*7 'q'", "02 0*7");
  client.ask("CHECK 01 0*7 01 0*7 'q' WAIT 01 0*7 01 0*7 'q'", "00 00");
  client.ask("DELETE_KEY 01 0*7 'q'", "0*8");
  client.ask("GET 01 0*7 'q'", "0*8");
  client.say("SET 01 0*7 'q' 01 0*7 'v'");
  client.ask("QUEUE_POP 01 0*7 'q'", "02 0*7 01 0*7 '1'");
  client.ask("GET 01 0*7 'q'", "01 0*7 'v'");
  client.ask("DELETE_KEY 01 0*7 'q'", "01 0*7");
  client.ask("QUEUE_POP 01 0*7 'q'", "01 0*7 01 0*7 '2'");
  client.ask("CHECK 01 0*7 01 0*7 'q'", "01");
}

TEST_F(WireSemanticsTest, CountersAreReadAsCReadsNumbers) {
  for (const auto& [text, sum] : {std::pair{"'  41'", "2a 0*7"},
                                  {"'+41'", "2a 0*7"},
                                  {"'41xyz'", "2a 0*7"},
                                  {"09 0b '-2'", "ff ff*7"},
                                  {"'007'", "08 0*7"}}) {
    WireClient client = modern();
    char size[24];
    std::snprintf(size, sizeof size, "%02zx 0*7 ", bytes(text).size());
    client.say(std::string("SET 01 0*7 'n' ") + size + text);
    client.ask("ADD 01 0*7 'n' 01 0*7", sum);
  }
}

TEST_F(WireSemanticsTest, WhatIsNoCounterEndsTheConnectionAndStays) {
  WireClient reader = modern();
  const std::string most = "'9223372036854775807'", least = "'-9223372036854775808'";
  for (const auto& [set, delta] : {std::pair<std::string, std::string>{"0*8", "0*8"},
                                   {"03 0*7 'abc'", "0*8"},
                                   {"01 0*7 '-'", "0*8"},
                                   {"13 0*7 " + most, "01 0*7"},
                                   {"14 0*7 " + least, "ff ff*7"},
                                   {"13 0*7 '9223372036854775808'", "0*8"}}) {
    WireClient client = modern();
    client.say("SET 01 0*7 'n' " + set);
    client.say("ADD 01 0*7 'n' " + delta);
    EXPECT_TRUE(client.closed_by_peer()) << set;
    reader.ask("GET 01 0*7 'n'", set);
  }
}

TEST_F(WireSemanticsTest, TheLimitsAreReachedExactly) {
  const auto length = [](std::size_t size) {
    return std::string{static_cast<char>(size), static_cast<char>(size >> 8)} + bytes("0*6");
  };
  WireClient client = modern();
  client.send(bytes("03") + length(8192) + std::string(8192, 'k'));
  client.hear("0*8");
  client.send(bytes("03") + length(8193));
  EXPECT_TRUE(client.closed_by_peer());
  WireClient setter = modern();
  setter.send(bytes("01 01 0*7 'v' 00 00 80 00 0*4") + std::string(8 << 20, 'v'));
  setter.ask("CHECK 01 0*7 01 0*7 'v'", "00");
  setter.send(bytes("01 01 0*7 'v' 01 00 80 00 0*4"));
  EXPECT_TRUE(setter.closed_by_peer());
  WireClient many = modern();
  many.send(bytes("0a 01 00 10 00 0*4"));
  EXPECT_TRUE(many.closed_by_peer());
}

TEST_F(WireSemanticsTest, AsManyKeysAsPyTorchTakesAreWaitedForAndGot) {
  constexpr std::size_t kKeys = 131072;
  WireClient waiter = modern(), setter = modern();
  std::string keys(8, '\0'), pairs, answer;
  for (int i = 0; i < 4; ++i) keys[static_cast<std::size_t>(i)] = static_cast<char>(kKeys >> 8 * i);
  pairs = keys;
  for (std::size_t i = 0; i < kKeys; ++i) {
    const std::string number = std::to_string(100000 + i);
    keys += bytes("06 0*7") + number;
    pairs += bytes("06 0*7") + number + bytes("06 0*7") + number;
    answer += bytes("06 0*7") + number;
  }
  waiter.send(bytes("06") + keys);
  setter.let_others_be_served();
  setter.send(bytes("0b") + pairs);
  waiter.hear("00");
  waiter.send(bytes("0a") + keys);
  EXPECT_TRUE(waiter.receive(answer.size()) == answer);
  waiter.in_step();
}

}  // namespace
}  // namespace dtrun::rendezvous
