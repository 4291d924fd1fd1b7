#include "rounds/agent_dialer.h"

#include <gtest/gtest.h>

#include "rendezvous/served_head.h"
#include "rounds/agent_socket.h"
#include "support/own_port.h"
#include "support/thrown_error.h"

#include <netinet/in.h>
#include <netinet/tcp.h>

namespace dtrun::rendezvous {
namespace {

using testing_support::contains;

struct Outcome {
  base::UniqueFd socket;
  std::string why;
};

Outcome dial(const std::string& host, std::uint16_t port,
             base::Deadline::Duration limit = std::chrono::seconds(60)) {
  base::EventLoop loop;
  std::optional<Outcome> outcome;
  std::optional<AgentDialer> dialer;
  dialer.emplace(loop, host, port, limit, [&](base::UniqueFd socket, const std::string& why) {
    outcome.emplace(Outcome{std::move(socket), why});
    dialer.reset();
  });
  EXPECT_TRUE(run_until(loop, [&] { return outcome.has_value(); }));
  return std::move(*outcome);
}

TEST(AgentDialerTest, ItConnectsToAddressesAndNamesOfBothFamilies) {
  const base::UniqueFd v4 = base::listen_tcp("127.0.0.1", 0);
  EXPECT_TRUE(dial("127.0.0.1", base::local_port(v4.get())).socket.valid());
  // Whichever family of it comes first: one of them is refused.
  EXPECT_TRUE(dial("localhost", base::local_port(v4.get())).socket.valid());
  base::UniqueFd v6;
  try {
    v6 = base::listen_tcp("::1", 0);
  } catch (const base::Error& error) {
    GTEST_SKIP() << "no IPv6 here: " << error.what();
  }
  EXPECT_TRUE(dial("::1", base::local_port(v6.get())).socket.valid());
}

TEST(AgentDialerTest, ItSaysWhyItCouldNot) {
  const testing_support::OwnPort own_port;  // at which nobody listens
  const std::uint16_t port = own_port.number();
  EXPECT_EQ(dial("127.0.0.1", port).why, "Connection refused");
  const Outcome nobody = dial("no-such-host.invalid", port);
  EXPECT_TRUE(contains(nobody.why, "'no-such-host.invalid' does not resolve")) << nobody.why;
  // The answer may be faster than that the time is seen to be over.
  const std::string takes_long = "looking up the name '256.0.0.1x' takes long";
  std::string why;
  for (int i = 0; i < 100 && why != takes_long; ++i)
    why = dial("256.0.0.1x", port, std::chrono::nanoseconds(1)).why;
  EXPECT_EQ(why, takes_long);
}

TEST(AgentDialerTest, OneThatIsDestroyedCallsNobody) {
  base::EventLoop loop;
  const base::UniqueFd listener = base::listen_tcp("127.0.0.1", 0);
  const std::uint16_t port = base::local_port(listener.get());
  for (const char* host : {"127.0.0.1", "localhost"})
    AgentDialer(loop, host, port, std::chrono::seconds(60),
                [](base::UniqueFd, const std::string&) { ADD_FAILURE(); });
  loop.post([] {});
  loop.run_some(patience());
}

TEST(AgentDialerTest, PatienceIsTheConnectionsOwn) {
  const base::UniqueFd listener = base::listen_tcp("127.0.0.1", 0);
  const Outcome outcome = dial("127.0.0.1", base::local_port(listener.get()));
  set_patience(outcome.socket.get(), std::chrono::seconds(5));
  unsigned limit_ms = 0;
  socklen_t length = sizeof limit_ms;
  ::getsockopt(outcome.socket.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &limit_ms, &length);
  EXPECT_EQ(limit_ms, 5000u);
}

}  // namespace
}  // namespace dtrun::rendezvous
