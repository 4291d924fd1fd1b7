// TcpStoreServer::start_over(): an empty store on the same port.
#include <gtest/gtest.h>

#include <future>
#include <optional>
#include <vector>

#include "rendezvous/served_store.h"

namespace dtrun::rendezvous {
namespace {

TEST(StoreStartOverTest, AllClientsAreClosedAndAllKeysForgotten) {
  ServedStore server;
  std::vector<RawClient> clients;
  for (const char* first_words : {"00 ce f7 85 3c | 01 01 0*7 'k' 01 0*7 'v' | 0d 'pid1'",
                                  "00 ce f7 85 3c | 0e 01 0*7 'q' 01 0*7 'v' | 0d 'pid1'",
                                  "00 ce f7 85 3c | 06 01 0*7 01 0*7 'w' | 0d 'pid1'",
                                  "00 ce f7 85 3c | 0d 'pid1' 01 01 0*7 'h'"}) {
    clients.emplace_back(server.port());
    clients.back().exchange(first_words, "'pid1'");
  }
  RawClient legacy(server.port());
  legacy.exchange("03 05 0*7 'init/' 01 0*7", "01 0*7");
  const std::uint16_t port = server.port();
  server.start_over();
  for (RawClient& client : clients) EXPECT_TRUE(client.closed_by_peer());
  EXPECT_TRUE(legacy.closed_by_peer());
  RawClient fresh(port);
  fresh.handshake();
  fresh.exchange("07 | 10 01 0*7 'q' | 11", "0*8 | 0*8 | 0*8");
  fresh.exchange("01 01 0*7 'w' 01 0*7 'v' | 03 01 0*7 'w'", "01 0*7 'v'");
}

TEST(StoreStartOverTest, WhatTheOldClientsHadOnTheirWayDoesNotReachTheNewStore) {
  ServedStore server;
  for (int round = 0; round < 50; ++round) {
    // Not read yet when the store starts over, or even not accepted: the server's thread is here.
    std::promise<void> go, done;
    std::optional<RawClient> dead, alive;
    server.loop().post([&, started = go.get_future().share()] {
      started.wait();
      done.set_value();
    });
    dead.emplace(server.port());
    dead->send(bytes("00 ce f7 85 3c 01 03 0*7 'old' 01 0*7 'v'"));
    dead->close();
    alive.emplace(server.port());
    alive->send(bytes("00 ce f7 85 3c 01 03 0*7 'old' 01 0*7 'v'"));
    go.set_value();
    done.get_future().wait();
    server.start_over();
    EXPECT_TRUE(alive->closed_by_peer());
    RawClient fresh(server.port());
    fresh.handshake();
    fresh.exchange("07", "0*8");
  }
}

TEST(StoreStartOverTest, SilentConnectionsAndAgentsMayStay) {
  std::promise<std::string> agent_came;
  TcpStoreServerOptions options;
  options.on_agent = [&](base::UniqueFd, std::string first_bytes) {
    agent_came.set_value(std::move(first_bytes));
  };
  ServedStore server(std::move(options));
  RawClient silent(server.port()), agent(server.port());
  std::promise<void> go, here;
  server.loop().post([&, started = go.get_future().share()] {
    here.set_value();
    started.wait();
  });
  here.get_future().wait();
  agent.send(bytes("80 'hello'"));
  std::thread starts_over([&] { server.start_over(); });
  go.set_value();
  starts_over.join();
  EXPECT_EQ(agent_came.get_future().get(), bytes("80 'hello'"));
  silent.handshake();
}

TEST(StoreStartOverTest, ItMayHappenOnceForEachRestartOfAJob) {
  ServedStore server;
  for (int attempt = 0; attempt < 20; ++attempt) {
    const auto store = server.client();
    EXPECT_EQ(store->add("started", 1), 1);
    store->set("attempt", std::to_string(attempt));
    server.start_over();
  }
}

}  // namespace
}  // namespace dtrun::rendezvous
