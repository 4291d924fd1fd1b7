// The simulated world: nodes with agents that run the production round logic, fake workers, a
// network, an election, and faults, all on one thread and in virtual time. One object plays one
// scenario once.
#pragma once

#include <fmt/core.h>

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "agenda.h"
#include "node.h"
#include "referee.h"

namespace dtrun::simulation {

/// What happened in a run, as one number that is equal only for equal runs, and as lines where they
/// are asked for.
class Trace {
 public:
  enum class Output { kHashOnly, kLines };
  explicit Trace(Output output) : output_(output) {}

  void mix(std::uint64_t value) {
    hash_ = (hash_ ^ value) * 0x100000001b3ULL;
    hash_ ^= hash_ >> 29;
  }
  std::uint64_t hash() const { return hash_; }
  bool has_lines() const { return output_ == Output::kLines; }

  template <typename... Arguments>
  void line(Moment now, fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    if (!has_lines()) return;
    fmt::print("{:>14.6f}  {}\n", static_cast<double>(now.count()) / 1e9,
               fmt::format(format, std::forward<Arguments>(arguments)...));
  }

 private:
  Output output_;
  std::uint64_t hash_ = 0xcbf29ce484222325ULL;
};

struct Tally {
  std::array<std::int64_t, static_cast<std::size_t>(Fault::kCount)> faults{};
  std::int64_t steps = 0;     ///< of either state machine
  std::int64_t messages = 0;  ///< that arrived
  std::int64_t rounds = 0;
  std::int64_t restarts = 0;
  std::int64_t heads = 0;
  std::int64_t succeeded = 0;  ///< agents, by how they ended
  std::int64_t failed = 0;
  std::int64_t never_in = 0;
  Moment virtual_time{};

  void add(const Tally& other);
};

class World {
 public:
  World(const Scenario& scenario, Trace& trace);

  /// Plays to the end. @throws Violation
  void run();
  const Tally& tally() const { return tally_; }

 private:
  // --- world.cc: time, agents' processes, timers
  void happen(const Appointment& appointment);
  void dispatch(const Appointment& appointment);
  void arrange(Moment at, Happening what, int node, std::int64_t number = 0);
  void arrange_news(Moment at, Happening what, int node, std::int64_t number);
  void start_agent(int index);
  void end_agent_if_over(Node& node, int index);
  void member_timer(int index);
  void head_timer(int index);
  void arm_member(int index);
  void arm_head(int index);
  bool all_over() const;
  void check_that_all_ended() const;
  void dial_ends(int index, std::int64_t dial);

  // --- world_agents.cc: what the state machines say
  void member_event(int index, const rounds::MemberEvent& event);
  void begin_member(int index);
  void obey(int index, const std::vector<rounds::MemberAction>& actions);
  void act(int index, const rounds::Connect&);
  void act(int index, const rounds::Say& say);
  void act(int index, const rounds::Disconnect&);
  void act(int index, const rounds::OpenStore& open);
  void act(int index, const rounds::StartWorkers& start);
  void act(int index, const rounds::StopWorkers& stop);
  void act(int index, const rounds::Finish& finish);
  void act(int index, const rounds::MemberNote& note);
  void open_head(int index);
  void head_event(int index, const rounds::HeadEvent& event);
  void obey_head(int index, const std::vector<rounds::HeadAction>& actions);
  void check_not_forgotten(int index);

  // --- world_workers.cc
  void group_fate(std::size_t group);
  void group_gone(std::size_t group);
  void end_group(std::size_t group, Moment latest);
  void kill_groups(int index, Moment latest);
  void tell_gone(int index, std::size_t group);
  void tell_failed(int index, std::size_t group);
  void store_opens(int index, int round);
  bool is_broken(const WorkerGroup& group) const;
  rounds::JobFailure failure_of(const WorkerGroup& group) const;

  // --- world_network.cc
  Moment delay(const Connection& connection);
  bool same_node(const Connection& connection) const {
    return connection.member_node == connection.head_node;
  }
  Moment passable_at(int from, int to) const;
  void send_to_head(std::size_t connection, std::variant<rounds::AgentMessage, EndOfStream> what);
  void send_to_member(std::size_t connection, std::variant<rounds::HeadMessage, EndOfStream> what);
  void arrive_at_head(const Appointment& appointment);
  void arrive_at_member(const Appointment& appointment);
  template <typename Message>
  bool is_held_up(const Appointment& appointment, Pipe<Message>& pipe, int from, int to);
  void user_timeout_of_member(const Appointment& appointment);
  void user_timeout_of_head(const Appointment& appointment);
  void member_loses(std::size_t connection, rounds::LossKind kind, const std::string& why);
  void head_loses(std::size_t connection, rounds::LossKind kind, const std::string& why);
  void close_member_end(std::size_t connection, EndOfStream::Kind kind);
  void close_head_end(std::size_t connection, EndOfStream::Kind kind);
  void connect(int index, int head);

  // --- world_faults.cc
  void next_fault();
  void inject(Fault fault);
  bool hurt_node(Fault fault, int index);
  bool hurt_head(Fault fault);
  bool hurt_network(Fault fault, int index);
  bool stop_by_operator(int index, bool spared);
  bool fail_workers(int index);
  int some_running_node();
  std::optional<std::size_t> some_connection();
  void crash_agent(int index, Moment successor_after);
  void crash_node(int index);
  void power_on(int index);
  void pause(int index, Pause kind, Moment duration);
  void resume(int index);
  void cut(int index, bool both_ways);
  bool reset(bool both_ends);
  bool stall();
  bool may_happen(Fault fault) const;
  void repeat_old_words(std::size_t connection, int round);
  void repeat_old_head_words(std::size_t connection, int round);
  bool start_planned_node();
  Moment fault_duration(Moment longest);

  // --- world_election.cc
  void look_at_lease();
  void elect();
  bool reaches_etcd(const Node& node) const;
  void step_down_if_late(int index);
  void step_down_head(int index);
  void head_news(int index);

  // --- world_verdict.cc
  void judge(int index, const rounds::Send& send);
  void write_verdict(int index, std::int64_t head_key);
  void leave_verdict(const HostedHead& head);
  void tell_verdict(int index);
  void verdict_news(int index);
  void deliver(HostedHead& head, const rounds::Send& send);

  const Scenario& scenario_;
  Trace& trace_;
  RandomSource random_;
  Agenda agenda_;
  Referee referee_;
  Tally tally_;
  Moment now_{};
  std::vector<Node> nodes_;
  std::vector<WorkerGroup> groups_;
  std::vector<Connection> connections_;
  /// By head and round: some of its workers are gone, the others cannot finish.
  std::set<std::pair<int, int>> broken_;
  int next_head_key_ = 0;
  int starts_to_come_ = 0;
  /// By connection, the last few messages of earlier rounds, which may be sent once more.
  std::map<std::size_t, std::deque<rounds::HeadMessage>> old_head_words_;

  // What etcd holds.
  std::optional<int> leader_;
  Moment lease_expires_{};
  Moment lease_cut_until_{};
  int last_round_ = rounds::kNoRound;
  std::optional<rounds::Close> left_;  ///< the verdict: nobody is elected after it
  int left_by_ = 0;                    ///< the key of that head
};

}  // namespace dtrun::simulation
