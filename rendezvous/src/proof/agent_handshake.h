// AgentHandshake: the first words of a connection to a dtrun, before anything else is read: both
// speak this version, about the same thing, and both have the job's token or neither has. Pure:
// bytes in, bytes out. Not thread-safe.
//
//   member -> head  preamble byte 0xD7, u8 version, u8 proof, u8 length of the purpose, purpose;
//                   with a proof: the member's nonce, 32 bytes
//   head -> member  preamble byte, u8 version, u8 proof; with a proof: the head's nonce, 32 bytes;
//                   with kMunge: u16 length of the credential (1024 at the most), credential
//   member -> head  with a proof: the member's code, 32 bytes
//   head -> member  with a proof: preamble byte, the head's code, 32 bytes
//   head -> member  instead of any of these: a refusal, u32 length of what follows, u8 2, u32
//                   length of the text, text; integers little-endian; then the connection ends
//
// A code is the HMAC-SHA256, by the secret, of "dtrun handshake", version, proof, whose code it is
// ('M', 'H'), length of the purpose, purpose, the member's nonce, the head's nonce, and with kMunge
// the credential. The secret is the token; with kMunge 32 random bytes that the head makes for this
// connection and that the credential holds, sealed for the head's own user. The member demands that
// the same user has sealed it. So a code shows either to the other as a process of that user in
// the same realm; a credential without its secret shows nothing. Frozen for all versions: the first
// two bytes, and the refusal, which version 2 knows, too.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "dtrun/base/error.h"
#include "dtrun/rendezvous/proof.h"

namespace dtrun::rendezvous {

inline constexpr unsigned char kPreamble = 0xD7;  ///< >= 0x80: no client of a store
inline constexpr std::uint8_t kProtocolVersion = 7;

/// The purpose of a handshake with a store.
inline constexpr const char* kStorePurpose = "store";

/// The number of a Proof on the wire. A Realm is munge's.
enum class ProofKind : std::uint8_t { kNone = 0, kToken = 1, kMunge = 2 };

class AgentHandshake {
 public:
  enum class Role { kHead, kMember };
  enum class State {
    kRunning,
    kAsking,  ///< its realm must be asked first: take_question()
    kDone,
    kRefused,  ///< failure() is what the head says, or what it was told
    kFailed,   ///< failure() is why: what is at the other end does not speak like this
  };
  using Nonce = std::array<unsigned char, 32>;

  /// The most that a head reads before it knows who is there.
  static constexpr std::size_t kMostBytes = 256;
  /// The most that a member reads: the head's first words, or its refusal.
  static constexpr std::size_t kMostAnswerBytes = 3 + 32 + 2 + 1024;
  static constexpr std::size_t kMostCredentialBytes = 1024;
  static constexpr std::size_t kMostPurposeBytes = 64;
  /// The longest text of a refusal.
  static constexpr std::size_t kMostTextBytes = 1024;

  /// @param purpose what the connection is for: "agents"; the same on both sides
  /// @param nonce fresh_nonce(); looked at only where there is a proof
  AgentHandshake(Role role, std::string purpose, Proof proof, const Nonce& nonce);

  /// What a realm says, or why it says nothing.
  using RealmAnswer = std::variant<Realm::Sealed, Realm::Opened, base::Error>;
  /// Asks it, and may take long where the service hangs: for any thread, once. Owns what it needs.
  using RealmQuestion = std::function<RealmAnswer()>;

  /// Takes what belongs to the handshake off the front of `bytes`; the rest is the conversation.
  State receive(std::string_view& bytes);
  /// In kAsking, once; the answer goes to hear(). Empty: there is nothing to ask.
  RealmQuestion take_question() { return std::exchange(question_, {}); }
  State hear(RealmAnswer answer);
  /// What is to be sent, also after the last receive(); empties it.
  std::string take_output() { return std::exchange(output_, {}); }
  State state() const { return state_; }
  const std::string& failure() const { return failure_; }

 private:
  State go_on();
  State read_step();
  State read_opening();
  State read_proof();
  State read_answer();
  State read_credential();
  State read_refusal();
  State read_heads_proof();
  State refuse(std::string text);
  State fail(std::string why);
  State disbelieve(std::string why);
  State answer();
  State ask(RealmQuestion question);
  State hear_sealed(Realm::Sealed sealed);
  State hear_opened(const Realm::Opened& opened);
  State hear_nothing(const base::Error& error);
  State prove();
  void start_as_member();
  bool has(std::size_t count);
  std::string take(std::size_t count);
  ProofKind kind() const { return static_cast<ProofKind>(proof_.index()); }
  void set_secret(std::string_view secret);
  Token::Code code_of(char whose) const;
  std::string objection_to(std::uint8_t theirs) const;

  enum class Step { kOpening, kProof, kAnswer, kCredential, kHeadsProof };

  Role role_;
  std::string purpose_;
  Proof proof_;
  std::optional<Token> secret_;  // with a realm: once it is known
  std::string own_nonce_;
  std::string peer_nonce_;
  std::string credential_;
  RealmQuestion question_;
  Step step_;
  State state_ = State::kRunning;
  std::string received_;
  std::string output_;
  std::string failure_;
};

/// The purpose of a handshake that begins with these bytes; empty if it is none that is known here;
/// nullopt if too little has come.
std::optional<std::string_view> purpose_in(std::string_view first_bytes);

/// From the kernel. @throws Error kSystem
AgentHandshake::Nonce fresh_nonce();

}  // namespace dtrun::rendezvous
