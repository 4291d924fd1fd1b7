#include "proof/agent_handshake.h"

#include <fmt/core.h>
#include <sys/random.h>

#include <cerrno>
#include <utility>

#include "dtrun/base/check.h"
#include "dtrun/base/error.h"
#include "wire/printable.h"

namespace dtrun::rendezvous {
namespace {

constexpr std::size_t kNonceBytes = std::tuple_size_v<AgentHandshake::Nonce>;
constexpr std::size_t kCodeBytes = std::tuple_size_v<Token::Code>;
constexpr char kRefusalKind = 2;
constexpr std::size_t kRefusalHead = 9;  // length, kind, length of the text
constexpr std::size_t kSizeBytes = 2;    // of a credential

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

std::string opening_bytes(ProofKind kind) {
  return {static_cast<char>(kPreamble), static_cast<char>(kProtocolVersion),
          static_cast<char>(kind)};
}

bool has_nonce(std::uint8_t kind) {
  return kind == static_cast<std::uint8_t>(ProofKind::kToken) ||
         kind == static_cast<std::uint8_t>(ProofKind::kMunge);
}

// If munge runs, its proof is used without being asked for.
const char* without(ProofKind kind) {
  return kind == ProofKind::kMunge
             ? ": where munged does not run on all nodes, --rdzv_conf token=none on all of them"
             : "";
}

std::string name_of(const Words& words, ProofKind kind) {
  return kind == ProofKind::kMunge ? "a token of munge (--rdzv_conf token=munge)"
                                   : fmt::format("a token ({})", words.option);
}

// A token is stripped of white space at its ends, which random bytes may have: they are written in
// digits.
std::string hexadecimal(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

// For the one line of a refusal.
std::string in_one_line(const base::Error& error) {
  std::string text = error.summary();
  if (!error.why().empty()) text += ": " + error.why();
  if (!error.remedy().empty()) text += "; " + error.remedy();
  return printable(text);
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

std::optional<std::string_view> purpose_in(std::string_view first_bytes) {
  constexpr std::size_t kBefore = 4;
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(first_bytes[i]); };
  if (!first_bytes.empty() && byte(0) != kPreamble) return "";
  if (first_bytes.size() > 1 && byte(1) != kProtocolVersion) return "";
  if (first_bytes.size() < kBefore) return std::nullopt;
  const std::size_t size = byte(kBefore - 1);
  if (size > AgentHandshake::kMostPurposeBytes) return "";
  if (first_bytes.size() < kBefore + size) return std::nullopt;
  return first_bytes.substr(kBefore, size);
}

AgentHandshake::Nonce fresh_nonce() {
  AgentHandshake::Nonce nonce;
  // 32 bytes come whole or not at all, and never wait once the machine is up.
  if (::getrandom(nonce.data(), nonce.size(), 0) != static_cast<ssize_t>(nonce.size()))
    throw base::system_error("get random bytes from the kernel");
  return nonce;
}

AgentHandshake::AgentHandshake(Role role, std::string purpose, Proof proof, const Nonce& nonce)
    : role_(role),
      purpose_(std::move(purpose)),
      proof_(std::move(proof)),
      own_nonce_(nonce.begin(), nonce.end()),
      step_(role == Role::kHead ? Step::kOpening : Step::kAnswer) {
  DT_CHECK(purpose_.size() <= kMostPurposeBytes);
  if (const Token* const token = std::get_if<Token>(&proof_)) secret_ = *token;
  if (role == Role::kMember) start_as_member();
}

void AgentHandshake::start_as_member() {
  output_ = opening_bytes(kind()) + static_cast<char>(purpose_.size()) + purpose_;
  if (kind() != ProofKind::kNone) output_ += own_nonce_;
}

AgentHandshake::State AgentHandshake::receive(std::string_view& bytes) {
  const std::size_t most = role_ == Role::kHead ? kMostBytes : kMostAnswerBytes;
  const std::size_t before = received_.size();
  received_ += bytes.substr(0, most - before);
  const std::size_t taken_in = received_.size() - before;
  go_on();
  // Bytes behind the handshake came in the same piece, and are left to the caller.
  bytes.remove_prefix(state_ == State::kDone ? taken_in - received_.size() : taken_in);
  if (state_ == State::kDone) received_.clear();
  return state_;
}

AgentHandshake::State AgentHandshake::go_on() {
  while (state_ == State::kRunning) {
    const Step step = step_;
    state_ = read_step();
    if (state_ == State::kRunning && step_ == step) break;
  }
  return state_;
}

// The other side cannot end the handshake well before this answer, so all bytes that were read
// meanwhile belong to the handshake.
AgentHandshake::State AgentHandshake::hear(RealmAnswer answer) {
  if (state_ != State::kAsking) return state_;
  if (auto* const sealed = std::get_if<Realm::Sealed>(&answer))
    state_ = hear_sealed(std::move(*sealed));
  else if (const auto* const opened = std::get_if<Realm::Opened>(&answer))
    state_ = hear_opened(*opened);
  else
    state_ = hear_nothing(std::get<base::Error>(answer));
  return go_on();
}

AgentHandshake::State AgentHandshake::ask(RealmQuestion question) {
  question_ = [question = std::move(question)]() -> RealmAnswer {
    try {
      return question();
    } catch (const base::Error& error) {
      return error;
    }
  };
  return State::kAsking;
}

AgentHandshake::State AgentHandshake::read_step() {
  switch (step_) {
    case Step::kOpening:
      return read_opening();
    case Step::kProof:
      return read_proof();
    case Step::kAnswer:
      return read_answer();
    case Step::kCredential:
      return read_credential();
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

// The error of a member that does not believe the head's proof.
AgentHandshake::State AgentHandshake::disbelieve(std::string why) {
  failure_ = std::move(why);
  return State::kRefused;
}

void AgentHandshake::set_secret(std::string_view secret) {
  secret_.emplace(hexadecimal(secret), "a credential");
}

Token::Code AgentHandshake::code_of(char whose) const {
  const bool head = role_ == Role::kHead;
  std::string text = "dtrun handshake";
  text += static_cast<char>(kProtocolVersion);
  text += static_cast<char>(kind());
  text += whose;
  text += static_cast<char>(purpose_.size());
  text += purpose_;
  text += head ? peer_nonce_ : own_nonce_;
  text += head ? own_nonce_ : peer_nonce_;
  text += credential_;
  return secret_->code_of(text);
}

// Empty: the other side wants the same.
std::string AgentHandshake::objection_to(std::uint8_t theirs) const {
  if (theirs == static_cast<std::uint8_t>(kind())) return "";
  const Words& words = words_for(purpose_);
  const bool head = role_ == Role::kHead;
  const std::string own_name = name_of(words, kind());
  if (theirs == static_cast<std::uint8_t>(ProofKind::kNone))
    return head ? fmt::format("{} demands {}, and {} gave none{}", words.whole, own_name,
                              words.member, without(kind()))
                : fmt::format("{} has {}, and {} demands none: {}{}", words.member, own_name,
                              words.head, words.cure, without(kind()));
  if (!has_nonce(theirs))
    return fmt::format("the other side wants a proof of kind {}, which is not known here", theirs);
  const std::string name = name_of(words, static_cast<ProofKind>(theirs));
  if (kind() == ProofKind::kNone)
    return head ? fmt::format("{} has {}, and {} has none: {}{}", words.member, name, words.head,
                              words.cure, without(static_cast<ProofKind>(theirs)))
                : fmt::format("{} demands {}", words.whole, name);
  return fmt::format("{} has {}, and {} {}: give the same to all", words.member,
                     head ? name : own_name, words.head, head ? own_name : name);
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
  const std::size_t nonce = has_nonce(theirs) ? kNonceBytes : 0;
  if (!has(4 + purpose_bytes + nonce)) return State::kRunning;
  const std::string purpose = received_.substr(4, purpose_bytes);
  if (purpose != purpose_)
    return refuse(fmt::format("this port is for '{}', not for '{}'", purpose_, printable(purpose)));
  if (const std::string objection = objection_to(theirs); !objection.empty())
    return refuse(objection);
  take(4 + purpose_bytes);
  peer_nonce_ = take(nonce);
  return answer();
}

AgentHandshake::State AgentHandshake::answer() {
  if (const auto* const realm = std::get_if<std::shared_ptr<Realm>>(&proof_))
    return ask([realm = *realm] { return realm->seal(); });
  output_ = opening_bytes(kind());
  if (kind() == ProofKind::kNone) return State::kDone;
  output_ += own_nonce_;
  step_ = Step::kProof;
  return State::kRunning;
}

AgentHandshake::State AgentHandshake::hear_sealed(Realm::Sealed sealed) {
  set_secret(sealed.secret);
  credential_ = std::move(sealed.credential);
  if (credential_.size() > kMostCredentialBytes)
    return refuse(fmt::format("the head's credential has {} bytes, and {} are read",
                              credential_.size(), kMostCredentialBytes));
  output_ = opening_bytes(kind()) + own_nonce_;
  output_ += static_cast<char>(credential_.size() & 0xff);
  output_ += static_cast<char>(credential_.size() >> 8);
  output_ += credential_;
  step_ = Step::kProof;
  return State::kRunning;
}

AgentHandshake::State AgentHandshake::hear_nothing(const base::Error& error) {
  return role_ == Role::kHead
             ? refuse("the head cannot prove who it is: " + in_one_line(error))
             : disbelieve("who listens there has not proved that it is of this job's user: " +
                          in_one_line(error));
}

AgentHandshake::State AgentHandshake::read_proof() {
  if (!has(kCodeBytes)) return State::kRunning;
  if (!same_code(code_of('M'), take(kCodeBytes)))
    return refuse(kind() == ProofKind::kToken
                      ? fmt::format("{}'s token ({}) is not {}'s", words_for(purpose_).member,
                                    words_for(purpose_).option, words_for(purpose_).head)
                      : "this node did not open the head's credential (--rdzv_conf token=munge)");
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
    return disbelieve(fmt::format(
        "{}'s dtrun speaks version {} of the agents' protocol, {}'s speaks {}",
        words_for(purpose_).head, version, words_for(purpose_).member, kProtocolVersion));
  if (!has(3)) return State::kRunning;
  const auto theirs = static_cast<std::uint8_t>(received_[2]);
  if (std::string objection = objection_to(theirs); !objection.empty())
    return disbelieve(std::move(objection));
  const bool bare = kind() == ProofKind::kNone;
  if (!has(3 + (bare ? 0 : kNonceBytes))) return State::kRunning;
  take(3);
  if (bare) return State::kDone;
  peer_nonce_ = take(kNonceBytes);
  if (kind() == ProofKind::kToken) return prove();
  step_ = Step::kCredential;
  return State::kRunning;
}

AgentHandshake::State AgentHandshake::read_credential() {
  if (!has(kSizeBytes)) return State::kRunning;
  const std::size_t size = static_cast<unsigned char>(received_[0]) +
                           (std::size_t{static_cast<unsigned char>(received_[1])} << 8);
  if (size > kMostCredentialBytes) return fail("its credential is too long");
  if (!has(kSizeBytes + size)) return State::kRunning;
  take(kSizeBytes);
  credential_ = take(size);
  return ask([realm = std::get<std::shared_ptr<Realm>>(proof_), credential = credential_] {
    return realm->open(credential);
  });
}

AgentHandshake::State AgentHandshake::hear_opened(const Realm::Opened& opened) {
  const Realm& realm = *std::get<std::shared_ptr<Realm>>(proof_);
  if (opened.user != realm.own_user())
    return disbelieve(
        fmt::format("who listens there is user {}, and this agent is user {}: start "
                    "all agents of a job as one user",
                    opened.user, realm.own_user()));
  if (opened.secret.size() != Realm::kSecretBytes) return fail("its credential holds no secret");
  set_secret(opened.secret);
  return prove();
}

AgentHandshake::State AgentHandshake::prove() {
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
  return disbelieve(
      kind() == ProofKind::kToken
          ? fmt::format("who listens there does not have {}'s token", words_for(purpose_).whole)
          : "who listens there sends a credential that is not its own");
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
