// The store in etcd: the promises of every store, and what a network and members that fail do to
// it.
#include "dtrun/rendezvous/etcd_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <thread>

#include "etcd/etcd_watch.h"
#include "rendezvous/early_and_late.h"
#include "rendezvous/own_etcd_client.h"
#include "rendezvous/store_promises.h"
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
};

// How many keys etcd itself has there.
std::size_t keys_in_etcd(const std::string& prefix) {
  return OwnEtcdClient(lab->endpoints()).keys(prefix).size();
}

// Between clients and etcd; `loses(request, answer)`: that answer does not come, and the connection
// ends.
class LossyProxy {
 public:
  using Loses = std::function<bool(const std::string& request, const std::string& answer)>;
  explicit LossyProxy(Loses loses)
      : loses_(std::move(loses)), server_([this](int, int fd) {
          connections_.emplace_back([this, own = base::UniqueFd(::dup(fd))] { serve(own.get()); });
        }) {}
  base::HostPort endpoint() const { return server_.endpoint(); }

 private:
  void serve(int fd) {
    const base::HostPort etcd = lab->endpoints()[0];
    const base::UniqueFd upstream =
        base::connect_tcp(etcd.host, *etcd.port, Deadline::after(seconds(60)));
    for (std::string request; !(request = ScriptedServer::read_message(fd)).empty();) {
      ScriptedServer::write(upstream.get(), request);
      const std::string answer = ScriptedServer::read_message(upstream.get());
      if (loses_(request, answer)) break;
      ScriptedServer::write(fd, answer);
    }
    ::shutdown(fd, SHUT_RDWR);
  }
  const Loses loses_;
  std::vector<std::jthread> connections_;
  ScriptedServer server_;
};

TEST_F(EtcdStoreTest, AnswersThatAreLostMakeNothingHappenTwice) {
  std::atomic<int> answers{0};
  LossyProxy proxy([&](const std::string&, const std::string&) { return ++answers % 3 == 0; });
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
    EXPECT_EQ(keys_in_etcd("/lossy/w/"), 1u);
  }
  // What the store had noted for itself goes with it.
  EXPECT_EQ(keys_in_etcd("/lossy/"), 3u);
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
  OwnEtcdClient client(lab->endpoints());
  {
    const auto store = connect_etcd_store(options);
    store->set("k", "v");
    store->queue_push("q", "v");
    EXPECT_EQ(keys_in_etcd("/ttl/"), 3u);
    // As an outage of etcd that is longer than the lease.
    const auto pair = client->range(EtcdKeys::one("/ttl/k/k"), {}, late()).range.list.at(0);
    client->revoke_lease(pair.lease, late());
    EXPECT_EQ(keys_in_etcd("/ttl/"), 0u);
    const auto error = error_of([&] { store->set("k", "v"); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::kPeerFailed);
    EXPECT_THAT(error->what(), HasSubstr("has run out"));
  }
  connect_etcd_store(options)->set("k", "v");
  // Not with the store's end: others may still read it.
  const auto pair = client->range(EtcdKeys::one("/ttl/k/k"), {}, late()).range.list.at(0);
  EXPECT_GT(client->lease_time_to_live(pair.lease, late()), seconds(0));
}

// The only mark at the prefix.
EtcdKeyValue mark_at(OwnEtcdClient& client, const std::string& prefix) {
  const std::vector<EtcdKeyValue> marks = client.keys(prefix + "/w/");
  EXPECT_EQ(marks.size(), 1u);
  return marks.empty() ? EtcdKeyValue() : marks[0];
}

TEST_F(EtcdStoreTest, AClientThatIsKilledLeavesWhatItSetAndNothingElse) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer does not let a forked child of a threaded process go on";
#endif
  EtcdStoreOptions options = options_at("/killed");
  options.marks_ttl = seconds(1);
  const pid_t child = ::fork();
  if (child == 0) {
    connect_etcd_store(options)->set("k", "v");
    const auto store = connect_etcd_store(options);
    store->add("n", 1);
    ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  OwnEtcdClient client(lab->endpoints());
  const auto marks = client->range(EtcdKeys::with_prefix("/killed/w/"), {}, late());
  // The first store has taken its own along.
  EXPECT_LE(marks.range.count, 1);
  if (marks.range.count == 1) {
    EtcdWatch watch(client.etcd, {EtcdKeys::with_prefix("/killed/w/")}, marks.revision + 1);
    const EtcdWatch::News news = watch.next(late());
    ASSERT_EQ(news.events.size(), 1u);
    EXPECT_EQ(news.events[0].kind, EtcdEvent::Kind::deleted);
  }
  EXPECT_EQ(keys_in_etcd("/killed/"), 2u);
  EXPECT_EQ(keys_in_etcd("/killed/k/"), 2u);
}

TEST_F(EtcdStoreTest, AStoreWhoseMarksHaveRunOutGoesOnWithOthers) {
  const EtcdStoreOptions options = options_at("/marks");
  OwnEtcdClient client(lab->endpoints());
  const auto store = connect_etcd_store(options);
  for (int i = 1; i <= 3; ++i) {
    EXPECT_EQ(store->add("n", 1), i);
    const EtcdKeyValue mark = mark_at(client, "/marks");
    EXPECT_NE(mark.lease, 0);
    // As a process that was stopped, or cut off, for longer than that.
    client->revoke_lease(mark.lease, late());
    EXPECT_EQ(keys_in_etcd("/marks/w/"), 0u);
  }
  EXPECT_EQ(store->get("n"), "3");
}

TEST_F(EtcdStoreTest, AChangeWhoseAnswerIsLostTogetherWithTheMarksIsInDoubtAndNotRepeated) {
  std::atomic<bool> lose{false};
  LossyProxy proxy([&](const std::string& request, const std::string&) {
    if (!request.starts_with("POST /v3/kv/txn") || !lose.exchange(false)) return false;
    OwnEtcdClient client(lab->endpoints());
    client->revoke_lease(mark_at(client, "/doubt").lease, late());
    return true;
  });
  EtcdStoreOptions options = options_at("/doubt");
  options.etcd.endpoints = {proxy.endpoint()};
  const auto store = connect_etcd_store(options);
  for (int pushed = 1; pushed < 6; ++pushed) {
    lose = pushed == 1 || pushed == 3;  // the first change of all, and a later one
    const auto error = error_of([&] { store->queue_push("q", std::to_string(pushed)); });
    EXPECT_EQ(error.has_value(), pushed == 1 || pushed == 3);
    EXPECT_EQ(store->queue_len("q"), pushed);
    if (!error) continue;
    EXPECT_EQ(error->code(), ErrorCode::kTimeout);
    EXPECT_THAT(error->what(), HasSubstr("nobody knows whether it was made"));
  }
}

TEST_F(EtcdStoreTest, ALeaseThatHasRunOutBeforeTheFirstChangeIsReplaced) {
  std::atomic<int> granted{0};
  LossyProxy proxy([&](const std::string& request, const std::string& answer) {
    if (!request.starts_with("POST /v3/lease/grant") || ++granted > 1) return false;
    const std::string field = "\"ID\":\"";
    OwnEtcdClient client(lab->endpoints());
    client->revoke_lease(std::stoll(answer.substr(answer.find(field) + field.size())), late());
    return false;
  });
  EtcdStoreOptions options = options_at("/late");
  options.etcd.endpoints = {proxy.endpoint()};
  EXPECT_EQ(connect_etcd_store(options)->add("n", 1), 1);
  EXPECT_EQ(granted, 2);
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
