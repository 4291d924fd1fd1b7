#include "agent_handshake.h"

#include <fmt/core.h>
#include <sys/random.h>

#include <cerrno>
#include <utility>

#include "dtrun/base/check.h"
#include "dtrun/base/error.h"

namespace dtrun::rendezvous {
namespace {

constexpr std::size_t kNonceBytes = std::tuple_size_v<AgentHandshake::Nonce>;
constexpr std::size_t kCodeBytes = std::tuple_size_v<Token::Code>;
constexpr char kRefusalKind = 2;
constexpr std::size_t kRefusalHead = 9;

// How the two sides are called, and where each of them gives its token.
struct Words {
  const char* whole;
  const char* member;
  const char* head;
  const char* option;
  const char* cure;
  const char* stranger;
};
constexpr Words kAgentWords{"this job",
                            "this node",
                            "the head",
                            "--rdzv_conf token_file=",
                            "give it to all nodes or to none",
                            "no dtrun agent is at the other end"};
constexpr Words kStoreWords{"this store",
                            "this client",
                            "the store",
                            "TcpStoreOptions::token, dtrun-store --token-file",
                            "give it to both or to neither",
                            "no store of dtrun's is at the other end"};

const Words& words_for(const std::string& purpose) {
  return purpose == kStorePurpose ? kStoreWords : kAgentWords;
}

std::string opening_bytes(Proof proof) {
  return {static_cast<char>(kPreamble), static_cast<char>(kProtocolVersion),
          static_cast<char>(proof)};
}

std::string u32(std::size_t value) {
  std::string bytes;
  for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(value >> shift & 0xff);
  return bytes;
}

std::uint32_t u32_at(const std::string& bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i)
    value |= std::uint32_t{static_cast<unsigned char>(bytes[at + i])} << (8 * i);
  return value;
}

std::string refusal(std::string text) {
  text.resize(std::min(text.size(), AgentHandshake::kMostTextBytes));
  // Its first byte tells it from an answer.
  if (((text.size() + 5) & 0xff) == kPreamble) text += ' ';
  return u32(text.size() + 5) + kRefusalKind + u32(text.size()) + text;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string result(text);
  for (char& c : result)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  return result;
}

AgentHandshake::Nonce fresh_nonce() {
  AgentHandshake::Nonce nonce;
  // 32 bytes come whole or not at all, and never wait once the machine is up.
  if (::getrandom(nonce.data(), nonce.size(), 0) != static_cast<ssize_t>(nonce.size()))
    throw base::system_error("get random bytes from the kernel");
  return nonce;
}

AgentHandshake::AgentHandshake(Role role, std::string purpose, std::optional<Token> token,
                               const Nonce& nonce)
    : role_(role),
      purpose_(std::move(purpose)),
      token_(std::move(token)),
      own_nonce_(nonce.begin(), nonce.end()),
      step_(role == Role::kHead ? Step::kOpening : Step::kAnswer) {
  DT_CHECK(purpose_.size() <= kMostPurposeBytes);
  if (role == Role::kMember) start_as_member();
}

void AgentHandshake::start_as_member() {
  output_ = opening_bytes(proof()) + static_cast<char>(purpose_.size()) + purpose_;
  if (token_) output_ += own_nonce_;
}

AgentHandshake::State AgentHandshake::receive(std::string_view& bytes) {
  const std::size_t most = role_ == Role::kHead ? kMostBytes : kRefusalHead + kMostTextBytes;
  const std::size_t before = received_.size();
  received_ += bytes.substr(0, most - before);
  const std::size_t taken_in = received_.size() - before;
  while (state_ == State::kRunning) {
    const Step step = step_;
    state_ = read_step();
    if (state_ == State::kRunning && step_ == step) break;
  }
  // What came behind the last of its words was taken from this very piece.
  bytes.remove_prefix(state_ == State::kDone ? taken_in - received_.size() : taken_in);
  if (state_ == State::kDone) received_.clear();
  return state_;
}

AgentHandshake::State AgentHandshake::read_step() {
  switch (step_) {
    case Step::kOpening:
      return read_opening();
    case Step::kProof:
      return read_proof();
    case Step::kAnswer:
      return read_answer();
    case Step::kHeadsProof:
      break;
  }
  return read_heads_proof();
}

bool AgentHandshake::has(std::size_t count) {
  return received_.size() >= count;
}

std::string AgentHandshake::take(std::size_t count) {
  std::string part = received_.substr(0, count);
  received_.erase(0, count);
  return part;
}

AgentHandshake::State AgentHandshake::refuse(std::string text) {
  output_ = refusal(text);
  failure_ = std::move(text);
  return State::kRefused;
}

AgentHandshake::State AgentHandshake::fail(std::string why) {
  failure_ = std::move(why);
  return State::kFailed;
}

Token::Code AgentHandshake::code_of(char whose) const {
  const bool head = role_ == Role::kHead;
  std::string text = "dtrun handshake";
  text += static_cast<char>(kProtocolVersion);
  text += static_cast<char>(proof());
  text += whose;
  text += static_cast<char>(purpose_.size());
  text += purpose_;
  text += head ? peer_nonce_ : own_nonce_;
  text += head ? own_nonce_ : peer_nonce_;
  return token_->code_of(text);
}

// Empty: the other side wants the same.
std::string AgentHandshake::other_proof(std::uint8_t theirs) const {
  if (theirs == static_cast<std::uint8_t>(proof())) return "";
  const Words& words = words_for(purpose_);
  if (theirs == static_cast<std::uint8_t>(Proof::kNone))
    return role_ == Role::kHead ? fmt::format("{} demands a token ({}), and {} gave none",
                                              words.whole, words.option, words.member)
                                : fmt::format("{} has a token ({}), and {} demands none: {}",
                                              words.member, words.option, words.head, words.cure);
  if (theirs == static_cast<std::uint8_t>(Proof::kToken))
    return role_ == Role::kHead ? fmt::format("{} has a token ({}), and {} has none: {}",
                                              words.member, words.option, words.head, words.cure)
                                : fmt::format("{} demands a token ({})", words.whole, words.option);
  return fmt::format("the other side wants a proof of kind {}, which is not known here", theirs);
}

AgentHandshake::State AgentHandshake::read_opening() {
  if (has(1) && static_cast<unsigned char>(received_[0]) != kPreamble)
    return fail(words_for(purpose_).stranger);
  if (!has(2)) return State::kRunning;
  const int version = static_cast<unsigned char>(received_[1]);
  if (version != kProtocolVersion)
    return refuse(fmt::format(
        "{}'s dtrun speaks version {} of the agents' protocol, {}'s speaks {}",
        words_for(purpose_).member, version, words_for(purpose_).head, kProtocolVersion));
  if (!has(4)) return State::kRunning;
  const auto theirs = static_cast<std::uint8_t>(received_[2]);
  const std::size_t purpose_bytes = static_cast<unsigned char>(received_[3]);
  if (purpose_bytes > kMostPurposeBytes) return fail("its first words are too long");
  const std::size_t nonce = theirs == static_cast<std::uint8_t>(Proof::kToken) ? kNonceBytes : 0;
  if (!has(4 + purpose_bytes + nonce)) return State::kRunning;
  const std::string purpose = received_.substr(4, purpose_bytes);
  if (purpose != purpose_)
    return refuse(fmt::format("this port is for '{}', not for '{}'", purpose_, printable(purpose)));
  if (const std::string objection = other_proof(theirs); !objection.empty())
    return refuse(objection);
  take(4 + purpose_bytes);
  peer_nonce_ = take(nonce);
  output_ = opening_bytes(proof());
  if (!token_) return State::kDone;
  output_ += own_nonce_;
  step_ = Step::kProof;
  return State::kRunning;
}

AgentHandshake::State AgentHandshake::read_proof() {
  if (!has(kCodeBytes)) return State::kRunning;
  if (!same_code(code_of('M'), take(kCodeBytes)))
    return refuse(fmt::format("{}'s token ({}) is not {}'s", words_for(purpose_).member,
                              words_for(purpose_).option, words_for(purpose_).head));
  const Token::Code own = code_of('H');
  output_ += static_cast<char>(kPreamble);
  output_.append(own.begin(), own.end());
  return State::kDone;
}

AgentHandshake::State AgentHandshake::read_answer() {
  if (!has(1)) return State::kRunning;
  if (static_cast<unsigned char>(received_[0]) != kPreamble) return read_refusal();
  if (!has(2)) return State::kRunning;
  const int version = static_cast<unsigned char>(received_[1]);
  if (version != kProtocolVersion)
    return fail(fmt::format("{}'s dtrun speaks version {} of the agents' protocol, {}'s speaks {}",
                            words_for(purpose_).head, version, words_for(purpose_).member,
                            kProtocolVersion));
  if (!has(3)) return State::kRunning;
  const auto theirs = static_cast<std::uint8_t>(received_[2]);
  if (const std::string objection = other_proof(theirs); !objection.empty()) {
    failure_ = objection;
    return State::kRefused;
  }
  if (!has(3 + (token_ ? kNonceBytes : 0))) return State::kRunning;
  take(3);
  if (!token_) return State::kDone;
  peer_nonce_ = take(kNonceBytes);
  const Token::Code own = code_of('M');
  output_.append(own.begin(), own.end());
  step_ = Step::kHeadsProof;
  return State::kRunning;
}

AgentHandshake::State AgentHandshake::read_heads_proof() {
  if (!has(1)) return State::kRunning;
  if (static_cast<unsigned char>(received_[0]) != kPreamble) return read_refusal();
  if (!has(1 + kCodeBytes)) return State::kRunning;
  take(1);
  if (same_code(code_of('H'), take(kCodeBytes))) return State::kDone;
  failure_ = fmt::format("who listens there does not have {}'s token", words_for(purpose_).whole);
  return State::kRefused;
}

AgentHandshake::State AgentHandshake::read_refusal() {
  const std::string stranger = words_for(purpose_).stranger;
  if (!has(kRefusalHead)) return State::kRunning;
  const std::size_t size = u32_at(received_, 0);
  if (received_[4] != kRefusalKind || size < 5 || size - 5 != u32_at(received_, 5) ||
      size - 5 > kMostTextBytes)
    return fail(stranger);
  if (!has(4 + size)) return State::kRunning;
  take(kRefusalHead);
  failure_ = size == 5 ? "it gives no reason" : printable(take(size - 5));
  return State::kRefused;
}

}  // namespace dtrun::rendezvous
