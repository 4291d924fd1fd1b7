// The client of etcd, over a real etcd and over servers that are none.
#include "etcd/etcd_client.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "etcd/etcd_watch.h"
#include "etcd/tls_session.h"
#include "etcd/wire_stream.h"
#include "rendezvous/early_and_late.h"
#include "rendezvous/own_etcd_client.h"
#include "support/own_port.h"
#include "support/scripted_server.h"
#include "support/thrown_error.h"

namespace dtrun::rendezvous {
namespace {

using base::Deadline;
using base::ErrorCode;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;
using testing_support::error_of;
using testing_support::EtcdLab;
using testing_support::ScriptedServer;

Deadline shortly() {
  return Deadline::after(milliseconds(150));
}

using Client = OwnEtcdClient;

std::string value_of(Client& client, const std::string& key) {
  const auto reply = client->range(EtcdKeys::one(key), {}, late());
  return reply.range.list.empty() ? "(none)" : reply.range.list[0].value;
}

class EtcdClientTest : public EtcdLabTest {};

TEST(EtcdOptionsTest, EndpointsAreAListWithADefaultPort) {
  const auto endpoints = EtcdOptions::parse_endpoints("a,b:1,[::1]:2");
  ASSERT_EQ(endpoints.size(), 3u);
  EXPECT_EQ(endpoints[0].to_string(), "a:2379");
  EXPECT_EQ(endpoints[1].to_string(), "b:1");
  EXPECT_EQ(endpoints[2].to_string(), "[::1]:2");
  for (const char* wrong : {"", "a,", "a:x"})
    EXPECT_EQ(error_of([&] { EtcdOptions::parse_endpoints(wrong); })->code(),
              ErrorCode::kInvalidArgument);
}

TEST_F(EtcdClientTest, BytesArePutReadAndRemoved) {
  // No proxy of the environment is asked.
  ::setenv("http_proxy", "http://127.0.0.1:1", 1);
  Client client(lab_->endpoints());
  const std::string bytes("\0\xff\n/", 4);
  client->put("bytes/" + bytes, bytes, 0, late());
  client->put("bytes/", "", 0, late());
  EXPECT_EQ(value_of(client, "bytes/" + bytes), bytes);
  const auto all = client->range(EtcdKeys::with_prefix("bytes/"), {}, late());
  ASSERT_EQ(all.range.list.size(), 2u);
  EXPECT_EQ(all.range.list[0].value, "");
  const auto limited = client->range(EtcdKeys::with_prefix("bytes/"), {.limit = 1}, late());
  EXPECT_EQ(limited.range.count, 2);
  EXPECT_EQ(limited.range.list.size(), 1u);
  EXPECT_EQ(client->remove(EtcdKeys::with_prefix("bytes/"), late()), 2);
  EXPECT_EQ(client->remove(EtcdKeys::with_prefix("bytes/"), late()), 0);
  EXPECT_EQ(EtcdKeys::with_prefix("a\xff").end, "b");
  EXPECT_GE(client->range(EtcdKeys::with_prefix(""), {}, late()).revision, 1);
}

TEST_F(EtcdClientTest, ATransactionDoesOneListOrTheOther) {
  Client client(lab_->endpoints());
  EtcdTxn create;
  create.if_modified_at("txn", 0).then_put("txn", "1").else_range(EtcdKeys::one("txn"));
  const EtcdTxnReply first = client->txn(create, late());
  EXPECT_TRUE(first.succeeded);
  const EtcdTxnReply second = client->txn(create, late());
  EXPECT_FALSE(second.succeeded);
  ASSERT_EQ(second.ranges.size(), 1u);
  EXPECT_EQ(second.ranges[0].list[0].mod_revision, first.revision);
  EtcdTxn remove;
  remove.if_created_at("txn", first.revision).then_delete(EtcdKeys::one("txn"));
  EXPECT_TRUE(client->txn(remove, late()).succeeded);
}

TEST_F(EtcdClientTest, ALeaseTakesItsKeysAlong) {
  Client client(lab_->endpoints());
  const EtcdLease lease = client->grant_lease(seconds(30), late());
  EXPECT_EQ(lease.ttl, seconds(30));
  client->put("leased", "", lease.id, late());
  EXPECT_EQ(client->keep_lease_alive(lease.id, late()), seconds(30));
  EXPECT_GE(client->lease_time_to_live(lease.id, late()), seconds(28));
  client->revoke_lease(lease.id, late());
  client->revoke_lease(lease.id, late());
  EXPECT_EQ(value_of(client, "leased"), "(none)");
  EXPECT_EQ(client->keep_lease_alive(lease.id, late()), seconds(0));
  EXPECT_EQ(client->lease_time_to_live(lease.id, late()), seconds(0));
  const auto error = error_of([&] { client->put("leased", "", lease.id, late()); });
  EXPECT_EQ(error->code(), ErrorCode::kNotFound);
  EXPECT_THAT(error->why(), HasSubstr("lease not found"));
}

TEST_F(EtcdClientTest, AWatchTellsEveryChangeOnceFromItsRevisionOn) {
  Client client(lab_->endpoints());
  Client other(lab_->endpoints());
  const std::int64_t start = client->put("watch/a", "0", 0, late());
  client->put("watch/a", "1", 0, late());
  EtcdWatch watch(client.etcd, {EtcdKeys::one("watch/a"), EtcdKeys::with_prefix("watch/b/")},
                  start + 1);
  std::thread writer([&] {
    for (int i = 2; i < 50; ++i) other->put("watch/a", std::to_string(i), 0, late());
    other->put("watch/b/", "", 0, late());
    other->remove(EtcdKeys::one("watch/a"), late());
  });
  std::vector<std::string> seen;
  bool deleted = false;
  for (bool other_seen = false; !deleted || !other_seen;)
    for (const EtcdEvent& event : watch.next(late()).events) {
      if (event.pair.key == "watch/b/") {
        other_seen = true;
      } else if (event.kind == EtcdEvent::Kind::deleted) {
        deleted = true;
      } else {
        seen.push_back(event.pair.value);
      }
    }
  writer.join();
  ASSERT_EQ(seen.size(), 49u);
  for (int i = 1; i < 50; ++i) EXPECT_EQ(seen[static_cast<std::size_t>(i - 1)], std::to_string(i));
  EXPECT_TRUE(watch.next(shortly()).events.empty());
}

TEST_F(EtcdClientTest, AWatchCatchesUpWithLargeValuesInPieces) {
  Client client(lab_->endpoints());
  const std::string value(1 << 20, 'v');
  const std::int64_t start = client->put("large", "", 0, late());
  constexpr int kPuts = 4;
  for (int i = 0; i < kPuts; ++i) client->put("large", value + std::to_string(i), 0, late());
  EtcdWatch watch(client.etcd, {EtcdKeys::one("large")}, start + 1);
  for (int i = 0; i < kPuts;)
    for (const EtcdEvent& event : watch.next(late()).events)
      ASSERT_EQ(event.pair.value.substr(value.size()), std::to_string(i++));
}

TEST_F(EtcdClientTest, AWatchFromWhatEtcdHasForgottenSaysSo) {
  Client client(lab_->endpoints());
  const std::int64_t start = client->put("old", "0", 0, late());
  const std::int64_t end = client->put("old", "1", 0, late());
  const std::string body = "{\"revision\":\"" + std::to_string(end) + "\"}";
  client->open_stream("/v3/kv/compaction", body, late());
  EtcdWatch watch(client.etcd, {EtcdKeys::one("old")}, start);
  EXPECT_TRUE(watch.next(late()).forgotten);
}

TEST_F(EtcdClientTest, AWaitIsWokenAndACallIsCalledOff) {
  Client client(lab_->endpoints());
  EtcdWatch watch(client.etcd, {EtcdKeys::one("never")}, 1);
  const Interrupt wake;
  wake.raise();
  EXPECT_TRUE(watch.next(late(), wake.fd()).events.empty());
  std::thread other([&] { client.raise(); });
  EXPECT_EQ(error_of([&] { watch.next(late()); })->code(), ErrorCode::kAborted);
  other.join();
  EXPECT_EQ(error_of([&] { client->probe(late()); })->code(), ErrorCode::kAborted);
  EXPECT_EQ(error_of([&] { client.pause(late()); })->code(), ErrorCode::kAborted);
}

TEST_F(EtcdClientTest, WhatEtcdRefusesIsToldWithItsWords) {
  Client client(lab_->endpoints());
  const auto large = error_of([&] { client->put("k", std::string(2000000, 'v'), 0, late()); });
  ASSERT_TRUE(large);
  EXPECT_EQ(large->code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(large->what(), HasSubstr("too large"));
  EXPECT_THAT(large->what(), HasSubstr("1.5 MiB"));
  EtcdTxn twice;
  twice.then_put("k", "1").then_put("k", "2");
  EXPECT_THAT(error_of([&] { client->txn(twice, late()); })->what(), HasSubstr("duplicate key"));
}

TEST_F(EtcdClientTest, AMemberThatIsNoneIsPassedOver) {
  ScriptedServer garbage([](int, int fd) {
    ScriptedServer::read_request(fd);
    ScriptedServer::write(fd, "garbage\r\n\r\n");
  });
  Client client({garbage.endpoint(), {"127.0.0.1", 1}, lab_->endpoints()[0]});
  for (int i = 0; i < 5; ++i) client->put("k", "v", 0, late());
  EXPECT_EQ(value_of(client, "k"), "v");
}

TEST_F(EtcdClientTest, AMemberThatIsKilledOrStoppedIsReplacedByAnother) {
  EtcdLab three(3);
  REQUIRE_ETCD(three);
  Client client(three.endpoints());
  const std::int64_t start = client->put("k", "0", 0, late());
  EtcdWatch watch(client.etcd, {EtcdKeys::one("k")}, start + 1);
  EXPECT_TRUE(watch.next(shortly()).events.empty());
  const int first = static_cast<int>(client->member()) + 1;
  three.signal("stop", first);
  client->put("k", "1", 0, late());
  EXPECT_NE(static_cast<int>(client->member()) + 1, first);
  EXPECT_EQ(watch.next(late()).events.at(0).pair.value, "1");
  three.signal("cont", first);
  const int second = static_cast<int>(client->member()) + 1;
  three.signal("kill", second);
  client->put("k", "2", 0, late());
  // What the stopped member had been told it carries out when it goes on: perhaps a second "1".
  for (std::string last; last != "2";)
    for (const EtcdEvent& event : watch.next(late()).events) last = event.pair.value;
  // One of three is no majority: it takes connections, and knows that it has lost the others.
  three.signal("kill", 1 + second % 3);
  const auto error =
      error_of([&] { client->put("k", "3", 0, Deadline::after(milliseconds(1500))); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::kConnection);
  for (const base::HostPort& endpoint : three.endpoints())
    EXPECT_THAT(error->what(), HasSubstr(endpoint.to_string()));
}

// An etcd that the scripts of the lab do not start: with TLS, or without its gateway.
class OwnEtcd {
 public:
  explicit OwnEtcd(const std::vector<std::string>& flags, const std::string& scheme = "http") {
    folder_ = testing::TempDir() + "dtrun_etcd_XXXXXX";
    if (::mkdtemp(folder_.data()) == nullptr) ::abort();
    endpoint_ = {"127.0.0.1", ports_[0].number()};
    const std::string client = scheme + "://" + endpoint_.to_string();
    const std::string peer = "http://127.0.0.1:" + ports_[1].text();
    std::vector<std::string> command = {"etcd",
                                        "--data-dir",
                                        folder_ + "/data",
                                        "--listen-client-urls",
                                        client,
                                        "--advertise-client-urls",
                                        client,
                                        "--listen-peer-urls",
                                        peer,
                                        "--initial-advertise-peer-urls",
                                        peer,
                                        "--initial-cluster",
                                        "default=" + peer,
                                        "--logger",
                                        "zap",
                                        "--log-outputs",
                                        folder_ + "/log"};
    command.insert(command.end(), flags.begin(), flags.end());
    command_ = std::make_unique<testing_support::Command>(command);
  }
  ~OwnEtcd() {
    command_.reset();
    std::filesystem::remove_all(folder_);
  }
  const base::HostPort& endpoint() const { return endpoint_; }

 private:
  std::string folder_;
  testing_support::OwnPort ports_[2];
  base::HostPort endpoint_;
  std::unique_ptr<testing_support::Command> command_;
};

TEST_F(EtcdClientTest, AnEtcdWithoutItsGatewayIsNamed) {
  OwnEtcd etcd({"--enable-grpc-gateway=false"});
  Client client({etcd.endpoint()});
  const auto error = error_of([&] { client->probe(late()); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::kProtocol);
  EXPECT_THAT(error->why(), HasSubstr("it is etcd 3."));
  EXPECT_THAT(error->remedy(), HasSubstr("--enable-grpc-gateway=true"));
}

// A CA, a certificate of a server at 127.0.0.1, and one of a client.
struct Certificates {
  Certificates() {
    if (::mkdtemp(folder.data()) == nullptr) ::abort();
    std::ofstream(folder + "/extensions") << "subjectAltName=IP:127.0.0.1,DNS:localhost\n";
    const std::string script = R"(set -e; cd "$0"
      new="openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
      $new -x509 -subj /CN=ca -keyout ca.key -out ca.pem -days 2
      $new -x509 -subj /CN=stranger -keyout other.key -out other.pem -days 2
      for name in server client; do
        $new -subj /O=$name -keyout $name.key -out $name.csr
        openssl x509 -req -in $name.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 \
          -extfile extensions -out $name.pem
      done)";
    const auto made = testing_support::run_command({"bash", "-c", script, folder});
    if (made.exit_code != 0) reason = made.describe();
  }
  ~Certificates() { std::filesystem::remove_all(folder); }
  std::string file(const std::string& name) const { return folder + "/" + name; }

  std::string folder = testing::TempDir() + "dtrun_certificates_XXXXXX";
  std::string reason;
};

void enable_authentication(Client& client) {
  for (const auto& [path, body] : std::vector<std::pair<std::string, std::string>>{
           {"user/add", R"({"name":"root","password":"secret"})"},
           {"role/add", R"({"name":"root"})"},
           {"user/grant", R"({"user":"root","role":"root"})"},
           {"enable", "{}"}})
    client->open_stream("/v3/auth/" + path, body, late());
}

TEST_F(EtcdClientTest, TlsProvesBothSidesAndAPasswordTheUser) {
  const Certificates made;
  ASSERT_EQ(made.reason, "");
  OwnEtcd etcd({"--cert-file", made.file("server.pem"), "--key-file", made.file("server.key"),
                "--trusted-ca-file", made.file("ca.pem"), "--client-cert-auth"},
               "https");
  EtcdOptions options = Client::at({etcd.endpoint()});
  options.protocol = EtcdOptions::Protocol::https;
  options.ca_cert = made.file("ca.pem");
  options.ssl_cert = made.file("client.pem");
  options.ssl_cert_key = made.file("client.key");
  Client client(options);
  const std::string large(1 << 20, 'v');
  const std::int64_t start = client->put("k", large, 0, late());
  EXPECT_EQ(value_of(client, "k"), large);
  EtcdWatch watch(client.etcd, {EtcdKeys::one("k")}, start);
  EXPECT_EQ(watch.next(late()).events.at(0).pair.value, large);

  const auto refusal = [&](EtcdOptions changed, Deadline deadline = late()) {
    Client other(std::move(changed));
    const auto error = error_of([&] { other->probe(deadline); });
    return error ? *error : base::Error(ErrorCode::kAborted, "no error");
  };
  EtcdOptions wrong = options;
  wrong.ca_cert = made.file("other.pem");
  EXPECT_THAT(refusal(wrong).what(), HasSubstr("name the CA that signed it with ca_cert"));
  wrong.ca_cert = "";
  EXPECT_EQ(refusal(wrong).code(), ErrorCode::kProtocol);
  wrong = options;
  wrong.ssl_cert = wrong.ssl_cert_key = "";
  EXPECT_THAT(refusal(wrong).what(), HasSubstr("ssl_cert"));
  wrong = options;
  wrong.protocol = EtcdOptions::Protocol::http;
  EXPECT_THAT(refusal(wrong, shortly()).remedy(), HasSubstr("http or https"));
  wrong = options;
  wrong.endpoints = lab_->endpoints();
  EXPECT_THAT(refusal(wrong, shortly()).remedy(), HasSubstr("http or https"));
  wrong.endpoints = {{"localhost", etcd.endpoint().port}};
  EXPECT_EQ(refusal(wrong).code(), ErrorCode::kAborted);  // the certificate names it, too
  // The same address by a name that the certificate lacks.
  wrong.endpoints = {{"127.1", etcd.endpoint().port}};
  EXPECT_EQ(refusal(wrong).code(), ErrorCode::kProtocol);
  EXPECT_THAT(refusal(wrong).what(), HasSubstr("hostname mismatch"));
  for (std::string EtcdOptions::*file :
       {&EtcdOptions::ca_cert, &EtcdOptions::ssl_cert, &EtcdOptions::ssl_cert_key}) {
    wrong = options;
    wrong.*file = made.file("none");
    EXPECT_EQ(refusal(wrong).code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(refusal(wrong).what(), HasSubstr(made.file("none")));
  }

  enable_authentication(client);
  options.user = "root";
  options.password = "secret";
  EXPECT_EQ(value_of(*std::make_unique<Client>(options), "k"), large);
  options.password = "wrong";
  EXPECT_THAT(refusal(options).remedy(), HasSubstr("check user and password"));
}

/// Hands bytes on between a connection and a server, until it is told to end the connection.
class Relay {
 public:
  explicit Relay(std::uint16_t port)
      : cut_(base::make_pipe()), server_([this, port](int, int fd) { hand_on(fd, port); }) {}
  base::HostPort endpoint() const { return server_.endpoint(); }
  void cut() { cut_.write_end.reset(); }

 private:
  void hand_on(int fd, std::uint16_t port) const {
    const base::UniqueFd other = base::connect_tcp("127.0.0.1", port, late());
    while (true) {
      pollfd waits[] = {
          {fd, POLLIN, 0}, {other.get(), POLLIN, 0}, {cut_.read_end.get(), POLLIN, 0}};
      ::poll(waits, 3, -1);
      if (waits[2].revents != 0) return end(fd);
      for (const auto& [from, to] : {std::pair(0, other.get()), std::pair(1, fd)}) {
        char block[4096];
        if (waits[from].revents == 0) continue;
        const ssize_t n = ::recv(waits[from].fd, block, sizeof block, 0);
        if (n <= 0 || ::send(to, block, static_cast<std::size_t>(n), MSG_NOSIGNAL) != n) return;
      }
    }
  }

  /// Without a reset, which bytes that nobody has read would make.
  static void end(int fd) {
    ::shutdown(fd, SHUT_WR);
    char block[4096];
    while (::recv(fd, block, sizeof block, 0) > 0) continue;
  }

  base::Pipe cut_;
  ScriptedServer server_;
};

// Whoever cuts the connection must not be able to make a part look like the whole.
TEST_F(EtcdClientTest, AnEndThatTlsDidNotSayIsNoEnd) {
  const Certificates made;
  ASSERT_EQ(made.reason, "");
  OwnEtcd etcd({"--cert-file", made.file("server.pem"), "--key-file", made.file("server.key")},
               "https");
  Relay relay(etcd.endpoint().port.value());
  EtcdOptions options = Client::at({relay.endpoint()});
  options.protocol = EtcdOptions::Protocol::https;
  options.ca_cert = made.file("ca.pem");
  const Interrupt interrupt;
  WireStream wire(relay.endpoint(), options, interrupt, late());
  relay.cut();
  std::string bytes;
  const auto error = error_of([&] { wire.receive_some(bytes, late(), -1); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::kConnection);
  EXPECT_THAT(error->why(), HasSubstr("without close_notify"));
}

// What a call to that server ends with.
base::Error error_from(ScriptedServer& server, Deadline deadline = late()) {
  Client client({server.endpoint()});
  const auto error = error_of([&] { client->put("k", "v", 0, deadline); });
  if (!error) ::abort();
  EXPECT_THAT(error->what(), HasSubstr(server.endpoint().to_string()));
  return *error;
}

// A server that answers every request so.
std::function<void(int, int)> always(std::string answer) {
  return [answer](int, int fd) {
    while (!ScriptedServer::read_request(fd).empty()) ScriptedServer::write(fd, answer);
  };
}

TEST(NoEtcdTest, NobodyListens) {
  Client client({{"127.0.0.1", 1}});
  const auto error = error_of([&] { client->probe(shortly()); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::kConnection);
  EXPECT_THAT(error->summary(), HasSubstr("cannot reach etcd at 127.0.0.1:1 for "));
  EXPECT_THAT(error->why(), HasSubstr("Connection refused"));
  EXPECT_THAT(error->remedy(), HasSubstr("check the endpoints"));
  Client unnamed({{"no.such.host.invalid", 1}});
  EXPECT_THAT(error_of([&] { unnamed->probe(shortly()); })->why(), HasSubstr("resolve"));
}

TEST(NoEtcdTest, OtherServersAreRefusedAtOnceByWhatTheyAre) {
  struct Case {
    std::string answer;
    const char* why;
  };
  const std::string wrong_types =
      R"({"header":{"revision":"1"},"responses":[{"response_range":{"kvs":[{"key":"*"}]}}]})";
  const Case cases[] = {
      {"SSH-2.0-OpenSSH_9.2\r\n", "no HTTP"},
      {ScriptedServer::reply("<html>", "404 Not Found"), "it is no etcd: it answers 404 '<html>'"},
      {ScriptedServer::reply("{}", "500 Oh"), "it is no etcd: it answers 500"},
      {ScriptedServer::reply("no json"), "at byte"},
      {ScriptedServer::reply("[1]"), "it is no object"},
      {ScriptedServer::reply(std::string(100000, '[')), "too deep"},
      {"HTTP/1.1 200 OK\r\nContent-Length: 999999999999\r\n\r\n", "longer than"},
      {"HTTP/1.1 400 Bad Request\r\nContent-Length: 48\r\n\r\nClient sent an HTTP request to an "
       "HTTPS server.\n\n",
       "HTTPS"},
  };
  for (const Case& one : cases) {
    ScriptedServer server(always(one.answer));
    const base::Error error = error_from(server);
    EXPECT_EQ(error.code(), ErrorCode::kProtocol) << error.what();
    EXPECT_THAT(error.why(), HasSubstr(one.why)) << error.what();
  }
  for (const std::string& body : {std::string("{}"), wrong_types, std::string(R"({"header":7})"),
                                  std::string(R"({"header":{"revision":true}})"),
                                  std::string(R"({"header":{"revision":"x"}})"),
                                  std::string(R"({"header":{"revision":1},"responses":7})"),
                                  std::string(R"({"header":{"revision":1},"responses":[7]})")}) {
    ScriptedServer server(always(ScriptedServer::reply(body)));
    Client client({server.endpoint()});
    const auto error = error_of([&] { client->put("k", "v", 0, late()); });
    ASSERT_TRUE(error) << body;
    EXPECT_EQ(error->code(), ErrorCode::kProtocol) << error->what();
    EXPECT_THAT(error->why(), HasSubstr("its field")) << error->what();
  }
  ScriptedServer no_lease(always(ScriptedServer::reply(R"({"ID":7})")));
  Client client({no_lease.endpoint()});
  EXPECT_THAT(error_of([&] { client->grant_lease(seconds(9), late()); })->what(),
              HasSubstr("grants no lease"));
  EXPECT_THAT(error_of([&] { client->keep_lease_alive(9, late()); }), testing::Eq(std::nullopt));
}

TEST(NoEtcdTest, AWatchThatIsEndedOrConfusedIsBegunAgainWhereItWas) {
  const std::string lines[] = {
      R"({"error":{"message":"etcdserver: no leader"}})",
      "7",
      R"({"result":{"canceled":true,"cancel_reason":"no leader"}})",
      R"({"result":{"watch_id":"9","events":[{"kv":{"key":"aw==","mod_revision":"8"}}]}})",
      R"({"result":{"watch_id":"1","fragment":true,"events":[{"kv":{"key":"aw==","mod_revision":"8"}}]}})",
      R"({"result":{"watch_id":"1","events":[{"kv":{"mod_revision":"7"}},{"kv":{"mod_revision":"8"}}]}})"};
  std::size_t line = 0;
  std::string last_watch;
  ScriptedServer server([&](int, int fd) {
    const std::string request = ScriptedServer::read_request(fd);
    const bool is_watch = request.find("/v3/watch") != std::string::npos;
    if (is_watch) last_watch = request;
    ScriptedServer::write(fd, ScriptedServer::reply(is_watch && line < std::size(lines)
                                                        ? lines[line++] + "\n"
                                                        : R"({"header":{"revision":"9"}})"));
  });
  Client client({server.endpoint()});
  EtcdWatch watch(client.etcd, {EtcdKeys::one("k")}, 5);
  EXPECT_EQ(watch.next(late()).events.at(0).pair.mod_revision, 8);
  // The fragment's other half is asked for again, and what comes twice is dropped.
  const auto news = watch.next(late());
  ASSERT_EQ(news.events.size(), 1u);
  EXPECT_EQ(news.events[0].pair.mod_revision, 8);
  EXPECT_THAT(last_watch, HasSubstr(R"("start_revision":"8")"));
}

TEST(NoEtcdTest, AnEndlessReplyIsCutOff) {
  ScriptedServer server([](int, int fd) {
    ScriptedServer::read_request(fd);
    std::string chunk = "100000\r\n" + std::string(1 << 20, 'x') + "\r\n";
    ScriptedServer::write(fd, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 30; ++i) ScriptedServer::write(fd, chunk);
    ScriptedServer::wait_for_close(fd);
  });
  EXPECT_THAT(error_from(server).why(), HasSubstr("longer than"));
  Client client({server.endpoint()});
  EtcdWatch watch(client.etcd, {EtcdKeys::one("k")}, 1);
  EXPECT_THAT(error_of([&] { watch.next(late()); })->why(), HasSubstr("longer than"));
}

TEST(NoEtcdTest, AServerThatIsSlowOrSilentCostsTheDeadlineAndNoMore) {
  const auto dribble = [](int, int fd) {
    ScriptedServer::read_request(fd);
    ScriptedServer::write(fd, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n");
    for (int i = 0; i < 30; ++i) {
      pollfd closed{fd, POLLIN, 0};
      if (::poll(&closed, 1, 10) > 0) return;
      if (i % 10 == 0) ScriptedServer::write(fd, "{");
    }
  };
  ScriptedServer slow(dribble);
  ScriptedServer silent([](int, int fd) { ScriptedServer::wait_for_close(fd); });
  ScriptedServer hangs_up([](int, int fd) { ScriptedServer::read_request(fd); });
  for (ScriptedServer* server : {&slow, &silent}) {
    const auto begin = Deadline::Clock::now();
    const base::Error error = error_from(*server, shortly());
    EXPECT_EQ(error.code(), ErrorCode::kConnection);
    EXPECT_THAT(error.why(), HasSubstr("stopped or overloaded")) << error.what();
    EXPECT_LT(Deadline::Clock::now() - begin, seconds(20));
  }
  EXPECT_THAT(error_from(hangs_up, shortly()).why(), HasSubstr("closed the connection"));
}

TEST(NoEtcdTest, ABusyEtcdIsAskedAgainAndATokenIsRenewed) {
  const std::string busy = ScriptedServer::reply(
      R"({"message":"etcdserver: no leader","error":"x","code":14})", "503 Service Unavailable");
  const std::string flooded = ScriptedServer::reply(
      R"({"message":"etcdserver: too many requests","code":8})", "429 Too Many Requests");
  const std::string late_answer = ScriptedServer::reply(
      R"({"message":"context deadline exceeded","code":2})", "500 Internal Server Error");
  const std::string stale = ScriptedServer::reply(
      R"({"message":"etcdserver: invalid auth token","code":16})", "401 Unauthorized");
  const std::string token = ScriptedServer::reply(R"({"token":"secret"})");
  const std::string good = ScriptedServer::reply(R"({"header":{"revision":"7"}})");
  std::vector<std::string> log;
  ScriptedServer server([&](int number, int fd) {
    const std::string answers[] = {busy, flooded, late_answer, stale, good};
    for (std::string request; !(request = ScriptedServer::read_request(fd)).empty();) {
      const bool is_login = request.find("/v3/auth/authenticate") != std::string::npos;
      EXPECT_NE(is_login, request.find("Authorization: secret\r\n") != std::string::npos);
      if (is_login) log.push_back("login");
      ScriptedServer::write(fd, is_login ? token : answers[std::min(number, 4)]);
    }
  });
  EtcdOptions options = Client::at({server.endpoint()});
  options.user = "root";
  Client client(options);
  EXPECT_EQ(client->put("k", "v", 0, late()), 7);
  EXPECT_EQ(log.size(), 2u);
  ScriptedServer denies(always(ScriptedServer::reply(
      R"({"message":"etcdserver: permission denied","code":7})", "403 Forbidden")));
  EXPECT_THAT(error_of([&] { Client({denies.endpoint()})->probe(late()); })->remedy(),
              HasSubstr("roles"));
  ScriptedServer full(always(ScriptedServer::reply(
      R"({"message":"etcdserver: mvcc: database space exceeded","code":8})", "429 Too Many")));
  EXPECT_THAT(error_of([&] { Client({full.endpoint()})->probe(late()); })->remedy(),
              HasSubstr("quota"));
}

// It cannot be demanded of the certificate, nor told to the server.
TEST(TlsSessionTest, AHostThatTlsCannotNameIsRefused) {
  try {
    TlsSession::open(EtcdOptions{}, std::string(300, 'a'));
    ADD_FAILURE() << "no error";
  } catch (const base::Error& error) {
    if (error.code() == base::ErrorCode::kUnavailable) GTEST_SKIP() << error.what();
    EXPECT_NE(std::string(error.what()).find("cannot be asked for by that name"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace dtrun::rendezvous
