// What is no client, and what is a bad one, over real sockets: it is closed, it costs nothing that
// lasts, and nobody else notices.
#include <gtest/gtest.h>
#include <malloc.h>
#include <netinet/in.h>

#include <cerrno>
#include <vector>

#include "rendezvous/wire_words.h"

namespace dtrun::rendezvous {
namespace {

// Of this process, in which the server runs; 0 where a sanitizer has its own allocator.
std::size_t bytes_in_use() {
  const struct mallinfo2 info = ::mallinfo2();
  return info.uordblks + info.hblkhd;
}

TEST(WireFaultsTest, WhatIsNoStoreClientIsClosedAtOnce) {
  const ServedStore server;
  for (const char* stranger : {
           "'GET / HTTP/1.1' 0d 0a 'Host: x' 0d 0a 0d 0a",
           "16 03 01 02 00 01 00 01 fc 03 03",  // TLS
           "'SSH-2.0-OpenSSH_9.2p1' 0d 0a",
           "00 cf f7 85 3c",  // a bit of the magic is wrong, and nothing follows
           "00 ce f7 85 3d",
           "00 ce f7 85 3c 00 ce f7 85 3d",
           "0d 'pid1'",  // PING before VALIDATE
           "11",         // LIST_KEYS before VALIDATE
           "03 ff*8",
           "00 00 00 00 00 01",
       }) {
    RawClient client(server.port());
    client.send(bytes(stranger));
    EXPECT_TRUE(client.closed_by_peer()) << stranger;
  }
  WireClient(server.port(), kModernWire).in_step();
}

TEST(WireFaultsTest, HalfRequestsOfTwoThousandConnectionsLeaveNothing) {
  const ServedStore server;
  WireClient other(server.port(), kModernWire);
  const auto round = [&] {
    std::vector<WireClient> clients;
    for (int i = 0; i < 100; ++i) {
      clients.emplace_back(server.port(), i % 2 ? kModernWire : kWire19To20);
      clients.back().say(i % 4 < 2 ? "CHECK 00 00 01 0*5 10 0*7 'abc'"
                                   : "SET 02 0*7 '/k' 00 00 80 0*5 'half a value'");
    }
    other.let_others_be_served();
  };
  round();
  other.let_others_be_served();
  const std::size_t before = bytes_in_use();
  for (int i = 0; i < 19; ++i) round();
  other.let_others_be_served();
  EXPECT_LT(bytes_in_use(), before + (256 << 10));
  other.ask("NUM_KEYS", "0*8");
}

TEST(WireFaultsTest, AClientThatNeverReadsCostsABoundedBuffer) {
  const ServedStore server;
  WireClient deaf(server.port(), kModernWire), other(server.port(), kModernWire);
  other.send(bytes("01 01 0*7 'v' 00 00 10 0*5") + std::string(1 << 20, 'v'));
  other.in_step();
  const std::size_t before = bytes_in_use();
  // It asks for 4 GiB.
  std::string gets;
  for (int i = 0; i < 4096; ++i) gets += bytes("03 01 0*7 'v'");
  deaf.send(gets);
  for (int i = 0; i < 100; ++i) other.in_step();
  EXPECT_LT(bytes_in_use(), before + (8 << 20));
}

TEST(WireFaultsTest, OnlyTheAddressAskedForIsListenedOn) {
  const ServedStore server;
  WireClient(server.port(), kModernWire).in_step();
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(server.port());
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
  const base::UniqueFd elsewhere(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(elsewhere.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address),
            -1);
  EXPECT_EQ(errno, ECONNREFUSED);
}

}  // namespace
}  // namespace dtrun::rendezvous
