// The rules of the game, checked at every step of every head and member against what really
// happens in the world. It keeps books of its own and trusts no state of the machines under test.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "node.h"
#include "violation.h"

namespace dtrun::simulation {

class Referee {
 public:
  explicit Referee(const Scenario& scenario);

  // --- heads
  void head_opens(int key, int node, Moment now);
  /// Before its actions are obeyed.
  void head_steps(int key, const Node& host, const rounds::HeadEvent& event,
                  const std::vector<rounds::HeadAction>& actions, Moment now);
  void head_stood_still(int key, Moment since, Moment until);

  void verdict_told(int node, const rounds::Close& close);
  /// In etcd, for all.
  void verdict_left(const rounds::Close& close);
  void tells_unwritten() { told_unwritten_ = true; }

  // --- members and their workers
  void member_says(int node, const rounds::AgentMessage& message);
  void agent_starts(int node);
  void workers_start(const std::vector<Node>& nodes, const std::vector<WorkerGroup>& groups,
                     int node, int head_life, const rounds::Start& start);
  void workers_gone(const WorkerGroup& group);
  void member_finishes(const Node& node, int index, const std::vector<WorkerGroup>& groups,
                       const rounds::Finish& finish);
  void run_ends(const std::vector<Node>& nodes) const;

  std::int64_t rounds() const { return rounds_; }
  std::int64_t restarts() const { return restarts_; }

 private:
  struct MemberBook {
    rounds::Hello hello;
    Moment heard{};
    bool stopped = true;  ///< of the round that was started last
    bool lost = false;
    bool told_end = false;  ///< Close or Refused
    bool leaving = false;
    int sent_round = rounds::kNoRound;
  };
  struct HeadBook {
    int node = -1;
    std::map<rounds::MemberId, MemberBook> members;
    std::optional<rounds::Close> closed;
    bool told = false;
    int round = rounds::kNoRound;  ///< started last
    int prepared = rounds::kNoRound;
    int ready = rounds::kNoRound;           ///< whose store is open
    std::map<std::uint64_t, int> restarts;  ///< as last told; of each agent, or the job (0)
    rounds::HeadPhase phase{};              ///< after its last step
    Moment drained_at{};                    ///< when the round had been stopped, by its clock
    Moment prepared_at{};
    std::set<rounds::MemberId> participants;  ///< of round
    std::map<std::uint64_t, int> ranks;       ///< of round, by agent
    std::set<rounds::MemberId> done;
    bool failed = false;  ///< a Failed of round has been heard, or, where nodes are fixed, a loss
    std::optional<rounds::JobFailure> worker_failure;  ///< the first of round, while it ran
    /// Of the round before, where that ended for it within alike_window.
    std::optional<rounds::JobFailure> quick_failure_before;
    Moment running_since{};  ///< by its clock
    Moment ran_until{};
    bool draining = false;
    std::vector<std::pair<Moment, Moment>> still;  ///< pauses of its own
  };

  void hear(HeadBook& head, const rounds::Said& said, Moment now);
  void hear_in_round(HeadBook& head, rounds::MemberId id, const rounds::AgentMessage& message);
  void lose(HeadBook& head, rounds::MemberId id, Moment now);
  void check_send(HeadBook& head, const rounds::Send& send);
  void check_hang_up(HeadBook& head, const rounds::HeadEvent& event, rounds::MemberId id,
                     Moment now);
  void check_open(const HeadBook& head, int round, const char* what) const;
  void check_start(HeadBook& head, const std::map<rounds::MemberId, const rounds::Start*>& starts,
                   Moment now);
  void check_ranks(const HeadBook& head,
                   const std::map<rounds::MemberId, const rounds::Start*>& starts) const;
  void check_survivors(const HeadBook& head,
                       const std::map<rounds::MemberId, const rounds::Start*>& starts) const;
  void note_phase(HeadBook& head, const Node& node, Moment now);
  int check_budget(HeadBook& head, const std::map<rounds::MemberId, const rounds::Start*>& starts);
  void check_worth(HeadBook& head, int round) const;
  void check_close(HeadBook& head, const rounds::Close& close);
  void check_success_of_former_round() const;
  void check_done_under_former_head(const HeadBook& head, int round) const;
  /// Before the first round of an elected head: one whom it has heard; null: there is none.
  const MemberBook* who_was_done(const HeadBook& head) const;
  void is_done(int node, int round);
  void check_that_all_are_told(const HeadBook& head) const;
  Moment ran_since(const HeadBook& head, Moment since, Moment now) const;

  const Scenario& scenario_;
  std::map<int, HeadBook> heads_;
  int last_round_ = rounds::kNoRound;       ///< of any head
  int last_size_ = 0;                       ///< of that round, in nodes
  int prepared_ = rounds::kNoRound;         ///< of any head
  int prepared_before_ = rounds::kNoRound;  ///< the one before that
  int done_in_ = rounds::kNoRound;          ///< the last round in which Done was said
  std::set<std::uint64_t> done_agents_;     ///< in it, and not stopped afterwards
  std::map<int, std::uint64_t> agent_of_;   ///< by node
  std::optional<rounds::Close> left_;       ///< verdict_left()
  bool told_unwritten_ = false;
  std::set<std::uint64_t> told_well_;                ///< by a head: that the job has ended well
  std::map<std::tuple<int, int, int>, int> owners_;  ///< head's life, round, group rank: node
  std::map<int, int> said_round_;                    ///< by node, of its present agent
  std::set<std::pair<int, int>> finished_rounds_;  ///< round and group rank: its workers ended well
  std::int64_t rounds_ = 0;
  std::int64_t restarts_ = 0;
};

}  // namespace dtrun::simulation
