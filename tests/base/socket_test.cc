#include "dtrun/base/socket.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <functional>

#include <string>
#include <thread>

#include "dtrun/base/error.h"

namespace dtrun::base {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

ErrorCode code_of(const std::function<void()>& call, std::string* text = nullptr) {
  try {
    call();
  } catch (const Error& error) {
    if (text != nullptr) *text = error.what();
    return error.code();
  }
  ADD_FAILURE() << "no Error was thrown";
  return ErrorCode::kAborted;
}

TEST(HostPortTest, AllSpellingsAreUnderstood) {
  EXPECT_EQ(HostPort::parse("n0").host, "n0");
  EXPECT_FALSE(HostPort::parse("n0").port.has_value());
  EXPECT_EQ(HostPort::parse("n0:29500").port, 29500);
  EXPECT_EQ(HostPort::parse("[::1]:80").host, "::1");
  EXPECT_EQ(HostPort::parse("[::1]:80").port, 80);
  EXPECT_EQ(HostPort::parse("::1").host, "::1");
  EXPECT_EQ(HostPort::parse("[::1]:80").to_string(), "[::1]:80");
}

TEST(HostPortTest, WhatIsNoAddressIsRefusedByName) {
  for (const char* bad : {"", ":80", "n0:x", "n0:65536", "n0:-1", "[::1", "[::1]80", "n0:", "a b:1",
                          "x]:y:z", "[a[b]:1", "a,b:1", "h/p", "\x1b[1m", "'h':1"}) {
    std::string text;
    EXPECT_EQ(code_of([&] { HostPort::parse(bad); }, &text), ErrorCode::kInvalidArgument) << bad;
    EXPECT_EQ(text.find('\x1b'), std::string::npos);
  }
  EXPECT_EQ(HostPort::parse("[fe80::1%eth0]:7").host, "fe80::1%eth0");
}

TEST(SocketTest, BytesCrossAConnectionWhole) {
  const UniqueFd listener = listen_tcp("127.0.0.1", 0);
  const std::uint16_t port = local_port(listener.get());
  ASSERT_NE(port, 0);
  std::string received(1 << 20, '\0');
  std::thread server([&] {
    const UniqueFd connection(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    receive_all(connection.get(), received.data(), received.size(), Deadline::after(seconds(10)));
  });
  const UniqueFd client = connect_tcp("127.0.0.1", port, Deadline::after(seconds(10)));
  const std::string sent(received.size(), 'x');
  send_all(client.get(), sent.data(), sent.size(), Deadline::after(seconds(10)));
  server.join();
  EXPECT_EQ(received, sent);
  EXPECT_EQ(peer_address(client.get()), "127.0.0.1");
}

TEST(SocketTest, APortInUseIsNamedWithARemedy) {
  const UniqueFd listener = listen_tcp("127.0.0.1", 0);
  std::string text;
  EXPECT_EQ(code_of([&] { listen_tcp("127.0.0.1", local_port(listener.get())); }, &text),
            ErrorCode::kSystem);
  EXPECT_NE(text.find(std::to_string(local_port(listener.get()))), std::string::npos);
  EXPECT_NE(text.find("EADDRINUSE"), std::string::npos);
  EXPECT_NE(text.find("try: "), std::string::npos);
}

TEST(SocketTest, ConnectingWhereNobodyListensEndsAtTheDeadlineAndSaysWhy) {
  UniqueFd listener = listen_tcp("127.0.0.1", 0);
  const std::uint16_t port = local_port(listener.get());
  listener.reset();
  std::string text;
  EXPECT_EQ(
      code_of([&] { connect_tcp("127.0.0.1", port, Deadline::after(milliseconds(30))); }, &text),
      ErrorCode::kConnection);
  EXPECT_NE(text.find("Connection refused"), std::string::npos);
}

TEST(SocketTest, ANameThatDoesNotResolveEndsAtTheDeadline) {
  EXPECT_EQ(
      code_of([&] { connect_tcp("no-such-host.invalid", 1, Deadline::after(milliseconds(30))); }),
      ErrorCode::kConnection);
}

TEST(SocketTest, ASilentPeerIsATimeoutAndAClosedOneAConnectionError) {
  const UniqueFd listener = listen_tcp("127.0.0.1", 0);
  const UniqueFd client =
      connect_tcp("127.0.0.1", local_port(listener.get()), Deadline::after(seconds(5)));
  UniqueFd server(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  char byte = 0;
  EXPECT_EQ(
      code_of([&] { receive_all(client.get(), &byte, 1, Deadline::after(milliseconds(10))); }),
      ErrorCode::kTimeout);
  server.reset();
  EXPECT_EQ(code_of([&] { receive_all(client.get(), &byte, 1, Deadline::after(seconds(5))); }),
            ErrorCode::kConnection);
}

TEST(SocketTest, TheSourceAddressTowardsThisMachineIsLoopback) {
  EXPECT_EQ(source_address_towards("127.0.0.1"), "127.0.0.1");
  EXPECT_EQ(code_of([] { source_address_towards("no-such-host.invalid"); }),
            ErrorCode::kConnection);
}

TEST(SocketTest, NamesAndThisMachinesOwnAddressesAreNumeric) {
  EXPECT_EQ(resolve_addresses("127.0.0.1"), std::vector<std::string>{"127.0.0.1"});
  EXPECT_EQ(code_of([] { resolve_addresses("no-such-host.invalid"); }), ErrorCode::kConnection);
  const std::vector<std::string> own = interface_addresses();
  EXPECT_NE(std::find(own.begin(), own.end(), "127.0.0.1"), own.end());
  EXPECT_TRUE(whole_host_name().starts_with(host_name().substr(0, host_name().find('.'))));
}

TEST(SocketTest, TheFirstInterfaceThatIsThereGivesTheAddress) {
  EXPECT_EQ(address_of_interface("lo", "x"), "127.0.0.1");
  EXPECT_EQ(address_of_interface("nosuch0,lo", "x"), "127.0.0.1");
  for (const char* names : {"nosuch0", "", "l", "lo0,", "lo;"}) {
    std::string text;
    EXPECT_EQ(code_of([&] { address_of_interface(names, "IFNAME"); }, &text),
              ErrorCode::kInvalidArgument);
    EXPECT_NE(text.find("IFNAME: no such interface"), std::string::npos) << text;
    EXPECT_NE(text.find("these are: lo"), std::string::npos) << text;
  }
}

TEST(SocketTest, AListenerMayAskWhetherThePortIsTaken) {
  const UniqueFd listener = listen_tcp_unless_taken("127.0.0.1", 0);
  ASSERT_TRUE(listener);
  EXPECT_FALSE(listen_tcp_unless_taken("127.0.0.1", local_port(listener.get())));
  EXPECT_EQ(code_of([] { listen_tcp_unless_taken("192.0.2.99", 0); }), ErrorCode::kSystem);
}

// A peer holds acknowledgements back for 40 ms where it has nothing to say, as on a control
// connection. That is no distance.
TEST(SocketTest, TheLeastRoundTripHasNoDelayOfAcknowledgements) {
  const UniqueFd listener = listen_tcp("127.0.0.1", 0);
  const Deadline deadline = Deadline::after(seconds(20));
  const UniqueFd client = connect_tcp("127.0.0.1", local_port(listener.get()), deadline);
  const UniqueFd server(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  tcp_info info{};
  while (info.tcpi_rtt < 10'000 && !deadline.expired()) {
    const int off = 0;
    ASSERT_EQ(::setsockopt(server.get(), IPPROTO_TCP, TCP_QUICKACK, &off, sizeof(off)), 0);
    char byte = 'x';
    send_all(client.get(), &byte, 1, deadline);
    receive_all(server.get(), &byte, 1, deadline);
    do {
      socklen_t size = sizeof(info);
      ASSERT_EQ(::getsockopt(client.get(), IPPROTO_TCP, TCP_INFO, &info, &size), 0);
      std::this_thread::yield();
    } while (info.tcpi_unacked != 0);
  }
  EXPECT_GE(info.tcpi_rtt, 10'000U);  // the mean that the kernel keeps
  EXPECT_GT(least_round_trip_of(client.get()), Deadline::Duration(0));
  EXPECT_LT(least_round_trip_of(client.get()), milliseconds(10));
}

}  // namespace
}  // namespace dtrun::base
