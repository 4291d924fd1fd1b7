#include "dtrun/rendezvous/tcp_store.h"

#include <poll.h>

#include <future>
#include <random>

#include "rendezvous/early_and_late.h"
#include "rendezvous/scripted_store.h"
#include "rendezvous/served_store.h"
#include "rendezvous/store_promises.h"
#include "store/store_connection.h"
#include "support/own_port.h"
#include "support/thrown_error.h"

namespace dtrun::rendezvous {
namespace {

using base::Deadline;
using base::ErrorCode;
using testing_support::contains;
using testing_support::error_of;

std::shared_ptr<Store> served() {
  struct Both {
    ServedStore server;
    std::shared_ptr<Store> client = server.client();
  };
  const auto both = std::make_shared<Both>();
  return {both, both->client.get()};
}

INSTANTIATE_TEST_SUITE_P(Tcp, StorePromises, testing::Values(StoreFactory{"Served", served}),
                         name_of);

TEST(TcpStoreTest, TheClientSendsPyTorchsGoldenBytes) {
  const ScriptedServer server({[](RawClient& peer) {
    greet(peer);
    expect_request(peer, "01 | 02 0*7 2f 6b | 01 0*7 76", "");
    expect_request(peer, "05 | 01 0*7 | 02 0*7 2f 6b", "00");
    expect_request(peer, "03 | 02 0*7 2f 6b", "01 0*7 76");
    expect_request(peer, "06 | 01 0*7 | 02 0*7 2f 6b", "00");
    expect_request(peer, "03 | 02 0*7 2f 6b", "01 0*7 76");
    expect_request(peer, "04 | 02 0*7 2f 6e | f9 ff*7", "fe ff*7");
    expect_request(peer, "02 | 02 0*7 '/q' | 01 0*7 'x' | 01 0*7 'y'", "01 0*7 'x'");
    expect_request(peer, "06 | 01 0*7 | 02 0*7 '/z'", "");
    expect_request(peer, "0c", "00 01");
    expect_request(peer, "08 | 02 0*7 '/k'", "01 0*7");
    expect_request(peer, "07", "05 0*7");
    expect_request(peer, "11", "02 0*7 | 05 0*7 'init/' | 02 0*7 '/k'");
    expect_request(peer, "0b | 01 0*7 | 02 0*7 '/a' 0*8", "");
  }});
  const auto store = connect_tcp_store(server.options());
  store->set("k", "v");
  EXPECT_EQ(store->get("k", late()), "v");
  EXPECT_EQ(store->get("k", late()), "v");
  EXPECT_EQ(store->add("n", -7), -2);
  EXPECT_EQ(store->compare_set("q", "x", "y"), "x");
  store->wait({"z"}, soon());  // the release crosses the cancel: it counts
  EXPECT_TRUE(store->delete_key("k"));
  EXPECT_EQ(store->num_keys(), 5);
  EXPECT_EQ(store->list_keys(), std::vector<std::string>{"k"});
  store->multi_set({{"a", ""}});
}

TEST(TcpStoreTest, TheHandshakeIsTriedAgainAsAWholeAndWithoutPingForOldServers) {
  const ScriptedServer server({
      [](RawClient& peer) { peer.close(); },
      [](RawClient& peer) {
        EXPECT_EQ(hex(peer.receive(14)), hex(bytes("00 ce f7 85 3c | 05 0*8")));
        peer.send(bytes("00"));
        expect_request(peer, "07", "02 0*7");
      },
  });
  EXPECT_EQ(connect_tcp_store(server.options())->num_keys(), 2);
}

TEST(TcpStoreTest, AnotherProgramOnThePortIsNamedAsNoStore) {
  const ScriptedServer server({[](RawClient& peer) {
    peer.send("SSH-2.0-");
    peer.closed_by_peer();  // after our own close the banner might be lost with a reset
  }});
  const auto error = error_of([&] { connect_tcp_store(server.options()); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::kProtocol);
  EXPECT_TRUE(contains(error->summary(), "is no store"));
}

TEST(TcpStoreTest, AnAnswerOfAbsurdLengthIsRefusedBeforeMemoryIsTaken) {
  const ScriptedServer server({[](RawClient& peer) {
    greet(peer);
    expect_request(peer, "02 | 02 0*7 '/k' | 0*8 | 0*8", "ff*7 7f");
  }});
  const auto store = connect_tcp_store(server.options());
  const auto error = error_of([&] { store->compare_set("k", "", ""); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::kProtocol);
  EXPECT_TRUE(contains(error->summary(), "9223372036854775807 bytes"));
}

TEST(TcpStoreTest, NobodyListeningIsAnErrorThatTellsWhereAndHowLong) {
  const testing_support::OwnPort own_port;  // at which nobody listens
  const std::uint16_t port = own_port.number();
  const auto error = error_of([&] {
    connect_tcp_store({"127.0.0.1", port, std::chrono::milliseconds(50)});
  });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::kConnection);
  EXPECT_TRUE(contains(error->summary(),
                       "cannot reach the store at 127.0.0.1:" + std::to_string(port) + " for "));
  EXPECT_EQ(error->why(), "Connection refused");
}

TEST(TcpStoreTest, AServerThatAcceptsAndSaysNothingIsDescribedSo) {
  const base::UniqueFd listener = base::listen_tcp("127.0.0.1", 0);
  const auto error = error_of([&] {
    connect_tcp_store(
        {"127.0.0.1", base::local_port(listener.get()), std::chrono::milliseconds(50)});
  });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::kConnection);
  EXPECT_EQ(error->why(), "it accepts connections, but does not answer");
}

TEST(TcpStoreTest, ALostServerEndsABlockedWaitWithItsName) {
  ServedStore server;
  // The time for a new connection later is at most that of the first.
  const auto store =
      connect_tcp_store({"127.0.0.1", server.port(), std::chrono::milliseconds(500)});
  const std::string name = "127.0.0.1:" + std::to_string(server.port());
  std::thread waiter([&] {
    const auto error = error_of([&] { store->wait({"k"}, late()); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::kConnection);
    EXPECT_EQ(error->summary(), "lost the store at " + name);
    EXPECT_NE(error->remedy(), "");
  });
  // The waiter counts itself by nothing that we could see; a stop at any time must end it.
  store->set("other", "");
  EXPECT_TRUE(store->check({"other"}));
  server.stop();
  waiter.join();
  EXPECT_EQ(error_of([&] { store->num_keys(); })->code(), ErrorCode::kConnection);
}

TEST(TcpStoreTest, AStoreThatStandsStillIsToldFromAKeyThatNobodySets) {
  const ScriptedServer server({[](RawClient& peer) {
    greet(peer);
    // WAIT and CANCEL_WAIT come and are not answered; then the client drops the connection.
    peer.receive(1 + 8 + 8 + 2 + 1);
    EXPECT_TRUE(peer.closed_by_peer());
  }});
  const auto store = connect_tcp_store(server.options());
  const auto error = error_of([&] { store->wait({"k"}, soon()); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::kTimeout);
  EXPECT_TRUE(error->summary().starts_with("wait timeout after ")) << error->what();
  EXPECT_TRUE(error->summary().ends_with("s, keys: /k")) << error->what();
  EXPECT_TRUE(contains(error->why(), "does not answer either"));
}

TEST(TcpStoreTest, OperationsThatAServerDoesNotKnowAreNamed) {
  const auto closes_on = [](const std::string& request) {
    return [request](RawClient& peer) {
      greet(peer);
      peer.receive(bytes(request).size());
    };
  };
  const auto counts = [](RawClient& peer) {
    greet(peer);
    expect_request(peer, "07", "01 0*7");
  };
  const ScriptedServer server({closes_on("11"), counts});
  const auto store = connect_tcp_store(server.options());
  const auto listed = error_of([&] { store->list_keys(); });
  ASSERT_TRUE(listed);
  EXPECT_EQ(listed->code(), ErrorCode::kUnavailable);
  EXPECT_TRUE(contains(listed->summary(), "does not know LIST_KEYS"));

  const ScriptedServer old_server({closes_on("10 | 01 0*7 '/'"), counts});
  const auto old_store = connect_tcp_store(old_server.options());
  const auto pushed = error_of([&] { old_store->queue_push("q", "v"); });
  ASSERT_TRUE(pushed);
  EXPECT_TRUE(contains(pushed->summary(), "does not know QUEUE_LEN"));
}

TEST(TcpStoreTest, AServerThatIsGoneIsNotTakenForAnOldOneNorItsSilenceForABadNumber) {
  const auto lost_on = [](const std::string& request,
                          const std::function<void(Store&)>& operation) {
    const ScriptedServer server({[&](RawClient& peer) {
      greet(peer);
      peer.receive(bytes(request).size());
    }});
    TcpStoreOptions options = server.options();
    options.connect_timeout = std::chrono::milliseconds(300);
    const auto store = connect_tcp_store(options);
    const auto error = error_of([&] { operation(*store); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::kConnection);
    EXPECT_TRUE(error->summary().starts_with("lost the store at 127.0.0.1:")) << error->what();
  };
  lost_on("11", [](Store& store) { store.list_keys(); });
  lost_on("04 | 02 0*7 '/n' | 01 0*7", [](Store& store) { store.add("n", 1); });
}

TEST(TcpStoreTest, AnOldServerThatAnswersTheSecondProbeWronglyIsNoStore) {
  const ScriptedServer server({
      [](RawClient& peer) { peer.close(); },
      [](RawClient& peer) {
        peer.receive(14);
        peer.send(bytes("01"));
      },
  });
  const auto error = error_of([&] { connect_tcp_store(server.options()); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::kProtocol);
}

TEST(TcpStoreTest, AThreadDoesNotWaitLongerThanItsDeadlineForAnotherOnesAnswer) {
  std::promise<void> asked, done;
  const ScriptedServer server({[&](RawClient& peer) {
    greet(peer);
    peer.receive(1);  // NUM_KEYS, never answered
    asked.set_value();
    done.get_future().wait();
  }});
  const auto store = connect_tcp_store(server.options());
  std::thread other([&] {
    // With its connection another thread's question ends too; the store does not come back.
    EXPECT_EQ(error_of([&] { store->num_keys(); })->code(), ErrorCode::kConnection);
  });
  asked.get_future().wait();
  const auto error = error_of([&] { store->get("k", soon()); });
  done.set_value();
  other.join();
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::kTimeout);
  EXPECT_TRUE(contains(error->why(), "another thread"));
}

TEST(TcpStoreTest, AStoreThatIsLostEndsTheOperationsOfAllThreadsAtOnce) {
  ServedStore server;
  const auto store = server.client();
  const auto begin = Deadline::Clock::now();
  std::vector<std::thread> threads;
  std::atomic<int> begun{0};
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      const auto error = error_of([&] {
        while (true) {
          store->add("n", 1, late());
          ++begun;
        }
      });
      EXPECT_EQ(error->code(), ErrorCode::kConnection) << error->what();
    });
  while (begun < 100) std::this_thread::yield();
  server.stop();
  for (std::thread& thread : threads) thread.join();
  EXPECT_LT(Deadline::Clock::now() - begin, std::chrono::seconds(30));
}

TEST(TcpStoreTest, AStoreThatStandsStillForAWhileIsWaitedForByThoseWhoNeedAnotherConnectionToo) {
  std::promise<void> asked;
  const ScriptedServer server({[&](RawClient& peer) {
                                 greet(peer);
                                 peer.receive(1 + 8 + 8 + 2);  // WAIT
                                 asked.set_value();
                                 ::poll(nullptr, 0, 800);  // as a process that is stopped
                                 peer.send(bytes("00"));
                               },
                               [](RawClient& peer) {
                                 greet(peer);
                                 expect_request(peer, "04 | 02 0*7 '/n' | 01 0*7", "01 0*7");
                               }});
  TcpStoreOptions options = server.options();
  options.connect_timeout = std::chrono::milliseconds(400);
  const auto store = connect_tcp_store(options);
  std::thread waiter([&] { store->wait({"k"}, late()); });
  asked.get_future().wait();
  EXPECT_EQ(store->add("n", 1, late()), 1);
  waiter.join();
}

TEST(TcpStoreTest, AStoreThatDoesNotAnswerAnotherConnectionIsATimeoutAtTheDeadline) {
  std::promise<void> asked, done;
  const ScriptedServer server({[&](RawClient& peer) {
    greet(peer);
    peer.receive(1 + 8 + 8 + 2);  // WAIT
    asked.set_value();
    done.get_future().wait();
    peer.send(bytes("00"));
  }});
  const auto store = connect_tcp_store(server.options());
  std::thread waiter([&] { store->wait({"k"}, late()); });
  asked.get_future().wait();
  const auto error = error_of([&] { store->add("n", 1, soon()); });
  done.set_value();
  waiter.join();
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::kTimeout) << error->what();
  EXPECT_TRUE(error->summary().ends_with("s, keys: /n")) << error->what();
}

TEST(TcpStoreTest, AStoreThatTakesNoRequestsEndsASendAtItsDeadline) {
  std::promise<void> done;
  const ScriptedServer server({[&](RawClient& peer) {
    greet(peer);
    done.get_future().wait();
  }});
  const auto connection = StoreConnection::open(server.options(), RawClient::limit());
  const auto error = error_of([&] { connection->send(std::string(64 << 20, 'x'), soon()); });
  done.set_value();
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::kTimeout);
  EXPECT_TRUE(contains(error->summary(), "takes no requests"));
}

TEST(TcpStoreTest, AnAnswerThatDoesNotComeIsAnErrorThatNamesTheKeyTheStoreAndTheTime) {
  std::promise<void> done;
  const ScriptedServer server({[&](RawClient& peer) {
    greet(peer);
    done.get_future().wait();
  }});
  const auto store = connect_tcp_store(server.options());
  const auto error = error_of([&] { store->add("n", 1, soon()); });
  done.set_value();
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::kTimeout);
  EXPECT_TRUE(error->summary().starts_with("add timeout after 1")) << error->what();
  EXPECT_TRUE(error->summary().ends_with("s, keys: /n")) << error->what();
  EXPECT_TRUE(contains(error->why(), "the store at 127.0.0.1:")) << error->what();
}

TEST(TcpStoreTest, KeysAndValuesThatAServerWouldCloseOnAreRefusedHere) {
  const ServedStore server;
  const auto store = server.client();
  const std::string long_key(8 << 10, 'k');
  const auto key_error = error_of([&] { store->set(long_key, ""); });
  ASSERT_TRUE(key_error);
  EXPECT_EQ(key_error->code(), ErrorCode::kInvalidArgument);
  const auto value_error = error_of([&] { store->set("k", std::string((8 << 20) + 1, 'v')); });
  ASSERT_TRUE(value_error);
  EXPECT_TRUE(contains(value_error->summary(), "for the key k"));
  const std::string longest_key((8 << 10) - 1, 'k'), longest_value(8 << 20, 'v');
  store->set(longest_key, longest_value);
  EXPECT_EQ(store->get(longest_key, late()), longest_value);
}

TEST(TcpStoreTest, ManyMoreKeysThanOneRequestHoldsAreServed) {
  const ServedStore server;
  const auto store = server.client();
  std::vector<std::pair<std::string, std::string>> pairs;
  std::vector<std::string> keys;
  for (int i = 0; i < 100000; ++i) {
    keys.push_back("key" + std::to_string(i));
    pairs.emplace_back(keys.back(), std::to_string(i));
  }
  store->multi_set(pairs);
  EXPECT_TRUE(store->check(keys));
  const auto values = store->multi_get(keys, late());
  EXPECT_EQ(values.front(), "0");
  EXPECT_EQ(values.back(), "99999");
  keys.push_back("absent");
  EXPECT_FALSE(store->check(keys));
  const auto error = error_of([&] { store->wait(keys, soon()); });
  ASSERT_TRUE(error);
  EXPECT_TRUE(contains(error->summary(), " more"));
  EXPECT_EQ(store->list_keys().size(), 100000u);
}

TEST(TcpStoreTest, AnExpiredDeadlineStillSeesWhatIsThere) {
  const ServedStore server;
  const auto store = server.client();
  const Deadline past = Deadline::after(std::chrono::seconds(-1));
  store->set("k", "v");
  EXPECT_EQ(store->get("k", past), "v");
  EXPECT_EQ(error_of([&] { store->get("none", past); })->code(), ErrorCode::kTimeout);
}

TEST(TcpStoreTest, AThreadSeesItsOwnWritesWhateverTheOthersWaitFor) {
  const ServedStore server;
  const auto store = server.client();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      const std::string mine = "mine" + std::to_string(t);
      for (int i = 0; i < 100; ++i) {
        store->set(mine, std::to_string(i));
        EXPECT_EQ(store->try_get(mine), std::to_string(i));
        // Each round waits for all others.
        store->barrier("round" + std::to_string(i), 4, late());
        EXPECT_EQ(store->get(mine, late()), std::to_string(i));
      }
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(TcpStoreTest, TwoHundredClientsAtOnceAreServed) {
  const ServedStore server;
  std::vector<std::thread> threads;
  std::atomic<std::int64_t> largest{0};
  for (int t = 0; t < 200; ++t)
    threads.emplace_back([&, t] {
      const auto store = server.client();
      const std::string mine = std::to_string(t);
      store->set(mine, "of " + mine);
      for (int i = 0; i < 20; ++i) {
        const std::int64_t count = store->add("count", 1);
        if (count == 4000) largest = count;
        EXPECT_EQ(store->get(mine, late()), "of " + mine);
      }
      EXPECT_EQ(store->get(std::to_string((t + 1) % 200), late()),
                "of " + std::to_string((t + 1) % 200));
      store->barrier("end", 200, late());
      EXPECT_EQ(store->get("count", late()), "4000");
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(largest.load(), 4000);
}

// Waits that time out just when the key comes are the hard case: one reply too many or too few
// and the connection is out of step for good.
TEST(TcpStoreTest, WaitsThatEndJustWhenTheKeyComesKeepTheConnectionInStep) {
  const ServedStore server;
  std::vector<std::thread> threads;
  std::atomic<int> timeouts{0}, hits{0};
  for (unsigned seed = 1; seed <= 8; ++seed)
    threads.emplace_back([&, seed] {
      std::mt19937 random(seed);
      auto store = server.client();
      for (int i = 0; i < 150; ++i) {
        const std::string key = "k" + std::to_string(i);
        const auto pause = Deadline::after(std::chrono::microseconds(random() % 800));
        try {
          store->wait({key, "k" + std::to_string(i + 1)}, pause);
          ++hits;
        } catch (const base::Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::kTimeout) << error.what();
          ++timeouts;
        }
        store->set(key, key);
        EXPECT_EQ(store->get(key, late()), key);
        if (random() % 20 == 0) store = server.client();
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(timeouts.load(), 0);
  EXPECT_EQ(server.client()->num_keys(), 150);
}

}  // namespace
}  // namespace dtrun::rendezvous
