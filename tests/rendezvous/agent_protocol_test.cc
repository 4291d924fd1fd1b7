#include "rounds/agent_protocol.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>

#include "dtrun/base/base64.h"
#include "dtrun/rendezvous/verdict_record.h"
#include "rendezvous/served_store.h"
#include "support/thrown_error.h"

namespace dtrun::rendezvous {
namespace {

using namespace rounds;
using testing_support::contains;

JobFailure some_failure() {
  return {3, 1, 9, 15, 77, "h1", "text", 1, 1, "last line"};
}

// One of every kind, all fields set.
std::vector<AgentMessage> agent_messages() {
  return {Hello{"run", "h1", "role", 1, 2, 3, 4, 5, 6, 7, 8, 9, 6, 10},
          Beat{},
          StoreReady{1, "10.0.0.1", 29500},
          Stopped{1},
          Failed{1, some_failure()},
          Done{2},
          Leaving{some_failure()},
          WorkerEnd{1, 2, 0, 3, 0, 4, 1, 0, 1, 5, "h1", "/e.json", "why", "last", 6, "#0 f",
                    "/core", "barrier"}};
}
std::vector<HeadMessage> head_messages() {
  return {Accepted{Moment(5), Moment(15)},
          Refused{"no"},
          Standing{Standing::Kind::kSpare, 3},
          Prepare{1},
          Start{1, 2, 3, 4, 50, 8, 9, 6, "n0", 29500},
          Stop{1, some_failure()},
          Close{Close::Outcome::kFailed, some_failure()},
          Echo{},
          Evicted{"silent"}};
}

template <typename Message>
std::string encoded(const Message& message) {
  std::string bytes;
  encode(message, bytes);
  return bytes;
}

template <typename Message>
void expect_whole(const std::vector<Message>& messages) {
  ASSERT_EQ(messages.size(), std::variant_size_v<Message>);
  std::string all;
  for (const Message& message : messages) {
    const std::string frame = encoded(message);
    for (std::size_t size = 0; size < frame.size(); ++size) {
      std::string_view part = std::string_view(frame).substr(0, size);
      std::string failure;
      EXPECT_FALSE(take_message<Message>(part, failure));
      EXPECT_EQ(failure, "");
      EXPECT_EQ(part.size(), size);
    }
    all += frame;
  }
  std::string_view left = all;
  for (const Message& message : messages) {
    std::string failure;
    const auto read = take_message<Message>(left, failure);
    ASSERT_TRUE(read) << failure;
    EXPECT_EQ(hex(encoded(*read)), hex(encoded(message)));
  }
  EXPECT_TRUE(left.empty());
}

TEST(AgentProtocolTest, EveryMessageArrivesAsItWasSent) {
  expect_whole(agent_messages());
  expect_whole(head_messages());
}

TEST(AgentProtocolTest, TheWireIsThatOfTheDocument) {
  EXPECT_EQ(hex(encoded(AgentMessage(Beat{}))), hex(bytes("01 00*3 01")));
  EXPECT_EQ(hex(encoded(AgentMessage(StoreReady{1, "n", 0x7314}))),
            hex(bytes("0e 00*3 02 01 00*3 01 00*3 'n' 14 73 00*2")));
  EXPECT_EQ(hex(encoded(HeadMessage(Standing{Standing::Kind::kSpare, 3}))),
            hex(bytes("06 00*3 02 01 03 00*3")));
  EXPECT_EQ(hex(encoded(HeadMessage(Accepted{Moment(1), Moment(256)}))),
            hex(bytes("11 00*3 00 01 00*7 00 01 00*6")));
}

TEST(AgentProtocolTest, LongStringsAreCutOff) {
  const std::string frame = encoded(HeadMessage(Refused{std::string(1 << 20, 'x')}));
  std::string_view left = frame;
  std::string failure;
  const auto read = take_message<HeadMessage>(left, failure);
  EXPECT_EQ(std::get<Refused>(*read).text.size(), kMostStringBytes);
}

template <typename Message>
std::string refusal_of(const std::string& frame) {
  std::string_view left = frame;
  std::string failure;
  EXPECT_FALSE(take_message<Message>(left, failure)) << hex(frame);
  EXPECT_EQ(left.size(), frame.size());
  return failure;
}

TEST(AgentProtocolTest, AnAgentCannotUseUpTheNumbersOfRounds) {
  Hello hello;
  hello.run_id = "run";
  hello.last_round = std::numeric_limits<std::int32_t>::max();
  EXPECT_TRUE(
      contains(refusal_of<AgentMessage>(encoded(AgentMessage(hello))), "number 2147483647"));
}

TEST(AgentProtocolTest, OthersAreNotMadeToEndWithWhatIsNoExitCode) {
  WorkerEnd end{1, 2, 0, 256, 0, 4, 1, 0, 1, 5, "h1", "", "why", ""};
  EXPECT_TRUE(contains(refusal_of<AgentMessage>(encoded(AgentMessage(end))), "number 256"));
  end.code = 0;
  end.signal = std::numeric_limits<std::int32_t>::min();
  EXPECT_TRUE(contains(refusal_of<AgentMessage>(encoded(AgentMessage(end))), "number -2147483648"));
  JobFailure failure = some_failure();
  failure.code = -256;
  EXPECT_TRUE(
      contains(refusal_of<AgentMessage>(encoded(AgentMessage(Failed{1, failure}))), "number -256"));
}

TEST(AgentProtocolTest, WhatIsNotExactlyAMessageIsRefused) {
  const std::map<std::string, std::string> agent_frames = {
      {"00*4", "of 0 bytes"},
      {"01 00 01 00", "of 65537 bytes"},
      {"ff*4", "of 4294967295 bytes"},
      {"01 00*3 08", "its kind, 8, is"},
      {"01 00*3 ff", "its kind, 255, is"},
      {"02 00*3 01 00", "too long for its kind"},
      {"01 00*3 03", "ends too early"},
      {"05 00*3 03 fe ff*3", "number -2 where"},
      {"09 00*3 02 01 00*3 01 20 00 00", "number 8193 where"},
      {"09 00*3 02 01 00*3 05 00*3", "ends too early"},
      {"0d 00*3 02 01 00*3 00*4 00 00 01 00", "number 65536 where"},
  };
  for (const auto& [frame, told] : agent_frames) {
    const std::string text = refusal_of<AgentMessage>(bytes(frame));
    EXPECT_TRUE(contains(text, told)) << frame << ": " << text;
  }
  EXPECT_TRUE(contains(refusal_of<HeadMessage>(bytes("06 00*3 02 03 00*4")), "number 3 where"));
  EXPECT_TRUE(contains(refusal_of<HeadMessage>(bytes("11 00*3 00 00*8 01 00*7")), "number 0"));
  EXPECT_TRUE(contains(refusal_of<HeadMessage>(bytes("01 00*3 09")), "its kind, 9, is"));
}

TEST(VerdictRecordTest, HasTheVerdictOnItsLastLine) {
  Close failed;
  failed.outcome = Close::Outcome::kFailed;
  failed.failure.code = 7;
  failed.failure.text = "one\ntwo";
  failed.failure.tail = "\xff\n";
  const VerdictRecord record = read_verdict(write_verdict(failed));
  EXPECT_EQ(record.words, "one\ntwo");
  EXPECT_EQ(record.verdict->failure, failed.failure);
  EXPECT_EQ(read_verdict(write_verdict(Close{})).words, "it has ended well");
  std::string other;
  encode(HeadMessage(Refused{"no"}), other);
  for (const std::string& text :
       {std::string("all done"), std::string("all\ndone"), "x\n" + base::to_base64(other)}) {
    EXPECT_EQ(read_verdict(text).words, text);
    EXPECT_FALSE(read_verdict(text).verdict);
  }
}

}  // namespace
}  // namespace dtrun::rendezvous
