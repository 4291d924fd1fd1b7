// How a client finds its store: names, both families of addresses, tokens; and how it notices that
// the store is gone.
#include <gtest/gtest.h>

#include <arpa/inet.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <set>
#include <thread>

#include "dtrun/rendezvous/tcp_store.h"
#include "etcd/wire_stream.h"
#include "rendezvous/early_and_late.h"
#include "rendezvous/own_network.h"
#include "rendezvous/scripted_store.h"
#include "rendezvous/served_store.h"
#include "support/thrown_error.h"

namespace dtrun::rendezvous {
namespace {

using base::Deadline;
using base::ErrorCode;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing_support::contains;
using testing_support::error_of;
using testing_support::in_own_network;

// --- Names.

// Answers the resolver of this process, which it has made ask 127.0.0.1.
class NameServer {
 public:
  NameServer() : socket_(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(53);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
      ADD_FAILURE() << "cannot bind port 53";
    replace("/etc/resolv.conf", "nameserver 127.0.0.1\n");
    replace("/etc/hosts", "127.0.0.2 two-faced\n127.0.0.1 two-faced\n");
    thread_ = std::thread([this] { serve(); });
  }
  ~NameServer() {
    ::shutdown(socket_.get(), SHUT_RD);
    thread_.join();
  }
  const std::set<int>& types() const { return types_; }
  int questions() const { return questions_; }

 private:
  static void replace(const std::string& path, const std::string& text) {
    const std::string own = testing::TempDir() + "names" + std::to_string(::getpid());
    std::ofstream(own) << text;
    EXPECT_EQ(::mount(own.c_str(), path.c_str(), nullptr, MS_BIND, nullptr), 0) << path;
    std::filesystem::remove(own);
  }

  void serve() {
    char question[512];
    sockaddr_in from{};
    while (true) {
      socklen_t length = sizeof from;
      const ssize_t n = ::recvfrom(socket_.get(), question, sizeof question, 0,
                                   reinterpret_cast<sockaddr*>(&from), &length);
      if (n <= 16) return;
      const std::string reply = answer({question, static_cast<std::size_t>(n)});
      ::sendto(socket_.get(), reply.data(), reply.size(), 0,
               reinterpret_cast<const sockaddr*>(&from), length);
    }
  }

  // "v6.test" has only the address ::1; "late.test" is not there when first asked for.
  std::string answer(const std::string& question) {
    const std::size_t name_end = question.find('\0', 12);
    const std::string name = question.substr(13, name_end - 13);
    const int type = static_cast<unsigned char>(question[name_end + 2]);
    types_.insert(type);
    ++questions_;
    const bool is_v6 = name.starts_with("v6");
    const bool there = is_v6 || (name.starts_with("late") && questions_ > 4);
    const bool has_it = there && type == (is_v6 ? 28 : 1);
    std::string reply = question.substr(0, name_end + 5);
    reply[2] = '\x81';
    reply[3] = there ? '\x80' : '\x83';
    reply[7] = has_it ? 1 : 0;
    reply[11] = 0;  // no additional records
    if (!has_it) return reply;
    reply +=
        std::string("\xc0\x0c\0", 3) + static_cast<char>(type) + std::string("\0\x01\0\0\0\0\0", 7);
    reply += is_v6 ? '\x10' + std::string(15, '\0') + '\x01' : std::string("\x04\x7f\0\0\x01", 5);
    return reply;
  }

  base::UniqueFd socket_;
  std::set<int> types_;
  std::atomic<int> questions_{0};
  std::thread thread_;
};

constexpr const char* kNoNetwork = "needs root, for a network namespace of its own";

TEST(StoreReachTest, NamesAreAskedForUntilTheyAreThereInBothFamiliesAndPeersNever) {
  const bool ran = in_own_network([] {
    std::set<int> types;
    {
      const NameServer names;
      const ServedStore v6_server({}, "::1");
      const ServedStore v4_server;
      connect_tcp_store({.host = "v6.test", .port = v6_server.port()})->set("k", "v");
      const auto store = connect_tcp_store({.host = "late.test", .port = v4_server.port()});
      store->set("k", "v");
      EXPECT_EQ(store->get("k", late()), "v");
      const auto error = error_of([&] {
        connect_tcp_store(
            {.host = "none.test", .port = v4_server.port(), .connect_timeout = milliseconds(200)});
      });
      ASSERT_TRUE(error);
      EXPECT_EQ(error->code(), ErrorCode::kConnection);
      EXPECT_TRUE(contains(error->what(), "none.test:")) << error->what();
      EXPECT_TRUE(contains(error->what(), "Name or service not known")) << error->what();
      EXPECT_TRUE(contains(error->what(), "ms\n") || contains(error->what(), " s\n"))
          << error->what();
      types = names.types();
    }
    // 1 A, 28 AAAA; 12 would be PTR: the name of an address.
    EXPECT_EQ(types, (std::set<int>{1, 28}));
  });
  if (!ran) GTEST_SKIP() << kNoNetwork;
}

// A listener whose queue is full drops what comes: its address stays silent.
base::UniqueFd silent_listener(const std::string& host, std::uint16_t port,
                               std::vector<base::UniqueFd>& held) {
  base::UniqueFd listener = base::listen_tcp(host, port);
  ::listen(listener.get(), 0);
  for (int i = 0; i < 4; ++i) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    ::inet_pton(AF_INET, host.c_str(), &address.sin_addr);
    held.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    ::connect(held.back().get(), reinterpret_cast<sockaddr*>(&address), sizeof address);
  }
  return listener;
}

TEST(StoreReachTest, ASilentAddressOfANameDoesNotKeepTheOthersFromTheirTurn) {
  const bool ran = in_own_network([] {
    const NameServer names;
    // The resolver puts 127.0.0.1 first: it is nearer.
    const ServedStore server({}, "127.0.0.2");
    std::vector<base::UniqueFd> held;
    const base::UniqueFd silent = silent_listener("127.0.0.1", server.port(), held);
    connect_tcp_store({.host = "two-faced", .port = server.port()})->set("k", "v");
    // Nor do those of a member of etcd.
    const Interrupt interrupt;
    const auto error = error_of([&] {
      WireStream({"two-faced", server.port()}, {}, interrupt, Deadline::after(milliseconds(600)));
    });
    EXPECT_FALSE(error) << error->what();
  });
  if (!ran) GTEST_SKIP() << kNoNetwork;
}

// --- Loss.

TEST(StoreReachTest, AHostThatIsCutOffIsNoticedByWhoWaitsAndByWhoAsks) {
  const bool ran = in_own_network([] {
    std::promise<void> waits, done;
    const ScriptedServer server({[&](RawClient& peer) {
      greet(peer);
      peer.receive(bytes("06 | 01 0*7 | 02 0*7 '/k'").size());
      waits.set_value();
      done.get_future().wait();
    }});
    const ServedStore served;
    TcpStoreOptions options = server.options();
    options.lost_after = seconds(1);
    const auto waiting = connect_tcp_store(options);
    options.port = served.port();
    const auto asking = connect_tcp_store(options);
    std::thread waiter([&] {
      // Its request is out and acknowledged: nothing but keepalive can notice.
      const auto error = error_of([&] { waiting->get("k", Deadline::never()); });
      ASSERT_TRUE(error);
      EXPECT_EQ(error->code(), ErrorCode::kConnection);
      EXPECT_TRUE(contains(error->summary(), "lost the store at 127.0.0.1:")) << error->what();
      EXPECT_TRUE(contains(error->why(), "its host has not answered for 1 s")) << error->what();
    });
    waits.get_future().wait();
    ASSERT_TRUE(testing_support::set_loopback(testing_support::Link::down));
    const auto early = error_of([&] { asking->add("n", 1, Deadline::after(milliseconds(10))); });
    ASSERT_TRUE(early);
    EXPECT_TRUE(early->code() == ErrorCode::kTimeout || early->code() == ErrorCode::kConnection);
    waiter.join();
    done.set_value();
    // The loopback is up again for the end of the server's threads only.
    testing_support::set_loopback(testing_support::Link::up);
  });
  if (!ran) GTEST_SKIP() << kNoNetwork;
}

TEST(StoreReachTest, AStoreThatIsLostStaysLostThoughAnotherOneTakesItsPlace) {
  auto first = std::make_unique<ServedStore>();
  const std::uint16_t port = first->port();
  const auto store = first->client();
  const auto idle = first->client();
  store->set("k", "v");
  EXPECT_EQ(store->get("k", late()), "v");
  first.reset();
  const ServedStore second({}, "127.0.0.1", port);
  const auto lost = error_of([&] { store->try_get("k"); });
  ASSERT_TRUE(lost);
  EXPECT_EQ(lost->code(), ErrorCode::kConnection);
  const auto again = error_of([&] { store->try_get("k"); });
  ASSERT_TRUE(again);
  EXPECT_EQ(again->code(), ErrorCode::kConnection);
  EXPECT_TRUE(contains(again->why(), "(at an earlier operation)")) << again->what();
  // Not taken for a bad number, nor for an old server, in the new, empty store.
  EXPECT_EQ(error_of([&] { idle->add("n", 1); })->code(), ErrorCode::kConnection);
  EXPECT_EQ(error_of([&] { idle->num_keys(); })->code(), ErrorCode::kConnection);
  EXPECT_EQ(second.client()->num_keys(), 0);
}

TEST(StoreReachTest, AStoreThatDidNotAnswerAndWasReplacedIsNoticed) {
  std::promise<void> asked, end;
  auto first = std::make_unique<ScriptedServer>(
      std::vector<std::function<void(RawClient&)>>{[&](RawClient& peer) {
        greet(peer);
        peer.receive(1);  // NUM_KEYS, never answered
        end.get_future().wait();
      }});
  const std::uint16_t port = first->options().port;
  const auto store = connect_tcp_store(first->options());
  EXPECT_EQ(error_of([&] { store->num_keys(Deadline::after({})); })->code(), ErrorCode::kTimeout);
  end.set_value();
  first.reset();
  const ServedStore second({}, "127.0.0.1", port);
  const auto error = error_of([&] { store->num_keys(); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::kConnection);
  EXPECT_TRUE(contains(error->why(), "another one has taken its place")) << error->what();
}

// --- Tokens.

Token token(const std::string& text) {
  return Token(text, "the test");
}

TEST(StoreReachTest, OnlyWhoHasTheTokenIsLetIn) {
  const std::string secret = "0123456789abcdef";
  const ServedStore server({.token = token(secret)});
  TcpStoreOptions options{
      .host = "127.0.0.1", .port = server.port(), .connect_timeout = seconds(4)};
  const auto none = error_of([&] { connect_tcp_store(options); });
  ASSERT_TRUE(none);
  EXPECT_EQ(none->code(), ErrorCode::kConnection);
  EXPECT_TRUE(contains(none->remedy(), "started with a token")) << none->what();
  options.connect_timeout = seconds(60);
  options.token = token("another 0123456789abcdef");
  const auto wrong = error_of([&] { connect_tcp_store(options); });
  ASSERT_TRUE(wrong);
  EXPECT_EQ(wrong->code(), ErrorCode::kProtocol);
  EXPECT_TRUE(contains(wrong->summary(), "does not take this client's token")) << wrong->what();
  options.token = token(secret + "\n");
  const auto store = connect_tcp_store(options);
  store->set("k", "v");
  std::thread waiter([&] { EXPECT_EQ(store->get("later", late()), "2"); });
  store->set("later", "2");
  waiter.join();
  EXPECT_EQ(store->num_keys(), 2);

  // A request before the proof is not served, nor is one that a legacy client would send, and a
  // second proof ends the connection.
  for (const char* request : {"00 ce f7 85 3c | 0d 'pid1'", "07", "01 | 01 0*7 'k' | 01 0*7 'x'"}) {
    RawClient stranger(server.port());
    stranger.send(bytes(request));
    EXPECT_TRUE(stranger.closed_by_peer()) << request;
  }
  EXPECT_EQ(store->num_keys(), 2);

  const ServedStore open_server;
  options.port = open_server.port();
  options.connect_timeout = seconds(1);
  const auto no_need = error_of([&] { connect_tcp_store(options); });
  ASSERT_TRUE(no_need);
  EXPECT_TRUE(contains(no_need->remedy(), "started with this token")) << no_need->what();
}

TEST(StoreReachTest, WhoStaysInTheDoorIsSentAwayInTime) {
  const ServedStore server({.handshake_timeout = milliseconds(50),
                            .max_newcomers = 2,
                            .token = token("0123456789abcdef")});
  RawClient first(server.port()), second(server.port()), third(server.port());
  for (RawClient* half : {&first, &second, &third}) half->send(bytes("d7"));
  for (RawClient* half : {&first, &second, &third}) EXPECT_TRUE(half->closed_by_peer());
}

}  // namespace
}  // namespace dtrun::rendezvous
