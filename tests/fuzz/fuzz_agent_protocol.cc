// What an agent and the head read of each other before and after they know who is there. Input: a
// byte that says what is read (messages of agents, of the head; the handshake, at the head, at an
// agent, with a token, munge or neither), two for the cuts, then the stream. What must hold: the
// result does not depend on the cuts; a message that was read is written as the very bytes it was
// read from; without the proof nobody gets through a handshake that demands one.
#include "rounds/agent_protocol.h"

#include <optional>

#include "dtrun/base/error.h"
#include "fuzz/fuzz_input.h"
#include "rounds/agent_session.h"

namespace dtrun::fuzz {
namespace {

using namespace rendezvous;

struct Reading {
  std::string messages;  // written again
  bool failed = false;
  bool operator==(const Reading&) const = default;
};

template <typename Message>
Reading read_whole(std::string_view stream) {
  Reading reading;
  std::string_view left = stream;
  std::string failure;
  while (const auto message = take_message<Message>(left, failure)) {
    encode(*message, reading.messages);
    const std::size_t taken = stream.size() - left.size();
    FUZZ_CHECK(reading.messages == stream.substr(0, taken), "it is written otherwise");
  }
  reading.failed = !failure.empty();
  return reading;
}

template <typename Message>
Reading read_pieces(std::string_view stream, Cuts cuts) {
  AgentSession session;
  Reading reading;
  while (!stream.empty()) {
    const std::string_view piece = stream.substr(0, cuts.next(stream.size()));
    stream.remove_prefix(piece.size());
    session.receive(piece);
    while (const auto message = session.next<Message>()) encode(*message, reading.messages);
  }
  reading.failed = session.state() == AgentSession::State::kFailed;
  return reading;
}

template <typename Message>
void read_messages(std::string_view stream, Cuts cuts) {
  FUZZ_CHECK(read_whole<Message>(stream) == read_pieces<Message>(stream, cuts),
             "the cuts make a difference");
}

struct Greeting {
  AgentHandshake::State state{};
  std::size_t taken = 0;
  std::string said;
  std::string failure;
  bool operator==(const Greeting&) const = default;
};

Greeting greet(AgentHandshake::Role role, const Proof& proof, std::string_view stream,
               std::optional<Cuts> cuts) {
  AgentHandshake::Nonce nonce;
  nonce.fill(7);
  AgentHandshake handshake(role, "agents", proof, nonce);
  Greeting greeting;
  while (handshake.state() == AgentHandshake::State::kRunning && !stream.empty()) {
    const std::string_view piece =
        stream.substr(0, cuts ? cuts->next(stream.size()) : stream.size());
    stream.remove_prefix(piece.size());
    std::string_view left = piece;
    handshake.receive(left);
    if (const auto question = handshake.take_question()) handshake.hear(question());
    greeting.taken += piece.size() - left.size();
  }
  greeting.state = handshake.state();
  // Behind its last word it takes as much as happens to be there.
  if (greeting.state != AgentHandshake::State::kDone) greeting.taken = 0;
  greeting.said = handshake.take_output();
  greeting.failure = handshake.failure();
  return greeting;
}

// Opens whatever it is given, and sometimes it is another user's or no secret.
class OpenRealm final : public Realm {
 public:
  Sealed seal() override { return {std::string(kSecretBytes, 's'), std::string(90, 'c')}; }
  Opened open(const std::string& credential) override {
    const std::size_t size = credential.size();
    if (size % 8 == 1) throw base::Error(base::ErrorCode::kProtocol, "it does not open");
    return {std::string(size % 8 == 2 ? 7 : kSecretBytes, 's'), size % 8 == 3 ? 1001u : 1000u};
  }
  uid_t own_user() const override { return 1000; }
};

Proof proof_of(std::uint8_t what) {
  static const Token kToken("a token that nobody guesses", "the fuzzer");
  if ((what & 4) != 0) return kToken;
  if ((what & 8) != 0) return std::make_shared<OpenRealm>();
  return {};
}

void shake_hands(AgentHandshake::Role role, const Proof& proof, std::string_view stream,
                 Cuts cuts) {
  const Greeting whole = greet(role, proof, stream, {});
  FUZZ_CHECK(whole == greet(role, proof, stream, cuts), "the cuts make a difference");
  FUZZ_CHECK(proof.index() == 0 || whole.state != AgentHandshake::State::kDone,
             "it believed a stranger");
  const bool failed = whole.state == AgentHandshake::State::kFailed ||
                      whole.state == AgentHandshake::State::kRefused;
  FUZZ_CHECK(failed == !whole.failure.empty(), "failed without a reason, or not and with one");
  FUZZ_CHECK(whole.said.size() <= AgentHandshake::kMostAnswerBytes, "it says too much");
}

}  // namespace
}  // namespace dtrun::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dtrun::fuzz;
  using dtrun::rendezvous::AgentHandshake;
  FuzzInput input(data, size);
  const std::uint8_t what = input.byte();
  const Cuts cuts(input.word());
  const std::string_view stream = input.rest();
  switch (what % 4) {
    case 0:
      read_messages<dtrun::rendezvous::rounds::AgentMessage>(stream, cuts);
      break;
    case 1:
      read_messages<dtrun::rendezvous::rounds::HeadMessage>(stream, cuts);
      break;
    case 2:
      shake_hands(AgentHandshake::Role::kHead, proof_of(what), stream, cuts);
      break;
    default:
      shake_hands(AgentHandshake::Role::kMember, proof_of(what), stream, cuts);
  }
  return 0;
}
