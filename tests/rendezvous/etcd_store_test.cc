// The store in etcd: the promises of every store, and what a network and members that fail do to
// it.
#include "dtrun/rendezvous/etcd_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <thread>

#include "etcd_client.h"
#include "rendezvous/store_promises.h"
#include "support/etcd_lab.h"
#include "support/scripted_server.h"

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

// One etcd for all tests of the program.
std::unique_ptr<EtcdLab> lab;
class LabEnvironment : public testing::Environment {
  void SetUp() override { lab = std::make_unique<EtcdLab>(1); }
  void TearDown() override { lab.reset(); }
};
const auto* const kEnvironment = testing::AddGlobalTestEnvironment(new LabEnvironment);

EtcdStoreOptions options_at(const std::string& prefix) {
  EtcdStoreOptions options;
  options.etcd.endpoints = lab->endpoints();
  options.prefix = prefix;
  return options;
}

std::shared_ptr<Store> fresh_store() {
  static int made = 0;
  if (!lab->reason().empty()) return nullptr;
  return connect_etcd_store(options_at("/promises/" + std::to_string(++made)));
}

INSTANTIATE_TEST_SUITE_P(Etcd, StorePromises, testing::Values(StoreFactory{"Etcd", fresh_store}),
                         name_of);

class EtcdStoreTest : public testing::Test {
 protected:
  void SetUp() override { REQUIRE_ETCD(*lab); }
  static Deadline late() { return Deadline::after(seconds(60)); }
};

// How many keys etcd itself has there.
std::int64_t keys_in_etcd(const std::string& prefix) {
  const Interrupt interrupt;
  const EtcdOptions options = options_at("").etcd;
  EtcdClient client(options, interrupt);
  return client.range(EtcdKeys::with_prefix(prefix), {}, Deadline::after(seconds(60))).range.count;
}

// Between a client and etcd: of every three answers one is lost.
class LossyProxy {
 public:
  LossyProxy() : server_([this](int, int fd) { serve(fd); }) {}
  base::HostPort endpoint() const { return server_.endpoint(); }

 private:
  void serve(int fd) {
    const base::HostPort etcd = lab->endpoints()[0];
    const base::UniqueFd upstream =
        base::connect_tcp(etcd.host, *etcd.port, Deadline::after(seconds(60)));
    for (std::string request; !(request = ScriptedServer::read_message(fd)).empty();) {
      ScriptedServer::write(upstream.get(), request);
      const std::string answer = ScriptedServer::read_message(upstream.get());
      if (++answers_ % 3 == 0) return;
      ScriptedServer::write(fd, answer);
    }
  }
  int answers_ = 0;
  ScriptedServer server_;
};

TEST_F(EtcdStoreTest, AnswersThatAreLostMakeNothingHappenTwice) {
  LossyProxy proxy;
  EtcdStoreOptions options = options_at("/lossy");
  options.etcd.endpoints = {proxy.endpoint()};
  {
    const auto store = connect_etcd_store(options);
    std::string text;
    for (int i = 1; i <= 10; ++i) {
      EXPECT_EQ(store->add("n", 1), i);
      store->append("text", std::to_string(i));
      text += std::to_string(i);
      store->queue_push("q", std::to_string(i));
      EXPECT_EQ(store->compare_set("c", i == 1 ? "" : std::to_string(i - 1), std::to_string(i)),
                std::to_string(i));
      store->set("gone", "");
      EXPECT_TRUE(store->delete_key("gone"));
    }
    EXPECT_EQ(store->get("text"), text);
    for (int i = 1; i <= 10; ++i) EXPECT_EQ(store->queue_pop("q"), std::to_string(i));
    EXPECT_EQ(store->queue_len("q"), 0);
    EXPECT_EQ(keys_in_etcd("/lossy/w/"), 1);
  }
  // What the store had noted for itself goes with it.
  EXPECT_EQ(keys_in_etcd("/lossy/"), 3);
}

TEST_F(EtcdStoreTest, ManyAtOnceCountRightAndLongListsGoInPieces) {
  const auto store = connect_etcd_store(options_at("/many"));
  const auto other = connect_etcd_store(options_at("/many"));
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i)
    threads.emplace_back([&, i] {
      for (int j = 0; j < 20; ++j) (i % 2 == 0 ? store : other)->add("n", 1);
    });
  Store::Pairs pairs{{"k0", "first"}};
  Store::Keys keys;
  for (int i = 0; i < 250; ++i) {
    pairs.emplace_back("k" + std::to_string(i), std::string(9000, 'v'));
    keys.push_back(pairs.back().first);
  }
  // 250 keys are more than are watched one by one.
  std::thread waiter([&] { other->wait(keys); });
  store->multi_set(pairs);
  waiter.join();
  EXPECT_EQ(other->multi_get(keys), Store::Keys(250, std::string(9000, 'v')));
  EXPECT_TRUE(other->check(keys));
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(store->get("n"), "120");
  EXPECT_EQ(store->list_keys().size(), 251u);
  EXPECT_EQ(store->num_keys(), 251);
}

TEST_F(EtcdStoreTest, AWaitSeesAKeyThatIsDeletedAtOnceAndABarrierACounterThatIsSetBack) {
  const auto store = connect_etcd_store(options_at("/edge"));
  const auto other = connect_etcd_store(options_at("/edge"));
  std::thread waiter([&] { store->wait({"a", "b"}, late()); });
  std::thread barrier([&] { store->barrier("all", 2, late()); });
  other->wait({"all"});
  other->barrier("all", 2);
  other->set("all", "0");
  // The waiter may begin at any time: until it has seen both.
  std::atomic<bool> done{false};
  std::thread setter([&] {
    while (!done) {
      other->set("a", "");
      other->delete_key("a");
      other->set("b", "");
      other->delete_key("b");
    }
  });
  waiter.join();
  done = true;
  setter.join();
  barrier.join();
}

TEST_F(EtcdStoreTest, WaitsGoOnWhenEtcdForgetsRevisionsOrRestarts) {
  const auto store = connect_etcd_store(options_at("/restart"));
  std::thread waiter([&] { store->wait({"k"}, late()); });
  std::thread barrier([&] { store->barrier("all", 2, late()); });
  const auto other = connect_etcd_store(options_at("/restart"));
  other->wait({"all"}, late());
  lab->signal("kill", 1);
  std::thread starter([&] { lab->start(); });
  other->set("k", "", late());
  other->barrier("all", 2, late());
  waiter.join();
  barrier.join();
  starter.join();
}

TEST_F(EtcdStoreTest, WithATimeToLiveTheKeysGoAfterTheProcess) {
  EtcdStoreOptions options = options_at("/ttl");
  options.ttl = seconds(5);
  const Interrupt interrupt;
  EtcdClient client(options.etcd, interrupt);
  {
    const auto store = connect_etcd_store(options);
    store->set("k", "v");
    store->queue_push("q", "v");
    EXPECT_EQ(keys_in_etcd("/ttl/"), 3);
    // As an outage of etcd that is longer than the lease.
    const auto pair = client.range(EtcdKeys::one("/ttl/k/k"), {}, late()).range.list.at(0);
    client.revoke_lease(pair.lease, late());
    EXPECT_EQ(keys_in_etcd("/ttl/"), 0);
    const auto error = error_of([&] { store->set("k", "v"); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::kPeerFailed);
    EXPECT_THAT(error->what(), HasSubstr("has run out"));
  }
  connect_etcd_store(options)->set("k", "v");
  // Not with the store's end: others may still read it.
  const auto pair = client.range(EtcdKeys::one("/ttl/k/k"), {}, late()).range.list.at(0);
  EXPECT_GT(client.lease_time_to_live(pair.lease, late()), seconds(0));
}

TEST_F(EtcdStoreTest, AnEtcdThatIsStoppedCostsTheDeadlineAndIsNamed) {
  const auto store = connect_etcd_store(options_at("/stopped"));
  lab->signal("stop", 1);
  const auto write = error_of([&] { store->add("n", 1, Deadline::after(milliseconds(100))); });
  lab->signal("cont", 1);
  ASSERT_TRUE(write);
  EXPECT_EQ(write->code(), ErrorCode::kTimeout);
  EXPECT_THAT(write->summary(), HasSubstr("add timeout after "));
  EXPECT_THAT(write->why(), HasSubstr(lab->endpoints()[0].to_string()));
  // Whether it happened nobody knew; now it is known.
  const std::int64_t sum = store->add("n", 1);
  EXPECT_TRUE(sum == 1 || sum == 2) << sum;
  EXPECT_EQ(store->get("n"), std::to_string(sum));
}

TEST_F(EtcdStoreTest, AnAnswerThatLacksAPartIsAnError) {
  ScriptedServer server([](int, int fd) {
    while (!ScriptedServer::read_request(fd).empty())
      ScriptedServer::write(fd, ScriptedServer::reply(R"({"header":{"revision":"1"}})"));
  });
  EtcdStoreOptions options;
  options.etcd.endpoints = {server.endpoint()};
  const auto store = connect_etcd_store(options);
  for (const auto& operation : std::vector<std::function<void()>>{
           [&] { store->set("k", "v"); }, [&] { store->get("k"); }, [&] { store->queue_pop("k"); }})
    EXPECT_EQ(error_of(operation)->code(), ErrorCode::kProtocol);
}

TEST_F(EtcdStoreTest, AStoreWithoutAnEtcdIsRefused) {
  EXPECT_EQ(error_of([] { connect_etcd_store({}); })->code(), ErrorCode::kInvalidArgument);
  EtcdStoreOptions options = options_at("/none");
  options.etcd.endpoints = {{"127.0.0.1", 1}};
  options.connect_timeout = milliseconds(50);
  const auto error = error_of([&] { connect_etcd_store(options); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::kConnection);
  EXPECT_THAT(error->what(), HasSubstr("127.0.0.1:1"));
}

}  // namespace
}  // namespace dtrun::rendezvous
