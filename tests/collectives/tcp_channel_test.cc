// The ends of TCP connections, and what is known of whether they can move: real sockets over the
// loopback.
#include "cpu/tcp_channel.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "collectives/tcp_worlds.h"
#include "cpu/world.h"
#include "dtrun/base/socket.h"

namespace dtrun::collectives::cpu {
namespace {

using base::Deadline;
using base::UniqueFd;
using std::chrono::seconds;

class TcpChannelTest : public testing::Test {
 protected:
  World& world() { return *worlds_[0]; }
  ReadySockets& sockets() { return *sockets_; }
  struct Pair {
    UniqueFd near;  ///< the side that the channel gets
    UniqueFd far;
  };
  static Pair connect() {
    const UniqueFd listener = base::listen_tcp("127.0.0.1", 0);
    Pair pair;
    pair.near = base::connect_tcp("127.0.0.1", base::local_port(listener.get()),
                                  Deadline::after(seconds(10)));
    pair.far = UniqueFd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    base::set_nonblocking(pair.near.get());
    return pair;
  }
  static void send(const UniqueFd& socket, const std::string& text) {
    ASSERT_EQ(::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }
  static void await_bytes(int socket) {
    pollfd wanted{socket, POLLIN, 0};
    ASSERT_EQ(::poll(&wanted, 1, 20'000), 1);
  }
  static std::string read(TcpReceiveChannel& channel, std::size_t bytes) {
    std::string text(bytes, ' ');
    text.resize(channel.read(std::as_writable_bytes(std::span(text))));
    return text;
  }
  /// Sleeps until a socket has something to tell, as a waiting rank does. @return whether it did
  bool await_socket() {
    const std::uint32_t ticket = world().doorbell().take_ticket();
    const Sleeper sleeper(world().doorbell());
    sockets().ring_when_ready();
    world().await_ring(ticket, Deadline::after(seconds(20)));
    sockets().look();
    return world().doorbell().ticket() != ticket;
  }

 private:
  const test::TcpWorlds worlds_ = test::tcp_worlds();
  const std::unique_ptr<ReadySockets> sockets_ = std::make_unique<ReadySockets>(*worlds_[0]);
};

TEST_F(TcpChannelTest, AnExhaustedConnectionIsTriedAgainWhenItIsToldToBeReady) {
  Pair pair = connect();
  TcpReceiveChannel channel(std::move(pair.near), sockets());
  EXPECT_EQ(read(channel, 4), "");
  send(pair.far, "word");
  EXPECT_EQ(read(channel, 4), "");  // nobody has looked: no system call
  ASSERT_TRUE(await_socket());
  EXPECT_EQ(read(channel, 4), "word");
  EXPECT_FALSE(channel.broken());
}

TEST_F(TcpChannelTest, WhoPollsTriesOneThatIsNotToldToBeReady) {
  Pair pair = connect(), other = connect();
  const int near = pair.near.get();
  TcpReceiveChannel silent(std::move(other.near), sockets());
  TcpReceiveChannel channel(std::move(pair.near), sockets());
  EXPECT_EQ(read(silent, 4), "");
  EXPECT_EQ(read(channel, 4), "");
  send(pair.far, "wordmore");
  await_bytes(near);
  EXPECT_EQ(read(channel, 4), "");  // no look, no try
  sockets().look_or_try();
  EXPECT_EQ(read(silent, 4), "");  // the first that asks takes the try
  EXPECT_EQ(read(channel, 4), "");
  sockets().look_or_try();
  EXPECT_EQ(read(silent, 4), "");  // the next look is for those behind it
  EXPECT_EQ(read(channel, 4), "word");
  EXPECT_EQ(read(channel, 4), "more");
}

TEST_F(TcpChannelTest, WhoPollsIsToldOfAConnectionThatNobodyTries) {
  Pair pair = connect(), ending = connect();
  TcpReceiveChannel channel(std::move(pair.near), sockets());
  const TcpSendChannel sending(std::move(ending.near), DataHello{}, sockets());
  EXPECT_EQ(read(channel, 4), "");
  ending.far.reset();
  // Somebody reads at each look, so each is a try, but for one of some.
  for (int look = 0; look < 1000 && !sockets().any_ended(); ++look) {
    sockets().look_or_try();
    EXPECT_EQ(read(channel, 4), "");
  }
  EXPECT_TRUE(sockets().any_ended());
  EXPECT_TRUE(sending.broken());
}

TEST_F(TcpChannelTest, WhatWasTriedEndsNoSleep) {
  Pair pair = connect();
  const int near = pair.near.get();
  TcpReceiveChannel channel(std::move(pair.near), sockets());
  EXPECT_EQ(read(channel, 4), "");
  send(pair.far, "word");
  await_bytes(near);
  sockets().look_or_try();
  ASSERT_EQ(read(channel, 4), "word");
  sockets().look();  // as before each sleep
  const std::uint32_t ticket = world().doorbell().take_ticket();
  {
    const Sleeper sleeper(world().doorbell());
    sockets().ring_when_ready();
    world().await_ring(ticket, Deadline::after(std::chrono::milliseconds(50)));
  }
  EXPECT_EQ(world().doorbell().ticket(), ticket);
  send(pair.far, "next");
  ASSERT_TRUE(await_socket());
  EXPECT_EQ(read(channel, 4), "next");
}

TEST_F(TcpChannelTest, OnlyConnectionsThatMovedAreReady) {
  constexpr std::size_t kAll = 150;  // more than one look reports
  std::vector<Pair> pairs;
  std::vector<Readiness*> known;
  for (std::size_t i = 0; i < kAll; ++i) {
    pairs.push_back(connect());
    known.push_back(&sockets().add(pairs.back().near.get(), ReadySockets::Direction::in));
    EXPECT_TRUE(known.back()->is_ready());  // until it is tried
    known.back()->exhaust();
  }
  const auto ready = [&] {
    std::vector<std::size_t> numbers;
    for (std::size_t i = 0; i < kAll; ++i)
      if (known[i]->is_ready()) numbers.push_back(i);
    return numbers;
  };
  sockets().look();
  EXPECT_EQ(ready(), std::vector<std::size_t>{});
  send(pairs[7].far, "a");
  ASSERT_TRUE(await_socket());
  EXPECT_EQ(ready(), std::vector<std::size_t>{7});
  known[7]->exhaust();  // told once, although nobody has read
  sockets().look();
  EXPECT_EQ(ready(), std::vector<std::size_t>{});
  for (const Pair& pair : pairs) send(pair.far, "b");
  // Those that did not fit into the first look ring before the next sleep.
  for (int look = 0; look < 20 && ready().size() < kAll; ++look) ASSERT_TRUE(await_socket());
  EXPECT_EQ(ready().size(), kAll);
}

TEST_F(TcpChannelTest, WhatIsShortComesWithTheHeaderBeforeIt) {
  Pair pair = connect();
  TcpReceiveChannel channel(std::move(pair.near), sockets());
  EXPECT_EQ(read(channel, 4), "");
  send(pair.far, "headpayload, then more");
  ASSERT_TRUE(await_socket());
  EXPECT_EQ(read(channel, 4), "head");
  // One call has taken all that was there. What comes now waits for the next look.
  send(pair.far, "!");
  EXPECT_EQ(read(channel, 7), "payload");
  EXPECT_EQ(read(channel, 100), ", then more");
  ASSERT_TRUE(await_socket());
  EXPECT_EQ(read(channel, 1), "!");
}

TEST_F(TcpChannelTest, WhatIsAwaitedWholeIsReadAheadUntilItIsThere) {
  Pair pair = connect();
  TcpReceiveChannel channel(std::move(pair.near), sockets());
  EXPECT_FALSE(channel.has(1));
  const std::string whole(8 << 10, 'x');
  send(pair.far, "head" + whole.substr(1));
  ASSERT_TRUE(await_socket());
  // All but the last byte may come in several turns.
  while (!channel.has(4 + whole.size() - 1)) ASSERT_TRUE(await_socket());
  EXPECT_FALSE(channel.has(4 + whole.size()));
  EXPECT_EQ(channel.front(4 + whole.size()), nullptr);
  EXPECT_EQ(std::memcmp(channel.front(4), "head", 4), 0);
  EXPECT_EQ(read(channel, 2), "he");
  send(pair.far, "xnext");
  while (!channel.has(2 + whole.size() + 4)) ASSERT_TRUE(await_socket());
  std::string taken(whole.size(), ' ');
  channel.read_behind(2, std::as_writable_bytes(std::span(taken)));
  EXPECT_EQ(taken, whole);
  EXPECT_EQ(read(channel, 4), "next");
  EXPECT_FALSE(channel.has(channel.most_at_once() + 1));
  EXPECT_FALSE(channel.broken());
  pair.far.reset();
  ASSERT_TRUE(await_socket());
  EXPECT_FALSE(channel.has(1));
  EXPECT_TRUE(channel.broken());
}

TEST_F(TcpChannelTest, BytesComeInOrderHoweverTheyAreCut) {
  Pair pair = connect();
  TcpReceiveChannel in(std::move(pair.near), sockets());
  base::set_nonblocking(pair.far.get());
  TcpSendChannel out(std::move(pair.far), DataHello{}, sockets());
  std::vector<std::uint32_t> sent(1 << 20), received(sent.size());
  std::iota(sent.begin(), sent.end(), 0U);
  std::array<std::byte, sizeof(DataHello)> hello{};
  std::span<std::byte> into = hello;
  std::span<const std::byte> from = std::as_bytes(std::span(sent));
  std::size_t piece = 1;
  while (!from.empty() || into.data() != std::as_writable_bytes(std::span(received)).data() +
                                             received.size() * sizeof(received[0])) {
    const std::size_t half = std::min(from.size() / 2, piece);
    from = from.subspan(out.write(from.first(half), from.subspan(half)));
    const std::size_t bytes = in.read(into.first(std::min(into.size(), piece)));
    into = into.subspan(bytes);
    if (into.empty() && into.data() == hello.data() + hello.size())
      into = std::as_writable_bytes(std::span(received));
    piece = piece % 9001 + 87;
    ASSERT_FALSE(in.broken() || out.broken());
    if (bytes == 0) {
      ASSERT_TRUE(await_socket());
    }
  }
  EXPECT_EQ(received, sent);
}

TEST_F(TcpChannelTest, TheEndIsNoticedBehindTheLastBytes) {
  Pair pair = connect();
  TcpReceiveChannel channel(std::move(pair.near), sockets());
  EXPECT_EQ(read(channel, 1), "");
  send(pair.far, "last");
  pair.far.reset();
  // The end may be told with the bytes or after them.
  while (!channel.broken()) {
    ASSERT_TRUE(await_socket());
    const std::string text = read(channel, 3);
    if (text.empty()) continue;
    EXPECT_EQ(text, "las");
    EXPECT_FALSE(channel.broken());
    EXPECT_EQ(read(channel, 1), "t");
    if (read(channel, 1).empty() && channel.broken()) break;
  }
  EXPECT_TRUE(channel.broken());
}

TEST_F(TcpChannelTest, AFullConnectionIsReadyOnceThePeerHasRead) {
  Pair pair = connect();
  TcpSendChannel channel(std::move(pair.near), DataHello{}, sockets());
  const std::vector<std::byte> block(1 << 20);
  std::size_t sent = 0, more = 0;
  do sent += more = channel.write(block, {});
  while (more == block.size());
  EXPECT_EQ(channel.write(block, {}), 0U);
  std::vector<std::byte> taken(1 << 20);
  std::size_t received = 0;
  while (received < sent / 2 + 1) {
    const ssize_t count = ::recv(pair.far.get(), taken.data(), taken.size(), 0);
    ASSERT_GT(count, 0);
    received += static_cast<std::size_t>(count);
  }
  ASSERT_TRUE(await_socket());
  EXPECT_GT(channel.write(block, {}), 0U);
  // Gone: what is written from then on breaks.
  pair.far.reset();
  while (!channel.broken()) {
    if (channel.write(block, {}) == 0 && !channel.broken()) {
      ASSERT_TRUE(await_socket());
    }
  }
}

}  // namespace
}  // namespace dtrun::collectives::cpu
