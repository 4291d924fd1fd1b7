// Up to six agents, some of them liars, at one HeadSessions. Input: a byte of settings, then
// commands. A command's first byte says which agent (3 bits) and what: to come and say Hello, one
// of the other messages, raw bytes, to vanish, time that passes. What must hold after each command:
// - every agent is sent whole messages, Accepted or Refused first, nothing after it was parted
// with;
// - the ranks of a round are given out once each, to no more agents than allowed, and to no fewer;
// - no round starts while an agent that is here has not said that its workers of the last one are
//   gone;
// - the head's counts are those of its members; no more newcomers than allowed;
// - once time has passed the head wants to be woken later than now.
#include "rounds/head_sessions.h"

#include <array>
#include <map>
#include <set>

#include "fuzz/fuzz_input.h"
#include "rounds/agent_protocol.h"

namespace dtrun::fuzz {
namespace {

using namespace rendezvous;
using namespace rendezvous::rounds;

constexpr std::size_t kAgents = 6;
constexpr std::size_t kNewcomers = 4;

struct Agent {
  std::optional<MemberId> id;
  bool answered_handshake = false;
  std::string heard;  // of what the head sent, not a whole message yet
  bool accepted = false;
  bool refused = false;
  int live_round = kNoRound;  // its workers may live
};

class Conversation {
 public:
  explicit Conversation(FuzzInput input)
      : input_(input),
        settings_(settings(input_.byte())),
        sessions_(make(), {}, limits(), [](MemberId) { return std::string("10.0.0.1"); }) {}

  void run() {
    while (!input_.empty()) {
      const std::uint8_t command = input_.byte();
      Agent& agent = agents_[command % 8 % kAgents];
      const std::uint8_t what = command / 8;
      if (what < 24) {
        say(agent, message(what));
      } else if (what < 27) {
        come(agent);
      } else if (what < 28) {
        give(agent, input_.take(input_.byte() % 64));
      } else if (what < 30) {
        vanish(agent, what == 28 ? LossKind::kGone : LossKind::kSilent);
      } else {
        pass(what == 30 ? std::chrono::milliseconds(10 * input_.byte())
                        : std::chrono::seconds(input_.byte()));
      }
      carry_out();
      check();
    }
  }

 private:
  static RoundSettings settings(std::uint8_t byte) {
    RoundSettings settings;
    settings.max_nodes = 1 + byte % 4;
    settings.min_nodes = 1 + byte / 4 % 4 % settings.max_nodes;
    settings.max_restarts = byte / 16 % 4;
    settings.last_call_timeout = std::chrono::seconds(1);
    return settings;
  }
  HeadState make() { return make_head(settings_, "job", now_); }
  static HeadSessions::Limits limits() {
    HeadSessions::Limits limits;
    limits.newcomers = kNewcomers;
    limits.unsent_bytes = 4096;
    return limits;
  }

  AgentMessage message(std::uint8_t what) {
    const std::uint8_t byte = input_.byte();
    const int round = byte % 4 == 0 ? byte / 4 - 1 : sessions_.head().round;
    JobFailure failure;
    failure.text = "it failed";
    switch (what) {
      case 0:
      case 1:
        return Beat{};
      case 2:
      case 3:
      case 4:
      case 5:
        return StoreReady{round, byte % 2 ? "" : "n1", 7};
      case 6:
      case 7:
        return Failed{round, failure};
      case 8:
      case 9:
      case 10:
        return Done{round};
      case 11:
        return Leaving{failure};
      case 12:
      case 13:
      case 14:
      case 15:
        return Stopped{round};
      case 16:
        return WorkerEnd{.round = round, .host = "h", .error_file = "", .text = ""};
      default:
        return hello(byte);
    }
  }

  AgentMessage hello(std::uint8_t byte) {
    Hello hello;
    hello.run_id = byte % 32 == 0 ? "other" : "job";
    hello.host = std::string("h") + static_cast<char>('0' + byte % 4);
    hello.min_nodes = settings_.min_nodes;
    hello.max_nodes = settings_.max_nodes;
    hello.agent = byte / 4 % 8;
    hello.connection = byte % 3;
    if (byte >= 224) hello.node_rank = byte % 4;
    if (byte >= 128) hello.last_round = sessions_.head().round;
    hello.last_group_rank = byte / 32 % 4 - 1;
    hello.last_group_size = 1 + byte % 4;
    if (byte >= 192) hello.done_round = hello.last_round;
    return hello;
  }

  void come(Agent& agent) {
    if (agent.id) return;
    agent = {};
    agent.id = sessions_.open({}, now_);
    sessions_.receive(*agent.id,
                      std::string_view("\xd7\x07\x00\x06"
                                       "agents",
                                       10),
                      now_);
  }

  void say(Agent& agent, const AgentMessage& message) {
    std::string bytes;
    encode(message, bytes);
    // What it claims of its workers counts from the moment at which it says it.
    if (const auto* stopped = std::get_if<Stopped>(&message);
        stopped && stopped->round == agent.live_round)
      agent.live_round = kNoRound;
    if (const auto* done = std::get_if<Done>(&message); done && done->round == agent.live_round)
      agent.live_round = kNoRound;
    give(agent, bytes);
  }

  void give(Agent& agent, std::string_view bytes) {
    if (agent.id) sessions_.receive(*agent.id, bytes, now_);
  }

  void vanish(Agent& agent, LossKind kind) {
    if (!agent.id) return;
    const MemberId id = *agent.id;
    agent = {};
    sessions_.lose(id, kind, "it vanished", now_);
  }

  void pass(Moment time) {
    now_ += time;
    sessions_.tick(now_);
    carry_out();
    FUZZ_CHECK(sessions_.deadline() > now_, "it wants to be woken at once, again");
  }

  void carry_out() {
    for (HeadEffects effects = sessions_.take_effects(); !effects.empty();
         effects = sessions_.take_effects()) {
      std::map<int, std::map<int, Start>> starts;
      for (const MemberId id : effects.written) hear(id, starts);
      for (const auto& [round, all] : starts) check_round(round, all);
      for (const auto& [id, prepare] : effects.opening) sessions_.open_round(id, prepare);
      if (effects.verdict) sessions_.tell_verdict();
      for (const auto& [id, parting] : effects.parted) {
        FUZZ_CHECK(parted_.insert(id).second, "parted with twice");
        sessions_.forget(id);
        for (Agent& agent : agents_)
          if (agent.id == id) agent = {};
      }
    }
  }

  // What the agent reads.
  void hear(MemberId id, std::map<int, std::map<int, Start>>& starts) {
    AgentSession* session = sessions_.find(id);
    if (session == nullptr) return;
    Agent* agent = nullptr;
    for (Agent& one : agents_)
      if (one.id == id) agent = &one;
    if (agent == nullptr) return;
    agent->heard += session->unsent();
    session->drop_unsent();
    std::string_view left = agent->heard;
    if (!agent->answered_handshake && left.size() >= 3) {
      FUZZ_CHECK(left.starts_with("\xd7\x07") && left[2] == 0, "another answer to the handshake");
      left.remove_prefix(3);
      agent->answered_handshake = true;
    }
    std::string failure;
    while (const auto message = take_message<HeadMessage>(left, failure))
      hear(*agent, *message, starts);
    FUZZ_CHECK(failure.empty(), failure);
    FUZZ_CHECK(left.empty(), "a part of a message");
    agent->heard.clear();
  }

  void hear(Agent& agent, const HeadMessage& message, std::map<int, std::map<int, Start>>& starts) {
    FUZZ_CHECK(!agent.refused, "it is refused and still told");
    if (std::holds_alternative<Accepted>(message)) {
      FUZZ_CHECK(!agent.accepted, "it is accepted twice");
      agent.accepted = true;
    } else if (std::holds_alternative<Refused>(message)) {
      FUZZ_CHECK(!agent.accepted, "it is accepted and refused");
      agent.refused = true;
    } else {
      FUZZ_CHECK(agent.accepted, "it is told before it is accepted");
    }
    if (const auto* start = std::get_if<Start>(&message)) {
      FUZZ_CHECK(agent.live_round == kNoRound, "its workers of an earlier round may live");
      agent.live_round = start->round;
      FUZZ_CHECK(starts[start->round].emplace(start->group_rank, *start).second,
                 "two agents have one rank");
    }
  }

  void check_round(int round, const std::map<int, Start>& starts) {
    FUZZ_CHECK(round > last_round_, "a round is opened again");
    last_round_ = round;
    const int nodes = static_cast<int>(starts.size());
    FUZZ_CHECK(nodes >= settings_.min_nodes, "too few nodes");
    FUZZ_CHECK(nodes <= settings_.max_nodes, "too many nodes");
    int rank = 0;
    for (const auto& [group_rank, start] : starts) {
      FUZZ_CHECK(group_rank == start.group_rank && group_rank < nodes, "a rank out of range");
      FUZZ_CHECK(start.group_world_size == nodes, "another number of nodes");
      FUZZ_CHECK(start.base_rank == rank, "ranks with gaps");
      rank += 1;
    }
    for (const Agent& agent : agents_)
      FUZZ_CHECK(!agent.id || agent.live_round == kNoRound || agent.live_round == round,
                 "another agent's workers of an earlier round may live");
  }

  void check() {
    const HeadState& head = sessions_.head();
    int present = 0, participants = 0, busy = 0, done = 0;
    for (const auto& [id, member] : head.members) {
      present += !member.leaving;
      participants += member.participant();
      const bool started = head.phase == HeadPhase::kRunning || head.phase == HeadPhase::kDraining;
      busy += started && member.participant() && !member.stopped;
      done += member.participant() && member.done;
      FUZZ_CHECK(sessions_.find(id) != nullptr, "a member without a connection");
    }
    FUZZ_CHECK(present == head.present, "members counted that are not there");
    FUZZ_CHECK(head.phase == HeadPhase::kClosed || participants == head.participants,
               "participants counted that are not there");
    FUZZ_CHECK(head.phase == HeadPhase::kClosed || busy == head.busy, "the busy are miscounted");
    FUZZ_CHECK(head.phase == HeadPhase::kClosed || done == head.done, "the done are miscounted");
    std::size_t newcomers = 0;
    for (const Agent& agent : agents_) newcomers += agent.id && !agent.accepted;
    FUZZ_CHECK(newcomers <= kNewcomers, "too many newcomers");
  }

  FuzzInput input_;
  Moment now_ = std::chrono::hours(1);
  const RoundSettings settings_;
  HeadSessions sessions_;
  std::array<Agent, kAgents> agents_;
  std::set<MemberId> parted_;
  int last_round_ = kNoRound;
};

}  // namespace
}  // namespace dtrun::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  dtrun::fuzz::Conversation(dtrun::fuzz::FuzzInput(data, size)).run();
  return 0;
}
