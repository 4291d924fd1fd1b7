#include "dtrun/rendezvous/tcp_store_server.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <future>
#include <optional>
#include <random>

#include "rendezvous/full_table.h"
#include "rendezvous/served_store.h"

namespace dtrun::rendezvous {
namespace {

using std::chrono::milliseconds;

TEST(TcpStoreServerTest, TheGoldenBytesGoOverARealSocket) {
  const ServedStore server;
  RawClient client(server.port());
  client.handshake();
  client.exchange("01 | 02 0*7 2f 6b | 01 0*7 76", "");
  client.exchange("06 | 01 0*7 | 02 0*7 2f 6b", "00");
  client.exchange("03 | 02 0*7 2f 6b", "01 0*7 76");
  client.exchange("01 | 02 0*7 2f 6e | 01 0*7 '5' | 04 | 02 0*7 2f 6e | f9 ff*7", "fe ff*7");
  client.exchange("03 | 02 0*7 2f 6e", "02 0*7 '-2'");
  client.exchange("06 | 01 0*7 | 02 0*7 '/w' | 0c", "01");
  client.exchange("0f | 02 0*7 '/e'", "0*8");
  client.expect_in_step();
}

TEST(TcpStoreServerTest, ASlowSenderHoldsUpNobody) {
  const ServedStore server;
  RawClient slow(server.port()), quick(server.port());
  slow.send(bytes("00 ce f7"));
  quick.handshake();
  slow.send(bytes("85 3c 01 02 0*7 '/s' 05 0*7 'ab'"));
  quick.exchange("05 01 0*7 02 0*7 '/s'", "01");
  slow.send("cde");
  slow.expect_in_step();
  quick.exchange("03 02 0*7 '/s'", "05 0*7 'abcde'");
}

TEST(TcpStoreServerTest, ASlowReaderCostsItselfOnlyAndGetsAllInTheEnd) {
  const ServedStore server;
  const auto store = server.client();
  const std::string value(4 << 20, 'x');
  store->set("big", value);
  ASSERT_TRUE(store->check({"big"}));  // has no reply: a round trip after it has
  RawClient slow(server.port());
  slow.handshake();
  constexpr int kGets = 40;
  std::string gets;
  for (int i = 0; i < kGets; ++i) gets += bytes("03 04 0*7 '/big'");
  slow.send(gets);
  // 160 MB are asked for and nobody reads: the others must not notice.
  for (int i = 0; i < 50; ++i) EXPECT_EQ(store->add("n", 1), i + 1);
  for (int i = 0; i < kGets; ++i) {
    slow.receive(8);
    EXPECT_TRUE(slow.receive(value.size()) == value);
  }
  slow.expect_in_step();
}

TEST(TcpStoreServerTest, WhatAClientSentBeforeItEndedIsServed) {
  const ServedStore server;
  RawClient client(server.port());
  client.send(bytes("00 ce f7 85 3c 01 02 0*7 '/k' 01 0*7 'v'"));
  client.close();
  EXPECT_EQ(server.client()->get("k", RawClient::limit()), "v");
}

// Whatever of its answers is still here when its end is heard.
TEST(TcpStoreServerTest, AClientThatSendsNoMoreGetsItsAnswersWhole) {
  const ServedStore server;
  const std::string value(256 << 10, 'x');
  const auto store = server.client();
  store->set("k", value);
  ASSERT_TRUE(store->check({"k"}));
  for (int gets = 1; gets <= 32; ++gets) {
    RawClient client(server.port());
    client.handshake();
    std::string requests;
    for (int i = 0; i < gets; ++i) requests += bytes("03 02 0*7 '/k'");
    client.send(requests);
    ::shutdown(client.fd(), SHUT_WR);
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(store->check({"k"}));
    for (int i = 0; i < gets; ++i) {
      client.receive(8);
      EXPECT_TRUE(client.receive(value.size()) == value);
    }
    EXPECT_TRUE(client.closed_by_peer());
  }
}

TEST(TcpStoreServerTest, WhatHasArrivedIsHeardBeforeTheClock) {
  TcpStoreServerOptions options;
  options.handshake_timeout = milliseconds(1200);
  ServedStore server(options);
  std::vector<RawClient> clients;
  for (int i = 0; i < 400; ++i) clients.emplace_back(server.port());
  // Accepted after all of them.
  RawClient(server.port()).handshake();
  std::promise<void> stopped, goes_on;
  server.loop().post([&] {
    stopped.set_value();
    goes_on.get_future().wait();
  });
  stopped.get_future().wait();
  for (std::size_t i = 1; i < clients.size(); ++i)
    clients[i].send(bytes("00 ce f7 85 3c 0d 'pid1'"));
  // Longer than their time, and long enough to be taken for a stop.
  for (const auto end = base::Deadline::after(milliseconds(2500)); !end.expired();)
    ::poll(nullptr, 0, end.poll_timeout_ms());
  goes_on.set_value();
  for (std::size_t i = 1; i < clients.size(); ++i) EXPECT_EQ(clients[i].receive(4), "pid1") << i;
  // The time in which the server stood still was not his.
  clients[0].handshake();
}

TEST(TcpStoreServerTest, WhatIsNoRequestEndsThatConnectionOnly) {
  const ServedStore server;
  const auto store = server.client();
  for (const char* bad :
       {"00 ce f7 85 3c 13", "00 ce f7 85 3c 03 ff*8", "00 cf f7 85 3c 0d 'pid1'",
        "'GET / HTTP/1.1'", "09", "00 ce f7 85 3c 00 01 02 03 04", "80 'agent'"}) {
    RawClient client(server.port());
    client.send(bytes(bad));
    EXPECT_TRUE(client.closed_by_peer()) << bad;
  }
  EXPECT_EQ(store->add("n", 1), 1);
}

TEST(TcpStoreServerTest, RepliesBeforeABadRequestAreStillSent) {
  const ServedStore server;
  RawClient client(server.port());
  client.exchange("00 ce f7 85 3c 0d 'pid1' ff", "'pid1'");
  EXPECT_TRUE(client.closed_by_peer());
}

TEST(TcpStoreServerTest, AnAgentsConnectionIsHandedOverWithItsFirstBytes) {
  std::promise<std::string> handed_over;
  TcpStoreServerOptions options;
  options.on_agent = [&](base::UniqueFd fd, std::string first_bytes) {
    RawClient agent(std::move(fd));
    agent.send("welcome");
    handed_over.set_value(std::move(first_bytes));
  };
  const ServedStore server(std::move(options));
  RawClient agent(server.port());
  agent.exchange("80 'dtrun'", "'welcome'");
  EXPECT_EQ(handed_over.get_future().get(), bytes("80 'dtrun'"));
  EXPECT_TRUE(agent.closed_by_peer());
}

TEST(TcpStoreServerTest, AgentsAndWhoHasTheTokenComeByOnePort) {
  const Token token("0123456789abcdef", "the test");
  TcpStoreServerOptions options;
  options.token = token;
  options.on_agent = [&](base::UniqueFd fd, const std::string& first_bytes) {
    RawClient(std::move(fd)).send(first_bytes);
  };
  const ServedStore server(std::move(options));
  const auto store =
      connect_tcp_store({.host = "127.0.0.1", .port = server.port(), .token = token});
  EXPECT_EQ(store->add("n", 1), 1);
  // Of another version, or of another kind, an agent is told so by the agents' head.
  for (const char* opening : {"d7 07 00 06 'agents'", "d7 07 01 05 'other'", "d7 02", "80"}) {
    const std::string whole = bytes(opening);
    for (std::size_t cut = 0; cut < whole.size(); ++cut) {
      RawClient agent(server.port());
      agent.send(whole.substr(0, cut));
      if (cut > 0) {
        EXPECT_EQ(store->add("n", 0), 1);
      }
      agent.send(whole.substr(cut));
      EXPECT_EQ(agent.receive(whole.size()), whole) << opening << " cut at " << cut;
    }
  }
  RawClient stranger(server.port());
  stranger.send(bytes("00 ce f7 85 3c"));
  EXPECT_TRUE(stranger.closed_by_peer());
}

TEST(TcpStoreServerTest, ASilentConnectionIsClosedAfterTheHandshakesTime) {
  TcpStoreServerOptions options;
  options.handshake_timeout = milliseconds(20);
  const ServedStore server(options);
  RawClient silent(server.port()), halfway(server.port()), legacy(server.port());
  halfway.send(bytes("00 ce"));
  legacy.send(bytes("03"));
  EXPECT_TRUE(silent.closed_by_peer());
  EXPECT_TRUE(halfway.closed_by_peer());
  EXPECT_TRUE(legacy.closed_by_peer());
}

TEST(TcpStoreServerTest, TheOldestOfTooManySilentConnectionsIsClosed) {
  TcpStoreServerOptions options;
  options.max_newcomers = 2;
  const ServedStore server(options);
  RawClient greeted(server.port());
  greeted.handshake();
  RawClient first(server.port()), second(server.port()), third(server.port());
  EXPECT_TRUE(first.closed_by_peer());
  second.handshake();
  third.handshake();
  greeted.expect_in_step();
}

TEST(TcpStoreServerTest, ALegacyClientsSecondSilentConnectionIsSpared) {
  TcpStoreServerOptions options;
  options.handshake_timeout = milliseconds(200);
  const ServedStore server(options);
  RawClient speaking(server.port());
  speaking.exchange("03 05 0*7 'init/' 01 0*7", "01 0*7");
  RawClient silent(server.port()), one_too_many(server.port());
  EXPECT_TRUE(one_too_many.closed_by_peer());
  // It may speak after all, as a legacy client.
  silent.exchange("06", "01 0*7");
  RawClient second_silent(server.port());
  speaking.close();
  silent.close();
  EXPECT_TRUE(second_silent.closed_by_peer());
}

TEST(TcpStoreServerTest, TheLegacyDialectIsServedBesideTheModernOne) {
  const ServedStore server;
  RawClient legacy(server.port());
  legacy.exchange("03 05 0*7 'init/' 01 0*7", "01 0*7");
  legacy.exchange("00 02 0*7 '/k' 01 0*7 'v' | 02 02 0*7 '/k'", "01 0*7 'v'");
  legacy.exchange("01 02 0*7 '/k' 01 0*7 'v' 01 0*7 'w'", "01 0*7 'w'");
  legacy.exchange("04 01 0*7 02 0*7 '/k'", "00");
  legacy.exchange("05 01 0*7 02 0*7 '/k'", "00");
  legacy.exchange("06", "02 0*7");
  legacy.exchange("08 02 0*7 '/k'", "01 0*7");
  legacy.send(bytes("05 01 0*7 02 0*7 '/m'"));
  server.client()->set("m", "modern");
  EXPECT_EQ(hex(legacy.receive(1)), hex(bytes("00")));
}

TEST(TcpStoreServerTest, WithoutTheLegacyDialectWhoeverDoesNotBeginWithValidateIsClosedAtOnce) {
  TcpStoreServerOptions options;
  options.legacy_numbering = LegacyNumbering::kNone;
  const ServedStore server(options);
  for (const auto& [first, second] : {std::pair{"03 05 0*7 'init/' 01 0*7", ""},
                                      {"03", ""},
                                      {"06", ""},
                                      {"0d 'pid1'", ""},
                                      {"01 01 0*7 'k' 01 0*7 'v'", ""},
                                      {"00 ce", "f8"},
                                      {"00", "01"},
                                      {"00 ce f7 85", "3d"}}) {
    RawClient client(server.port());
    client.send(bytes(first));
    client.send(bytes(second));
    EXPECT_TRUE(client.closed_by_peer()) << first;
  }
  RawClient modern(server.port());
  modern.send(bytes("00 ce f7"));
  modern.send(bytes("85 3c"));
  modern.exchange("07", "0*8");
}

TEST(TcpStoreServerTest, OneSetReleasesAllWhoWait) {
  const ServedStore server;
  std::vector<RawClient> waiters;
  for (int i = 0; i < 128; ++i) {
    waiters.emplace_back(server.port());
    waiters.back().handshake();
    waiters.back().send(bytes("06 01 0*7 02 0*7 '/k'"));
  }
  for (std::size_t i = 0; i < waiters.size(); i += 2) waiters[i].reset();
  server.client()->set("k", "");
  for (std::size_t i = 1; i < waiters.size(); i += 2)
    EXPECT_EQ(hex(waiters[i].receive(1)), hex(bytes("00")));
}

TEST(TcpStoreServerTest, WithoutDescriptorsNewClientsAreTurnedAwayAndOldOnesServed) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "UBSan opens a pipe to check a pointer, and finds none valid where it cannot";
#endif
  const ServedStore server;
  const auto store = server.client();
  store->set("k", "v");
  {
    FullTable table(1);
    RawClient turned_away(server.port());
    EXPECT_TRUE(turned_away.closed_by_peer());
    EXPECT_EQ(store->get("k", RawClient::limit()), "v");
  }
  RawClient(server.port()).handshake();
}

TEST(TcpStoreServerTest, TheEndOfTheServerEndsItsConnections) {
  ServedStore server;
  RawClient waiting(server.port());
  waiting.handshake();
  waiting.send(bytes("06 01 0*7 02 0*7 '/k'"));
  waiting.expect_in_step();
  server.stop();
  EXPECT_TRUE(waiting.closed_by_peer());
}

// Clients that wait, cancel, set, pop and vanish in all orders; those that stay must stay in step.
TEST(TcpStoreServerTest, RandomWaitsCancelsAndDisconnectsLeaveAllOthersInStep) {
  const ServedStore server;
  for (unsigned seed = 1; seed <= 10; ++seed) {
    std::mt19937 random(seed);
    std::vector<std::optional<RawClient>> clients(16);
    std::vector<bool> waits(clients.size(), false);
    const auto key = [&] { return std::string(1, static_cast<char>('a' + random() % 4)); };
    for (int step = 0; step < 300; ++step) {
      const std::size_t who = random() % clients.size();
      std::optional<RawClient>& client = clients[who];
      if (!client) {
        client.emplace(server.port());
        client->handshake();
        waits[who] = false;
      }
      if (waits[who]) {
        // Either answer order is right: 01, or 00 01.
        client->send(bytes("0c"));
        const std::string first = client->receive(1);
        if (first == bytes("00")) {
          EXPECT_EQ(hex(client->receive(1)), hex(bytes("01")));
        } else {
          EXPECT_EQ(hex(first), hex(bytes("01")));
        }
        waits[who] = false;
      }
      switch (random() % 8) {
        case 0:
          client->reset();
          client.reset();
          continue;
        case 1:
        case 2:
          client->send(bytes("06 02 0*7 01 0*7 '" + key() + "' 01 0*7 '" + key() + "'"));
          waits[who] = true;
          continue;
        case 3:
          client->send(bytes("12 01 0*7 'B' 40 0*7"));
          waits[who] = true;
          continue;
        case 4:
          client->send(bytes("01 01 0*7 '" + key() + "' 0*8"));
          break;
        case 5:
          client->send(bytes("08 01 0*7 '" + key() + "'"));
          client->receive(8);
          break;
        case 6:
          client->send(bytes("0e 01 0*7 '" + key() + "' 0*8"));
          break;
        default:
          client->send(bytes("0f 01 0*7 '" + key() + "'"));
          if (client->receive(8) != bytes("0*8")) client->receive(8);
      }
      client->expect_in_step();
    }
  }
}

}  // namespace
}  // namespace dtrun::rendezvous
