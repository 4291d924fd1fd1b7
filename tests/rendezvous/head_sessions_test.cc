// What the head does with bytes, without sockets.
#include "rounds/head_sessions.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "rendezvous/raw_agent.h"
#include "rendezvous/served_head.h"
#include "support/thrown_error.h"

namespace dtrun::rendezvous {
namespace {

using namespace rounds;
using std::chrono::milliseconds;
using testing_support::contains;

constexpr Moment kStart = std::chrono::hours(1);

HeadSessions head_of(const RoundSettings& job, const HeadSessions::Limits& limits = {}) {
  return HeadSessions(make_head(job, "job", kStart), {}, limits,
                      [](MemberId) { return std::string("10.0.0.7"); });
}

std::string taken_output(HeadSessions& head, MemberId id) {
  const std::string output(head.find(id)->unsent());
  head.find(id)->drop_unsent();
  return output;
}

// As HeadService does where rounds may open at once.
void receive(HeadSessions& head, MemberId id, std::string_view bytes) {
  head.receive(id, bytes, kStart);
  for (const auto& [to, prepare] : head.take_effects().opening) head.open_round(to, prepare);
}

// What the head says to an agent of a job of one, to its start.
std::string head_says(const RoundSettings& job) {
  std::string output = kHeadAnswer;
  for (const HeadMessage& message :
       {HeadMessage(Accepted{job.keep_alive_interval, job.silence_window}), HeadMessage(Prepare{0}),
        HeadMessage(Start{0, 0, 1, 0, 1, 0, 1, 0, "10.0.0.7", 29500})})
    encode(message, output);
  return output;
}

TEST(HeadSessionsTest, HoweverItsInputIsCutItSaysTheSame) {
  const RoundSettings job = job_of(1, 1);
  const std::string hello = kAgentOpening + frame(hello_of("a", job));
  const std::string input = hello + frame(StoreReady{0, "", 29500});
  for (std::size_t cut = 0; cut <= input.size(); ++cut) {
    HeadSessions head = head_of(job);
    const MemberId id = head.open({}, kStart);
    // An agent has a store only once it was asked for one.
    const std::size_t first = std::min(cut, hello.size()), second = std::max(cut, hello.size());
    receive(head, id, std::string_view(input).substr(0, first));
    receive(head, id, std::string_view(input).substr(first, second - first));
    receive(head, id, std::string_view(input).substr(second));
    EXPECT_EQ(hex(taken_output(head, id)), hex(head_says(job))) << cut;
  }
  HeadSessions head = head_of(job);
  const MemberId id = head.open({}, kStart);
  for (const char& byte : input) receive(head, id, {&byte, 1});
  EXPECT_EQ(hex(taken_output(head, id)), hex(head_says(job)));
}

// The head may still be writing down that the round begins.
TEST(HeadSessionsTest, AStoreThatNobodyHasAskedForBeginsNoRound) {
  const RoundSettings job = job_of(1, 1);
  HeadSessions head = head_of(job);
  const MemberId id = head.open({}, kStart);
  const std::string ready = frame(StoreReady{0, "", 29500});
  head.receive(id, kAgentOpening + frame(hello_of("a", job)) + ready, kStart);
  const HeadEffects effects = head.take_effects();
  ASSERT_EQ(effects.opening.size(), 1u);
  EXPECT_EQ(head.head().phase, HeadPhase::kPreparing);
  head.open_round(id, effects.opening[0].second);
  EXPECT_EQ(head.head().phase, HeadPhase::kPreparing);
  head.receive(id, ready, kStart);
  EXPECT_EQ(head.head().phase, HeadPhase::kRunning);
}

TEST(HeadSessionsTest, AMemberThatReadsNothingIsLost) {
  const RoundSettings job = job_of(2, 2);
  HeadSessions::Limits limits;
  limits.unsent_bytes = 1000;
  HeadSessions head = head_of(job, limits);
  const MemberId deaf = head.open({}, kStart);
  head.receive(deaf, kAgentOpening + frame(hello_of("deaf", job)), kStart);
  std::string beats;
  for (int i = 0; i < 300; ++i) beats += frame(Beat{});
  head.receive(deaf, beats, kStart);
  EXPECT_LE(head.deadline(), kStart);
  head.take_effects();
  head.tick(kStart);
  const HeadEffects effects = head.take_effects();
  ASSERT_EQ(effects.parted.size(), 1u);
  EXPECT_EQ(effects.parted[0], std::pair(deaf, Parting::kAtOnce));
  EXPECT_TRUE(contains(effects.notes.at(0).text, "does not read")) << effects.notes[0].text;
  EXPECT_TRUE(head.head().members.empty());
  EXPECT_GT(head.deadline(), kStart);
}

TEST(HeadSessionsTest, NewcomersHaveTheirTimeAndTheirNumber) {
  HeadSessions::Limits limits;
  limits.newcomers = 2;
  limits.newcomer_time = milliseconds(100);
  HeadSessions head = head_of(job_of(2, 2), limits);
  const MemberId first = head.open({}, kStart);
  const MemberId second = head.open({}, kStart + milliseconds(1));
  EXPECT_EQ(head.deadline(), kStart + milliseconds(100));
  head.open({}, kStart + milliseconds(2));
  HeadEffects effects = head.take_effects();
  ASSERT_EQ(effects.parted.size(), 1u);
  EXPECT_EQ(effects.parted[0].first, first);
  head.tick(kStart + milliseconds(101));
  effects = head.take_effects();
  ASSERT_EQ(effects.parted.size(), 1u);
  EXPECT_EQ(effects.parted[0].first, second);
}

TEST(HeadSessionsTest, OneThatWasRefusedIsNotHeardAgain) {
  const RoundSettings job = job_of(1, 1);
  HeadSessions head = head_of(job);
  const MemberId id = head.open({}, kStart);
  Hello hello = hello_of("a", job);
  hello.run_id = "other";
  head.receive(id, kAgentOpening + frame(hello), kStart);
  taken_output(head, id);
  head.receive(id, frame(hello_of("a", job)), kStart);
  EXPECT_EQ(taken_output(head, id), "");
  EXPECT_TRUE(head.head().members.empty());
}

TEST(HeadSessionsTest, AFloodOfStrangersIsOneNoteASecond) {
  HeadSessions head = head_of(job_of(1, 1));
  for (int i = 0; i < 100; ++i)
    head.receive(head.open({}, kStart), "GET / HTTP/1.1\r\n", kStart + milliseconds(15 * i));
  EXPECT_EQ(head.take_effects().notes.size(), 2u);
}

}  // namespace
}  // namespace dtrun::rendezvous
