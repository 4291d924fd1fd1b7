// The parts of the simulated world: nodes with their agents, worker groups and heads, and the
// connections between them. Plain data; the world (world.h) moves it.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <variant>
#include <vector>

#include "dtrun/rendezvous/round_head.h"
#include "dtrun/rendezvous/round_member.h"
#include "scenario.h"

namespace dtrun::simulation {

namespace rounds = rendezvous::rounds;

/// The workers of one agent in one round.
struct WorkerGroup {
  int node = -1;
  int life = 0;  ///< of the agent that started them
  int round = rounds::kNoRound;
  int head_life = 0;  ///< whose round it is
  Moment started{};
  enum class Phase { kRunning, kEnding, kGone };
  Phase phase = Phase::kRunning;
  bool succeeded = false;
  Moment gone_at{};      ///< of kEnding
  bool excused = false;  ///< its agent had stood still unheard when it was killed
};

/// The end of a connection in one direction.
struct EndOfStream {
  enum class Kind { kClosed, kReset };
  Kind kind = Kind::kClosed;
};
template <typename Message>
struct Parcel {
  Moment sent{};
  std::variant<Message, EndOfStream> content;
};
template <typename Message>
struct Pipe {
  std::deque<Parcel<Message>> parcels;
  Moment last_arrival{};
  bool timed = false;  ///< a user timeout is arranged for it
};

struct Connection {
  int member_node = -1;
  int member_life = 0;
  int head_node = -1;
  int head_life = 0;
  rounds::MemberId id = 0;
  bool member_open = true;
  bool head_open = true;
  Moment user_timeout = std::chrono::seconds(5);
  Pipe<rounds::AgentMessage> to_head;
  Pipe<rounds::HeadMessage> to_member;
};

struct HostedHead {
  rounds::HeadState state;
  int key = 0;  ///< of all heads that ever were
  bool ended = false;
  std::map<rounds::MemberId, std::size_t> connections;
  rounds::MemberId last_id = 0;
  Moment armed = Moment::max();
  /// Where it is elected: its verdict, which nobody hears before it is in etcd (as HeadSessions).
  enum class Verdict { kNone, kIsKept, kMayBeTold } verdict = Verdict::kNone;
  bool is_writing = false;
  Moment write_until{};  ///< by the truth; then it is told without
  std::vector<rounds::Send> untold;
};

enum class Pause { kNone, kProcess, kMachine };

struct Node {
  NodePlan plan;
  bool powered = true;
  bool running = false;  ///< its agent's process is there
  int life = 0;
  bool ever_started = false;
  Pause pause = Pause::kNone;
  Moment paused_since{};
  Moment pause_end = Moment::min();  ///< of the last one; in the future: it stands still
  std::vector<Appointment> postponed;
  Moment last_heard_by_head{};
  Moment cut_out{};  ///< nothing leaves it before
  Moment cut_in{};   ///< nothing reaches it before
  Moment slowness{};

  rounds::MemberState member;
  bool finished = false;
  rounds::Finish finish;
  Moment armed = Moment::max();
  std::optional<std::size_t> connection;
  std::int64_t dials = 0;
  bool dialling = false;
  std::vector<std::size_t> groups;  ///< that may live
  int news = 0;                     ///< of its workers and stores, that its agent is going to hear
  std::optional<HostedHead> head;
  std::optional<int> known_head;  ///< the node that this agent takes for the head
  Moment lease_refreshed{};       ///< of a head, by the truth

  /// It stands still, or did so after the head had last heard of it.
  bool stood_still_unheard() const {
    return pause != Pause::kNone || pause_end > last_heard_by_head;
  }
};

}  // namespace dtrun::simulation
