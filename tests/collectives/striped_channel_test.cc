// Several TCP connections as one channel: what is cut into stripes comes whole and in order, and a
// connection that ends takes the channel, and the group, with it.
#include "cpu/striped_channel.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

#include "collectives/tcp_worlds.h"
#include "cpu/connection_count.h"
#include "cpu/group_channels.h"
#include "cpu/message.h"
#include "cpu/world.h"
#include "dtrun/base/socket.h"
#include "dtrun/rendezvous/hash_store.h"
#include "dtrun/tensor/ops.h"
#include "support/rank_threads.h"
#include "support/thrown_error.h"

namespace dtrun::collectives::cpu {
namespace {

using base::Deadline;
using base::UniqueFd;
using std::chrono::milliseconds;
using std::chrono::seconds;

/// Moves a payload through Stripes: connection c takes at most steps[c] bytes of each offer.
std::map<std::size_t, std::vector<std::size_t>> places_by_connection(
    Stripes& stripes, std::size_t bytes, const std::vector<std::size_t>& steps) {
  std::vector<char> payload(bytes);
  std::map<std::size_t, std::vector<std::size_t>> begins;
  std::size_t passed = 0;
  stripes.begin(bytes);
  while (stripes.active()) {
    const std::span<char> rest = std::span(payload).subspan(passed);
    passed += stripes.pass(rest, [&](std::size_t connection, std::span<char> stripe) {
      const auto place = static_cast<std::size_t>(stripe.data() - payload.data());
      if (place % kStripeBytes == 0) begins[connection].push_back(place / kStripeBytes);
      const std::size_t count = std::min(stripe.size(), steps[connection]);
      for (char& byte : stripe.first(count)) EXPECT_EQ(byte++, 0);
      return count;
    });
    for (std::size_t i = 0; i < passed; i += 4093) EXPECT_EQ(payload[i], 1);
  }
  EXPECT_EQ(passed, bytes);
  EXPECT_TRUE(std::ranges::all_of(payload, [](char byte) { return byte == 1; }));
  return begins;
}

TEST(StripesTest, GoOnTheConnectionsInTurnAndEachMovesAsItCan) {
  using Places = std::map<std::size_t, std::vector<std::size_t>>;
  Stripes stripes(3);
  const std::vector<std::size_t> steps = {kStripeBytes, 10'000, 77'777};
  EXPECT_EQ(places_by_connection(stripes, 7 * kStripeBytes, steps),
            (Places{{0, {0, 3, 6}}, {1, {1, 4}}, {2, {2, 5}}}));
  // The next payload goes on from there: small ones do not all take the same connections.
  EXPECT_EQ(places_by_connection(stripes, 2 * kStripeBytes, steps), (Places{{1, {0}}, {2, {1}}}));
  EXPECT_EQ(places_by_connection(stripes, 2 * kStripeBytes + 1, steps),
            (Places{{0, {0}}, {1, {1}}, {2, {2}}}));
  stripes.begin(kLeastStripedBytes - 1);
  EXPECT_FALSE(stripes.active());
}

TEST(ConnectionCountTest, LongRoundTripsTakeMoreConnections) {
  EXPECT_EQ(ConnectionCount::of_round_trip(milliseconds(9)).connections, 1);
  EXPECT_EQ(ConnectionCount::of_round_trip(milliseconds(40)).to_string(),
            "4 connections: the least round trip takes 40 ms");
  EXPECT_EQ(ConnectionCount::chosen(2).to_string(),
            "2 connections: DTRUN_CONNECTIONS_PER_PEER or the group's options say so");
}

class StripedChannelTest : public testing::Test {
 protected:
  std::unique_ptr<TcpSendChannel> connect(std::size_t connection) {
    const UniqueFd listener = base::listen_tcp("127.0.0.1", 0);
    UniqueFd near = base::connect_tcp("127.0.0.1", base::local_port(listener.get()),
                                      Deadline::after(seconds(10)));
    far_[connection] = UniqueFd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    base::set_nonblocking(near.get());
    return std::make_unique<TcpSendChannel>(std::move(near), DataHello{}, *sockets_);
  }
  /// Takes the hello off the connections that have come, as the watcher does, the last one first.
  void attach_new(StripedReceiveChannel& in) {
    while (!far_.empty()) {
      const auto last = std::prev(far_.end());
      DataHello hello;
      base::receive_all(last->second.get(), &hello, sizeof(hello), Deadline::after(seconds(10)));
      base::set_nonblocking(last->second.get());
      in.attach(last->first,
                std::make_unique<TcpReceiveChannel>(std::move(last->second), *sockets_));
      far_.erase(last);
    }
  }

  std::map<std::size_t, UniqueFd> far_;  ///< not attached yet
  const test::TcpWorlds worlds_ = test::tcp_worlds();
  const std::unique_ptr<ReadySockets> sockets_ = std::make_unique<ReadySockets>(*worlds_[0]);
};

TEST_F(StripedChannelTest, MessagesOfAllSizesComeWholeAndInOrder) {
  constexpr std::size_t kConnections = 4;
  StripedSendChannel out(kConnections, [this](std::size_t number) { return connect(number); });
  StripedReceiveChannel in(kConnections);
  std::mt19937 random(7);
  std::size_t most_attached = 0;
  for (const std::size_t bytes : {0UL, 5UL, kLeastStripedBytes - 1, kLeastStripedBytes, 3UL,
                                  kLeastStripedBytes + 1, (1UL << 20) + 3, 9UL << 20, 100UL}) {
    std::vector<std::byte> payload(bytes), target(bytes);
    for (std::byte& byte : payload) byte = static_cast<std::byte>(random());
    OutgoingMessage sent(0, Fingerprint{}, 9, payload);
    IncomingMessage received;
    while (!sent.complete() || !received.complete()) {
      sent.step(out);
      most_attached = std::max(most_attached, far_.size());
      attach_new(in);
      sockets_->look();
      if (!received.has_header()) received.step_header(in);
      if (received.has_header()) received.step_payload(in, target);
      ASSERT_FALSE(in.broken() || out.broken());
    }
    EXPECT_EQ(received.header().bytes, bytes);
    EXPECT_EQ(target, payload) << bytes;
  }
  EXPECT_GE(most_attached, 2U);  // nothing was striped before they were there
}

TEST_F(StripedChannelTest, TheEndOfOneConnectionIsTheEndOfTheChannel) {
  StripedSendChannel out(2, [this](std::size_t number) { return connect(number); });
  StripedReceiveChannel in(2);
  const std::vector<std::byte> payload(64 << 20);  // more than the kernel holds
  std::vector<std::byte> target(payload.size());
  OutgoingMessage sent(0, Fingerprint{}, 0, payload);
  IncomingMessage received;
  sent.step(out);
  ASSERT_EQ(far_.size(), 2U);
  // The first goes on as before.
  far_.erase(1);
  attach_new(in);
  while (!out.broken()) {
    sockets_->look();
    sent.step(out);
    if (!received.has_header()) received.step_header(in);
    if (received.has_header()) received.step_payload(in, target);
  }
  EXPECT_FALSE(sent.complete());
  EXPECT_FALSE(received.complete());
  EXPECT_FALSE(in.broken());  // the second has not come: it may still do so
}

TEST(StripedGroupTest, ANumberOfConnectionsThatNoGroupHasIsRefused) {
  for (const int connections : {-1, 17, 256}) {
    const auto error = testing_support::error_of([&] {
      ProcessGroup::create(test::group_options(rendezvous::make_hash_store(), 0, 1,
                                               {.connections_per_peer = connections}));
    });
    ASSERT_TRUE(error) << connections;
    EXPECT_EQ(error->code(), base::ErrorCode::kInvalidArgument);
    EXPECT_TRUE(testing_support::contains(
        error->what(), "connections_per_peer of group 'world' is " + std::to_string(connections)))
        << error->what();
    EXPECT_TRUE(testing_support::contains(error->what(), "from 1 to 16, or 0")) << error->what();
  }
}

TEST_F(StripedChannelTest, AConnectionThatSaysAnotherNumberIsDropped) {
  const GroupMemory memory = worlds_[0]->root_memory();
  const GroupSpec spec{7, "pair", 0, {0, 1}, {memory, memory}};
  GroupChannels channels(*worlds_[0], spec);
  const auto come = [&](std::uint8_t connection, std::uint8_t connections) {
    const UniqueFd listener = base::listen_tcp("127.0.0.1", 0);
    UniqueFd far = base::connect_tcp("127.0.0.1", base::local_port(listener.get()),
                                     Deadline::after(seconds(10)));
    UniqueFd near(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    DataHello hello;
    hello.connection = connection;
    hello.connections = connections;
    channels.attach(1, hello, std::move(near));
    return far;
  };
  const auto end_of = [](const UniqueFd& far) {
    char byte = 0;
    const auto error = testing_support::error_of(
        [&] { base::receive_all(far.get(), &byte, 1, Deadline::after(milliseconds(300))); });
    return error ? error->code() : base::ErrorCode::kSystem;
  };
  const UniqueFd first = come(0, 4), lone = come(0, 1), fewer = come(1, 2), second = come(1, 4);
  EXPECT_EQ(end_of(lone), base::ErrorCode::kConnection);
  EXPECT_EQ(end_of(fewer), base::ErrorCode::kConnection);
  EXPECT_EQ(end_of(first), base::ErrorCode::kTimeout);
  EXPECT_EQ(end_of(second), base::ErrorCode::kTimeout);
}

/// Descriptors of this process that are connected TCP sockets.
std::vector<int> connected_sockets() {
  std::vector<int> found;
  for (int fd = 0; fd < 1024; ++fd) {
    sockaddr_storage peer{};
    socklen_t size = sizeof(peer);
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0 &&
        (peer.ss_family == AF_INET || peer.ss_family == AF_INET6))
      found.push_back(fd);
  }
  return found;
}

// Nobody waits for the peer at the other end, and that peer need not know of the connection yet:
// only the rank that has written on it can tell.
TEST(TcpGroupTest, AConnectionThatIsCutIsNoticedAlsoWhereAllIsWritten) {
  std::vector<int> before;
  const test::RankOptions options{.transport = Transport::tcp, .timeout = seconds(20)};
  const auto thrown = test::run_failing_ranks(3, options, [&](const ProcessGroup& group) {
    const tensors::LocalTensor one = tensors::ones({1});
    // After the second one all have taken part in the first: its connections are there, both ends.
    for (int i = 0; i < 2; ++i) group.barrier();
    if (group.rank() == 0) before = connected_sockets();
    group.barrier();
    if (group.rank() == 0) group.send(one, 1);
    if (group.rank() == 1) group.recv(one, 0);
    group.barrier();
    if (group.rank() == 0) {
      std::vector<int> added;
      std::ranges::set_difference(connected_sockets(), before, std::back_inserter(added));
      ASSERT_EQ(added.size(), 2U);  // both ends
      ::shutdown(added.back(), SHUT_RDWR);
    }
    group.recv(one, group.rank() == 2 ? 1 : 2);
  });
  for (const auto& of_rank : thrown) {
    ASSERT_TRUE(of_rank.has_value());
    EXPECT_EQ(of_rank->code, base::ErrorCode::kPeerFailed) << of_rank->text;
    EXPECT_TRUE(testing_support::contains(of_rank->text, "connection between rank 0 and rank 1 "))
        << of_rank->text;
  }
}

// As where a firewall forgets one of them. What the ranks say names the peer, and they do not hang.
TEST(StripedGroupTest, AConnectionThatIsCutEndsTheGroupWithItsReason) {
  std::mutex mutex;
  std::vector<int> before;
  const auto thrown = test::run_failing_ranks(
      2, {.transport = Transport::tcp, .connections_per_peer = 4}, [&](const ProcessGroup& group) {
        const tensors::LocalTensor small = tensors::ones({1});
        const tensors::LocalTensor large = tensors::ones({4 << 20});
        group.broadcast(small, 0);
        group.barrier();
        if (group.rank() == 0) before = connected_sockets();
        group.barrier();
        group.broadcast(large, 0);
        group.barrier();
        if (group.rank() == 0) {
          const std::vector<int> now = connected_sockets();
          std::vector<int> added;
          std::ranges::set_difference(now, before, std::back_inserter(added));
          ASSERT_GE(added.size(), 6U);  // the bulk lane's, both ends
          // The newest: not the first connection of its channel.
          ::shutdown(added.back(), SHUT_RDWR);
        }
        group.barrier();
        for (int i = 0; i < 4; ++i) group.broadcast(large, 0);
      });
  for (const auto& of_rank : thrown) {
    ASSERT_TRUE(of_rank.has_value());
    EXPECT_EQ(of_rank->code, base::ErrorCode::kPeerFailed) << of_rank->text;
    EXPECT_TRUE(testing_support::contains(of_rank->text, "broke")) << of_rank->text;
  }
}

}  // namespace
}  // namespace dtrun::collectives::cpu
