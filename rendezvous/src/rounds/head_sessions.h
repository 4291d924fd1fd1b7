// HeadSessions: the head's conversations with all its agents, without their sockets: what came in
// goes through handshake and frames into the head's state machine, and what that wants done comes
// out as bytes to send and connections to end. Pure but for the order of its calls; driven by
// HeadService, and by a fuzzer. Not thread-safe.
//
// A *newcomer* is a connection that the head has not accepted: it must prove itself and say Hello
// within a time, there are only so many of them, and what it sends is bounded.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "dtrun/rendezvous/proof.h"
#include "dtrun/rendezvous/round_head.h"
#include "rounds/agent_session.h"

namespace dtrun::rendezvous {

/// How a connection is to be ended. Either way forget() is told when it is.
enum class Parting {
  kAtOnce,
  kWhenSent,  ///< when all is sent and the other side has ended its half, or time is up
};

struct HeadEffects {
  std::vector<rounds::MemberId> written;  ///< may have something to send
  std::vector<std::pair<rounds::MemberId, Parting>> parted;
  std::vector<rounds::Note> notes;
  std::vector<rounds::WorkerEnd> ends;  ///< for the report of the job
  /// Rounds that are to open, and to whom open_round() is to tell it first.
  std::vector<std::pair<rounds::MemberId, rounds::Prepare>> opening;
  /// Questions of newcomers' handshakes to their realm.
  std::vector<std::pair<rounds::MemberId, AgentHandshake::RealmQuestion>> questions;
  /// The head has judged; tell_verdict() is to tell it.
  std::optional<rounds::Close> verdict;
  bool ended = false;  ///< nobody is left who needs the head

  bool empty() const {
    return written.empty() && parted.empty() && notes.empty() && ends.empty() && opening.empty() &&
           questions.empty() && !verdict && !ended;
  }
};

class HeadSessions {
 public:
  struct Limits {
    std::size_t newcomers = 4096;  ///< beyond it the oldest goes
    rounds::Moment newcomer_time = std::chrono::seconds(10);
    /// The most bytes that an agent may leave unread.
    std::size_t unsent_bytes = 1 << 20;
  };
  /// The address by which the head sees that agent.
  using AddressOf = std::function<std::string(rounds::MemberId)>;

  HeadSessions(rounds::HeadState head, Proof proof, const Limits& limits, AddressOf address_of);

  rounds::MemberId open(const AgentHandshake::Nonce& nonce, rounds::Moment now);
  /// The agent that hosts the head: it needs no proof.
  rounds::MemberId open_own(rounds::Moment now);
  void receive(rounds::MemberId id, std::string_view bytes, rounds::Moment now);
  /// To one of HeadEffects::questions.
  void hear_realm(rounds::MemberId id, AgentHandshake::RealmAnswer answer, rounds::Moment now);
  /// Its connection has ended, or its time is up after it was parted with.
  void lose(rounds::MemberId id, rounds::LossKind kind, const std::string& why, rounds::Moment now);
  void forget(rounds::MemberId id);
  void tick(rounds::Moment now);
  void open_round(rounds::MemberId id, const rounds::Prepare& prepare);
  /// To all whom it concerns, also those who come later. Before it no agent hears Close.
  void tell_verdict();
  bool keeps_verdict() const { return verdict_ == Verdict::kIsKept; }
  void step_down();
  /// With the oldest of those that are newcomers since then or longer. False: there is none.
  bool part_with_newcomer_since(rounds::Moment moment);

  rounds::Moment deadline() const;
  const rounds::HeadState& head() const { return head_; }
  /// Null once it is forgotten.
  AgentSession* find(rounds::MemberId id);
  HeadEffects take_effects() { return std::exchange(effects_, {}); }

 private:
  struct Entry {
    AgentSession session;
    rounds::Moment since{};
    enum class Stage {
      kNewcomer,
      kRefused,  // a newcomer that is to hang up; what it says is not heard
      kMember,
      kParted,
    } stage = Stage::kNewcomer;
    bool is_heard() const { return stage == Stage::kNewcomer || stage == Stage::kMember; }
  };

  rounds::MemberId add(AgentSession session, rounds::Moment now);
  void hear(rounds::MemberId id, rounds::Moment now);
  void carry_out(const std::vector<rounds::HeadAction>& actions);
  void carry_out(const rounds::Send& action);
  void keep_verdict(rounds::MemberId id, const rounds::Close& verdict);
  void say(rounds::MemberId id, const rounds::HeadMessage& message);
  void carry_out(const rounds::HangUp& action);
  void carry_out(const rounds::Note& action);
  void carry_out(const rounds::Collect& action);
  void carry_out(const rounds::End& action);
  void reject(rounds::MemberId id, Entry& entry, rounds::Moment now);
  void part_with_oldest_newcomer();
  void part(rounds::MemberId id, Entry& entry, Parting parting);

  rounds::HeadState head_;
  enum class Verdict { kNone, kIsKept, kMayBeTold, kIsNotOurs } verdict_ = Verdict::kNone;
  std::vector<rounds::MemberId> untold_;  // of kIsKept
  const Proof proof_;
  const Limits limits_;
  const AddressOf address_of_;
  rounds::MemberId next_id_ = 0;
  int opened_round_ = rounds::kNoRound;  // the last one for which a store was asked for
  std::unordered_map<rounds::MemberId, Entry> entries_;
  std::set<rounds::MemberId> newcomers_;  // ids rise: the oldest first
  std::vector<rounds::MemberId> deaf_;    // their output is over the limit
  std::optional<rounds::Moment> complained_;
  HeadEffects effects_;
};

}  // namespace dtrun::rendezvous
