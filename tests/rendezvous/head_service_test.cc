// The head among strangers, liars and the slow, over real sockets.
#include "dtrun/rendezvous/head_service.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "dtrun/rendezvous/tcp_store_server.h"
#include "rendezvous/full_table.h"
#include "rendezvous/raw_agent.h"
#include "rendezvous/served_head.h"
#include "support/thrown_error.h"

namespace dtrun::rendezvous {
namespace {

using namespace rounds;
using std::chrono::milliseconds;
using testing_support::contains;

TEST(HeadServiceTest, WhatIsNoAgentIsClosedAtOnce) {
  ServedHead head(job_of(1, 1));
  for (const std::string& text :
       {std::string("GET / HTTP/1.1\r\n\r\n"), bytes("16 03 01 02 00 01 00 01 fc 03 03"),
        std::string("SSH-2.0-OpenSSH_9.2\r\n"), bytes("d7 07 00 ff"), kAgentOpening + bytes("ff*4"),
        kAgentOpening + bytes("01 00 01 00"), kAgentOpening + bytes("01 00*3 63"),
        kAgentOpening + frame(Beat{}), kAgentOpening + frame(Done{0})}) {
    RawClient stranger(head.port());
    stranger.send(text);
    char byte;
    while (::recv(stranger.fd(), &byte, 1, 0) > 0) continue;
  }
  EXPECT_EQ(head.ask([](HeadService& h) { return h.state().members.size(); }), 0u);
}

TEST(HeadServiceTest, AnotherVersionIsToldSoInItsOwnWords) {
  ServedHead head(job_of(1, 1));
  RawClient old(head.port());
  const std::string text =
      "this node's dtrun speaks version 2 of the agents' protocol, the head's speaks 7";
  old.send(bytes("d7 02 0a 00*3 00"));
  EXPECT_EQ(hex(old.receive(9 + text.size())), hex(bytes("54 00*3 02 4f 00*3") + text));
  EXPECT_TRUE(old.closed_by_peer());
  head.ask([](HeadService&) { return 0; });  // it says so to its operator a little later
  ASSERT_EQ(head.notes().size(), 1u);
  EXPECT_TRUE(contains(head.notes()[0], "was turned away: " + text)) << head.notes()[0];
}

TEST(HeadServiceTest, AStrangerGetsNothingFromAHeadWithAToken) {
  HeadServiceOptions options;
  options.proof = Token("a token of this very job", "the test");
  ServedHead head(job_of(1, 1), options);
  RawClient none(head.port()), liar(head.port());
  none.send(kAgentOpening);
  std::string told = none.receive(9);
  told = none.receive(static_cast<unsigned char>(told[5]));
  EXPECT_TRUE(contains(told, "this job demands a token")) << told;
  EXPECT_TRUE(none.closed_by_peer());
  liar.send(bytes("d7 07 01 06 'agents' 00*32"));
  EXPECT_EQ(hex(liar.receive(3)), hex(bytes("d7 07 01")));
  liar.receive(32);
  liar.send(std::string(32, '\0') + frame(hello_of("liar", job_of(1, 1))));
  told = liar.receive(9);
  told = liar.receive(static_cast<unsigned char>(told[5]));
  EXPECT_TRUE(contains(told, "is not the head's")) << told;
  EXPECT_TRUE(liar.closed_by_peer());
  const auto notes = head.notes();
  ASSERT_EQ(notes.size(), 1u) << "the second within a second";
  EXPECT_TRUE(contains(notes[0], "was turned away: this job demands a token")) << notes[0];
}

// A munged that is stopped: whoever asks it waits until it goes on.
class HangingRealm final : public Realm {
 public:
  explicit HangingRealm(base::EventLoop& loop) : loop_(loop) {}
  Sealed seal() override {
    hang();
    return {std::string(kSecretBytes, 's'), "credential"};
  }
  Opened open(const std::string&) override {
    hang();
    return {std::string(kSecretBytes, 's'), 1000};
  }
  uid_t own_user() const override { return 1000; }
  void go_on() { going_.set_value(); }

  std::atomic<int> asked = 0;

 private:
  void hang() {
    ++asked;
    loop_.post([] {});  // whoever waits for that looks again
    go_on_.wait();
  }
  base::EventLoop& loop_;
  std::promise<void> going_;
  const std::shared_future<void> go_on_ = going_.get_future().share();
};
class OpeningRealm final : public Realm {
 public:
  Sealed seal() override { return {std::string(kSecretBytes, 's'), "credential"}; }
  Opened open(const std::string&) override { return {std::string(kSecretBytes, 's'), 1000}; }
  uid_t own_user() const override { return 1000; }
};

TEST(HeadServiceTest, ARealmThatHangsHoldsUpNobodyButThoseWhoCome) {
  const auto job = job_of(1, 2);
  TestAgents agents(job);
  const auto realm = std::make_shared<HangingRealm>(agents.loop());
  HeadServiceOptions options;
  options.proof = realm;
  ServedHead head(job, options);
  const TestAgentOptions proved{.proof = std::make_shared<OpeningRealm>(),
                                .after_loss = AfterLoss::kRejoin};
  TestAgent& comes = agents.add("b", head.place(), proved);
  ASSERT_TRUE(agents.until([&] { return realm->asked == 1; }));
  TestAgent& own = agents.add(
      "a", {"127.0.0.1", head.port(), head.ask([](HeadService& h) { return h.own_agent(); })},
      {.after_loss = AfterLoss::kRejoin});
  ASSERT_TRUE(agents.until_round(0, {&own}));
  EXPECT_EQ(own.starts[0].group_world_size, 1);
  realm->go_on();
  ASSERT_TRUE(agents.until_round(1, {&own, &comes}));
  EXPECT_EQ(own.starts.back().group_world_size, 2);
}

TEST(HeadServiceTest, ARealmThatHangsAtAnAgentIsNamedAndDoesNotHoldItUp) {
  const auto job = job_of(1, 2);
  TestAgents agents(job);
  const auto realm = std::make_shared<HangingRealm>(agents.loop());
  HeadServiceOptions options;
  options.proof = std::make_shared<OpeningRealm>();
  ServedHead head(job, options);
  TestAgent& stopped = agents.add("a", head.place(), {.proof = realm});
  ASSERT_TRUE(agents.until([&] { return realm->asked == 1; }));
  stopped.interrupt();
  ASSERT_TRUE(stopped.finished);
  EXPECT_EQ(stopped.finished->kind, Finish::Kind::kStopped);
  TestAgent& waits =
      agents.add("b", head.place(), {.proof = realm, .read_timeout = milliseconds(50)});
  ASSERT_TRUE(agents.until_finished({&waits}));
  EXPECT_TRUE(contains(waits.finished->error->what(),
                       "munge has not opened the head's credential on this node in 50 ms"))
      << waits.finished->error->what();
  // The threads that hang end before the loop that they wake.
  realm->go_on();
  while (realm.use_count() > 1) std::this_thread::yield();
}

TEST(HeadServiceTest, ARoundOpensOnlyWhenItMay) {
  const auto job = job_of(1, 1, 1);
  std::vector<std::pair<int, base::EventLoop::Callback>> waiting;
  auto head = std::make_unique<ServedHead>(
      make_head(job, "job", read_clock()), HeadServiceOptions{},
      [&](int round, base::EventLoop::Callback go) { waiting.emplace_back(round, std::move(go)); });
  TestAgents agents(job);
  TestAgent& agent = agents.add("h1", head->place());
  const auto rounds_waiting = [&] {
    return head->ask([&](HeadService&) { return waiting.size(); });
  };
  ASSERT_TRUE(agents.until([&] { return rounds_waiting() == 1; }));
  EXPECT_EQ(agent.stores, 0);
  head->ask([&](HeadService&) {
    EXPECT_EQ(waiting[0].first, 0);
    waiting[0].second();
    return 0;
  });
  ASSERT_TRUE(agents.until_round(0, {&agent}));
  agent.fail(3);
  ASSERT_TRUE(agents.until([&] { return rounds_waiting() == 2; }));
  EXPECT_EQ(agent.round(), 0);
  head.reset();
  waiting[1].second();  // too late, and not missed
}

TEST(HeadServiceTest, NobodyIsToldTheVerdictBeforeItMayBe) {
  auto job = job_of(2, 2);
  job.close_timeout = milliseconds(1);  // it ends when all are told, not before
  std::vector<std::pair<Close, base::EventLoop::Callback>> judged;
  auto head = std::make_unique<ServedHead>(make_head(job, "job", read_clock()),
                                           HeadServiceOptions{}, nullptr,
                                           [&](const Close& verdict, base::EventLoop::Callback go) {
                                             judged.emplace_back(verdict, std::move(go));
                                           });
  TestAgents agents(job);
  TestAgent& a = agents.add("a", head->place());
  TestAgent& b = agents.add("b", head->place());
  ASSERT_TRUE(agents.until_round(0, {&a, &b}));
  b.fail(3);
  ASSERT_TRUE(agents.until([&] {
    return head->ask([&](HeadService& h) { return judged.size() == 1 && h.state().ended; });
  }));
  EXPECT_TRUE(a.stops.empty() && !a.finished && !b.finished);
  head->ask([&](HeadService&) {
    EXPECT_EQ(judged[0].first.failure.code, 3);
    judged[0].second();
    judged[0].second();  // of no effect
    return 0;
  });
  ASSERT_TRUE(agents.until_finished({&a, &b}));
  EXPECT_EQ(a.finished->failure.code, 3);
  EXPECT_TRUE(head->ended());
  head.reset();
  judged[0].second();  // too late, and not missed
}

TEST(HeadServiceTest, ASilentNewcomerIsClosedAfterItsTime) {
  HeadServiceOptions options;
  options.newcomer_time = milliseconds(20);
  ServedHead head(job_of(2, 2), options);
  RawAgent member(head.port());
  member.join(hello_of("a", job_of(2, 2)));
  RawClient silent(head.port()), halfway(head.port()), wordless(head.port());
  halfway.send(bytes("d7 07 00 06 'age'"));
  wordless.send(kAgentOpening + bytes("40"));
  EXPECT_TRUE(silent.closed_by_peer());
  EXPECT_TRUE(halfway.closed_by_peer());
  EXPECT_EQ(hex(wordless.receive(3)), hex(kHeadAnswer));
  EXPECT_TRUE(wordless.closed_by_peer());
  member.expect_in_step();
}

TEST(HeadServiceTest, AFloodOfConnectionsKeepsNobodyOut) {
  const RoundSettings job = job_of(2, 2);
  HeadServiceOptions options;
  options.max_newcomers = 16;
  ServedHead head(job, options);
  TestAgents agents(job);
  TestAgent& a = agents.add("a", head.place());
  std::vector<RawClient> flood;
  for (int i = 0; i < 300; ++i) flood.emplace_back(head.port());
  EXPECT_TRUE(flood.front().closed_by_peer());
  TestAgent& b = agents.add("b", head.place());
  ASSERT_TRUE(agents.until_round(0, {&a, &b}));
  for (int i = 0; i < 100; ++i) flood.emplace_back(head.port()).send("\xd7");
  a.succeed();
  b.succeed();
  ASSERT_TRUE(agents.until_finished({&a, &b}));
  EXPECT_EQ(a.finished->kind, Finish::Kind::kSucceeded);
}

TEST(HeadServiceTest, WithoutDescriptorsNewcomersMakeRoomForEachOther) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "UBSan opens a pipe to check a pointer, and finds none valid where it cannot";
#endif
  const RoundSettings job = job_of(2, 2);
  ServedHead head(job);
  RawAgent member(head.port());
  member.join(hello_of("a", job, 1));
  FullTable table(3);
  RawAgent first(head.port());
  RawAgent second(head.port());  // its other end takes the place of the first one's
  EXPECT_TRUE(first.closed_by_peer());
  first.close();
  second.join(hello_of("b", job, 2));
  // No newcomer is left to go: it is turned away itself, and the members stay.
  table.leave(1);
  RawClient turned_away(head.port());
  EXPECT_TRUE(turned_away.closed_by_peer());
  second.expect_in_step();
  // Who was refused and stays goes before anybody is turned away.
  table.give(2);
  RawClient refused(head.port());
  refused.send(bytes("d7 02 0a 00*3 00"));
  EXPECT_EQ(refused.receive(9).size(), 9u);
  table.give(1);
  RawClient late(head.port());
  late.send(kAgentOpening);
  EXPECT_EQ(hex(late.receive(kHeadAnswer.size())), hex(kHeadAnswer));
}

TEST(HeadServiceTest, WithoutDescriptorsWhoHasSaidOneByteMakesRoom) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "UBSan opens a pipe to check a pointer, and finds none valid where it cannot";
#endif
  const RoundSettings job = job_of(2, 2);
  ServedHead head(job);
  FullTable table(2);
  RawClient one_byte(head.port());
  one_byte.send("\xd7");
  table.give(1);
  RawAgent agent(head.port());
  EXPECT_TRUE(one_byte.closed_by_peer());
  agent.join(hello_of("a", job, 1));
}

// Anybody may send them, and they are shown on the operator's terminal.
TEST(HeadServiceTest, WhatAStrangerCallsItselfIsFitForATerminal) {
  const RoundSettings job = job_of(2, 2);
  ServedHead head(job);
  RawAgent agent(head.port());
  Hello hello = hello_of("evil\x1b]0;owned\x07\n" + std::string(5000, 'h'), job, 1);
  hello.run_id = "\x1b[2J" + std::string(5000, 'r');
  agent.send(std::string(kAgentOpening) + frame(hello));
  agent.receive(kHeadAnswer.size());
  const std::string told = agent.expect<Refused>().text;
  EXPECT_TRUE(contains(told, "it belongs to job '?[2Jrrr")) << told;
  EXPECT_LT(told.size(), 200u);
  head.ask([](HeadService&) { return 0; });  // the note follows the answer
  const auto notes = head.notes();
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_TRUE(contains(notes[0], "evil?]0;owned??hhh")) << notes[0];
  EXPECT_EQ(notes[0].find_first_of("\x1b\x07\n"), std::string::npos);
  EXPECT_LT(notes[0].size(), 600u);
}

TEST(HeadServiceTest, ALostConnectionIsKnownAtOnceHoweverItEnds) {
  const RoundSettings job = job_of(1, 3);
  for (const bool by_reset : {false, true}) {
    ServedHead head(job);
    RawAgent a(head.port()), b(head.port());
    a.join(hello_of("a", job, 1));
    b.join(hello_of("b", job, 2));
    a.expect<Prepare>();
    a.say(StoreReady{0, "n0", 1});
    EXPECT_EQ(a.expect<Start>().group_world_size, 2);
    b.expect<Start>();  // what is not read makes a reset of the end
    if (by_reset) {
      b.reset();
    } else {
      b.close();
    }
    EXPECT_TRUE(contains(a.expect<Stop>().cause.text, "node 1 (b) is gone"));
    // A reset may come from something on the way: then b lives, and gets its time to notice.
    const Moment fence = head.ask([](HeadService& h) { return fence_of(h.state()); });
    EXPECT_EQ(fence > read_clock() + job.silence_window / 2, by_reset);
  }
}

TEST(HeadServiceTest, ASilentMemberIsLostAfterItsWindow) {
  RoundSettings job = job_of(1, 3);
  job.keep_alive_interval = milliseconds(20);
  job.silence_window = milliseconds(200);
  ServedHead head(job);
  TestAgents agents(job);
  TestAgent& a = agents.add("a", head.place(), {.after_loss = AfterLoss::kRejoin});
  RawAgent silent(head.port());
  silent.join(hello_of("b", job, 99));
  ASSERT_TRUE(
      agents.until([&] { return a.starts.size() >= 1 && a.starts.back().group_world_size == 1; }));
  EXPECT_EQ(a.starts.back().master_address, "n0");
}

TEST(HeadServiceTest, WordsAboutOtherRoundsAreIgnored) {
  const RoundSettings job = job_of(1, 1, 3);
  ServedHead head(job);
  RawAgent a(head.port());
  a.join(hello_of("a", job, 1));
  a.say(StoreReady{5, "x", 5});
  a.expect<Prepare>();
  a.say(StoreReady{0, "n0", 1});
  a.expect<Start>();
  JobFailure failure;
  failure.text = "of another round";
  a.say(Failed{7, failure});
  a.say(Done{1});
  a.say(Stopped{-1});
  a.expect_in_step();
  failure.text = "of this one";
  a.say(Failed{0, failure});
  EXPECT_EQ(a.expect<Stop>().round, 0);
  a.say(Done{1});
  a.say(Stopped{0});
  EXPECT_EQ(a.expect<Prepare>().round, 1);
}

TEST(HeadServiceTest, AMemberThatTalksNonsenseIsLost) {
  const RoundSettings job = job_of(2, 2);
  ServedHead head(job);
  RawAgent a(head.port()), b(head.port());
  a.join(hello_of("a", job, 1));
  b.join(hello_of("b", job, 2));
  a.expect<Prepare>();
  b.send(bytes("ff*4"));
  EXPECT_TRUE(b.closed_by_peer());
  a.expect_in_step();
  EXPECT_EQ(head.ask([](HeadService& h) { return h.state().present; }), 1);
}

TEST(HeadServiceTest, AnAgentThatComesBackTakesThePlaceOfItsOldConnection) {
  const RoundSettings job = job_of(2, 2);
  ServedHead head(job);
  RawAgent old(head.port());
  old.join(hello_of("a", job, 7));
  RawAgent again(head.port());
  again.join(hello_of("a", job, 7));
  EXPECT_TRUE(old.closed_by_peer());
  again.expect_in_step();
}

TEST(HeadServiceTest, AHeadThatStepsDownLeavesItsAgentsAlone) {
  const RoundSettings job = job_of(2, 2);
  ServedHead head(job);
  RawAgent a(head.port());
  a.join(hello_of("a", job, 1));
  head.ask([](HeadService& h) { return h.step_down(), 0; });
  EXPECT_TRUE(a.closed_by_peer());
  a.close();
  EXPECT_TRUE(head.ended());
}

TEST(HeadServiceTest, ItSharesAPortWithAStore) {
  const RoundSettings job = job_of(1, 1);
  base::EventLoop loop;
  bool ended = false;
  HeadService head(loop, make_head(job, "job", read_clock()), {},
                   {[](const Note&) {},
                    [&] {
                      ended = true;
                      loop.stop();
                    }});
  TcpStoreServerOptions options;
  options.on_agent = [&](base::UniqueFd socket, const std::string& first_bytes) {
    head.adopt(std::move(socket), first_bytes);
  };
  TcpStoreServer server(loop, base::listen_tcp("127.0.0.1", 0), options);
  std::thread serving([&] { loop.run(); });
  try {
    RawClient client(server.port());
    client.handshake();
    RawAgent agent(server.port());
    agent.join(hello_of("a", job, 1));
    agent.expect<Prepare>();
    client.expect_in_step();
    agent.say(Leaving{});
    EXPECT_EQ(agent.expect<Close>().outcome, Close::Outcome::kFailed);
  } catch (const base::Error& error) {
    ADD_FAILURE() << error.what();
    loop.stop();
  }
  serving.join();
  EXPECT_TRUE(ended);
}

}  // namespace
}  // namespace dtrun::rendezvous
