// An agent byte by byte: what the tests of the head say as one, without a Membership.
#pragma once

#include <string>
#include <vector>

#include "rendezvous/served_store.h"
#include "rounds/agent_protocol.h"

namespace dtrun::rendezvous {

inline const std::string kAgentOpening = bytes("d7 07 00 06 'agents'");
inline const std::string kHeadAnswer = bytes("d7 07 00");

inline std::string frame(const rounds::AgentMessage& message) {
  std::string result;
  encode(message, result);
  return result;
}

inline rounds::Hello hello_of(const std::string& host, const rounds::RoundSettings& job,
                              std::uint64_t agent = 0) {
  rounds::Hello hello;
  hello.run_id = "job";
  hello.host = host;
  hello.min_nodes = job.min_nodes;
  hello.max_nodes = job.max_nodes;
  hello.agent = agent;
  return hello;
}

class RawAgent : public RawClient {
 public:
  using RawClient::RawClient;

  void say(const rounds::AgentMessage& message) { send(frame(message)); }
  /// The next message of the head, by a blocking read.
  rounds::HeadMessage hear() {
    std::string whole = receive(4);
    whole +=
        receive(static_cast<unsigned char>(whole[0]) | static_cast<unsigned char>(whole[1]) << 8);
    std::string_view left = whole;
    std::string failure;
    const auto message = take_message<rounds::HeadMessage>(left, failure);
    EXPECT_TRUE(message) << failure;
    return message ? *message : rounds::HeadMessage();
  }
  /// Of the last call, which is told in between, nothing is asked here.
  template <typename Message>
  Message expect() {
    rounds::HeadMessage message = hear();
    while (is_last_call(message)) message = hear();
    const Message* found = std::get_if<Message>(&message);
    EXPECT_TRUE(found) << "kind " << message.index();
    return found ? *found : Message();
  }
  static bool is_last_call(const rounds::HeadMessage& message) {
    const auto* standing = std::get_if<rounds::Standing>(&message);
    return standing != nullptr && standing->kind == rounds::Standing::Kind::kLastCall;
  }
  /// As far as Accepted.
  void join(const rounds::Hello& hello) {
    send(kAgentOpening);
    EXPECT_EQ(hex(receive(kHeadAnswer.size())), hex(kHeadAnswer));
    say(hello);
    expect<rounds::Accepted>();
  }
  /// All that has come was read: the head answers a beat next.
  void expect_in_step() {
    say(rounds::Beat{});
    expect<rounds::Echo>();
  }
};

}  // namespace dtrun::rendezvous
