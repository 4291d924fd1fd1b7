// One situation of the exhaustive search, and what can happen next in it. A value: copied for every
// branch.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "dtrun/rendezvous/round_head.h"
#include "dtrun/rendezvous/round_member.h"
#include "fingerprint.h"
#include "search.h"

namespace dtrun::simulation {

namespace rounds = rendezvous::rounds;

struct SearchLoss {};  ///< the connection ends here; what was sent before arrives before

struct SearchAgent {
  bool alive = true;
  bool finished = false;
  bool paused = false;
  bool excused = false;  ///< it stood still since its last word
  bool dialling = false;
  int life = 0;
  rounds::MemberId connection = 0;  ///< 0: none
  rounds::MemberState member;
  std::deque<std::variant<rounds::HeadMessage, SearchLoss>> inbox;
  int opening = rounds::kNoRound;  ///< a store for this round
  enum class Workers { kNone, kRunning, kEnding, kEndingNow, kGone };
  Workers workers = Workers::kNone;
  int workers_round = rounds::kNoRound;
  bool workers_well = false;
};

struct SearchOutbox {
  rounds::MemberId connection = 0;
  std::size_t agent = 0;
  int life = 0;  ///< of the agent, then
  std::deque<std::variant<rounds::AgentMessage, rounds::LossKind>> words;
};

enum class Choice {
  kDial,
  kHearHead,
  kHeadHears,
  kStoreOpens,
  kWorkersEndWell,
  kWorkersFail,
  kWorkersGone,
  kCrash,
  kLose,
  kRejoin,
  kPause,
  kResume,
  kTime,
};

struct SearchMove {
  Choice choice = Choice::kTime;
  std::size_t agent = 0;
};

class SearchWorld {
 public:
  explicit SearchWorld(const SearchScope& scope);

  std::vector<SearchMove> moves() const;
  /// @throws Violation
  void make(const SearchMove& move);
  bool is_over() const;
  /// Equal for situations that differ in nothing that matters from here on.
  Fingerprint fingerprint() const;
  static std::string describe(const SearchMove& move);
  void remember(std::string step) {
    way_ = std::make_shared<const Way>(Way{std::move(way_), std::move(step)});
  }
  std::vector<std::string> way() const;

 private:
  /// How this came about; shared by all branches.
  struct Way {
    std::shared_ptr<const Way> before;
    std::string step;
  };

  using Ids = std::vector<rounds::MemberId>;

  Fingerprint agent_print(std::size_t agent, const Ids& ids) const;
  Fingerprint head_print(const Ids& ids) const;
  Ids known_ids() const;
  /// As the head knows this life of it.
  std::uint64_t identity_of(std::size_t agent) const;
  static constexpr std::uint64_t kLives = 100;
  std::string describe_agents() const;
  void make_only(const SearchMove& move);
  void hear_what_has_no_answer();
  bool hear_without_answer(std::size_t agent);
  bool head_hears_in_vain();
  void head_hears(rounds::MemberId id);
  void get_on(const SearchMove& move);
  void end_workers(const SearchMove& move);
  void hurt(const SearchMove& move);
  rounds::MemberState new_member(std::size_t agent) const;
  void member_event(std::size_t agent, const rounds::MemberEvent& event);
  void obey(std::size_t agent, const std::vector<rounds::MemberAction>& actions);
  void say(std::size_t agent, const rounds::AgentMessage& message);
  void head_event(const rounds::HeadEvent& event);
  void send(const rounds::Send& send);
  void check_starts(const std::vector<rounds::HeadAction>& actions);
  void start_workers(std::size_t agent, const rounds::Start& start);
  void drop_connection(std::size_t agent, rounds::LossKind kind);
  void let_time_pass();
  bool something_is_under_way() const;
  SearchOutbox* outbox_of(rounds::MemberId connection);
  SearchOutbox& open_outbox(std::size_t agent, rounds::MemberId connection);

  std::vector<SearchAgent> agents_;
  std::vector<SearchOutbox> outboxes_;  ///< to the head, of all connections that were not drained
  rounds::HeadState head_;
  rounds::MemberId last_id_ = 0;
  rounds::Moment now_{};
  SearchScope left_;  ///< of the faults
  // What the head may not forget.
  int started_ = rounds::kNoRound;
  int done_in_ = rounds::kNoRound;
  bool closed_ = false;
  std::shared_ptr<const Way> way_;
};

}  // namespace dtrun::simulation
