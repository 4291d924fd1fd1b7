// What of a situation of the search matters from here on, as a fingerprint. Two situations have the
// same one where no sequence of events could tell them apart:
// - times are as they are from now, rounds as they are from the head's; connections have the number
//   of their place in the order in which they were made; texts do not count;
// - the agents that do not host stand in the order of their own fingerprints: they are alike;
// - nothing is left of the dead, the finished, a head that has ended, and little of a closed one.
#include <algorithm>

#include "search_world.h"

namespace dtrun::simulation {
namespace {

using rounds::MemberId;
using rounds::Moment;

// A sum of its own: the reader of a field need not know which came before.
class Key {
 public:
  Key(Moment now, int round) : now_(now), round_(round) {}

  template <typename Number>
  void add(Number number) {
    print.add(static_cast<std::int64_t>(number));
  }
  void add_print(const Fingerprint& other) { print.add(other); }
  // What is long over is all the same.
  void add_time(Moment time) {
    const std::int64_t units = (time - now_).count() / 1'000'000'000;
    add(std::clamp<std::int64_t>(units, -60, 1000));
  }
  void add_time(const std::optional<Moment>& time) {
    add(time.has_value());
    if (time) add_time(*time);
  }
  void add_round(int round) { add(round == rounds::kNoRound ? -1000 : round - round_); }

  template <typename Variant>
  void add_word(const Variant& word) {
    add(word.index());
    std::visit([&](const auto& message) { add_message(message); }, word);
  }

  Fingerprint print;

 private:
  template <typename Message>
  void add_message(const Message& message) {
    if constexpr (requires { message.round; }) add_round(message.round);
    if constexpr (requires { message.group_rank; }) {
      add(message.group_rank);
      add(message.group_world_size);
    }
    if constexpr (requires { message.outcome; }) add(message.outcome);
    if constexpr (requires { message.last_round; }) {
      add_round(message.last_round);
      add_round(message.done_round);
      add(message.connection);
      add(message.last_group_rank);
    }
  }

  const Moment now_;
  const int round_;
};

// Its silence is told to its operator, and nothing follows from that.
void add_member(Key& key, const rounds::MemberState& member) {
  key.add(member.phase);
  key.add(member.connected << 2 | member.accepted << 1 | int{member.workers});
  key.add_round(member.round);
  key.add(member.group_rank);
  key.add_round(member.prepared);
  key.add_round(member.settings.hello.done_round);
  key.add(member.settings.hello.connection);
  key.add_time(member.join_deadline);
  key.add_time(member.answer_deadline);
  key.add_time(member.beat_at);
  key.add(member.verdict.kind);
}

std::ptrdiff_t place_of(MemberId id, const std::vector<MemberId>& ids) {
  return std::lower_bound(ids.begin(), ids.end(), id) - ids.begin();
}

}  // namespace

Fingerprint SearchWorld::agent_print(std::size_t index, const Ids& ids) const {
  const SearchAgent& agent = agents_[index];
  Key key(now_, head_.round);
  const bool working = agent.workers != SearchAgent::Workers::kNone;
  key.add(agent.alive << 1 | int{agent.finished});
  if (working) {
    key.add(agent.workers);
    key.add_round(agent.workers_round);
  }
  key.add(agent.alive || working ? agent.excused : 0);
  const std::uint64_t name = identity_of(index);
  if (!head_.ended) {
    // Those of its former lives do not come back.
    Moment former = Moment::min(), owed = Moment::min();
    bool lost = false;
    for (std::uint64_t life = name % kLives; life < name; life += kLives) {
      former = std::max(former, head_.absent.of(life));
      owed = std::max(owed, head_.owed.of(life));
      lost |= head_.lost_agents.contains(life);
    }
    key.add_time(std::max(former, now_));
    key.add_time(std::max(head_.absent.of(name), now_));
    key.add_time(std::max(owed, now_));
    key.add_time(std::max(head_.owed.of(name), now_));
    key.add(lost << 1 | int{head_.lost_agents.contains(name)});
    const auto last = head_.connections.find(name);
    key.add(last == head_.connections.end() ? -1 : last->second);
  }
  if (!head_.ended)
    for (const auto& [id, member] : head_.members)
      if (member.hello.agent % kLives == name % kLives)
        key.add(place_of(id, ids) << 1 | std::ptrdiff_t{member.hello.agent == name});
  for (const SearchOutbox& outbox : outboxes_)
    if (outbox.agent == index)
      key.add(place_of(outbox.connection, ids) << 1 | std::ptrdiff_t{outbox.life == agent.life});
  if (!agent.alive || agent.finished) return key.print;
  key.add(agent.paused << 2 | agent.dialling << 1 | int{agent.workers_well});
  key.add(agent.connection == 0 ? -1 : place_of(agent.connection, ids));
  key.add_round(agent.opening);
  add_member(key, agent.member);
  for (const auto& word : agent.inbox) {
    key.add(word.index());
    if (const auto* message = std::get_if<rounds::HeadMessage>(&word)) key.add_word(*message);
  }
  return key.print;
}

Fingerprint SearchWorld::head_print(const Ids& ids) const {
  Key key(now_, head_.round);
  const rounds::HeadState& head = head_;
  key.add(head.ended);
  if (head.ended) return key.print;
  const bool closed = head.phase == rounds::HeadPhase::kClosed;
  key.add(head.phase);
  key.add_time(head.next_sweep);
  key.add_time(head.last_step);
  key.add(head.own ? place_of(*head.own, ids) : -1);
  if (closed) {
    key.add_time(head.close_deadline);
    key.add(head.verdict.outcome);
    key.add(head.last_started == rounds::kNoRound);
  } else {
    key.add_round(head.last_started);
    key.add_round(head.latest_seen);
    for (const int number : {head.restarts, head.present, head.participants, head.busy, head.done})
      key.add(number);
    key.add(head.somebody_done << 2 | head.somebody_left << 1 | int{head.somebody_missing});
    key.add(head.drain_cause);
    for (const auto& deadline : {head.join_deadline, head.last_call, head.newcomers_since})
      key.add_time(deadline);
    key.add_time(std::max(head.fence, now_));
    key.add(rounds::fence_of(head) > head.last_step);
    key.add_round(started_);
    key.add_round(done_in_);
  }
  for (const auto& [id, member] : head.members) {
    key.add(place_of(id, ids));
    key.add_time(member.heard);
    if (closed) key.add(member.done);
    if (closed) continue;
    key.add(member.group_rank);
    const bool failed = head.phase == rounds::HeadPhase::kDraining && head.failed == id;
    key.add(failed << 3 | member.stopped << 2 | member.done << 1 | int{member.leaving});
    key.add_round(member.hello.last_round);
    key.add(member.hello.last_group_rank);
  }
  return key.print;
}

Fingerprint SearchWorld::fingerprint() const {
  const Ids ids = known_ids();
  Key key(now_, head_.round);
  for (const int number :
       {left_.failures, left_.crashes, left_.losses, left_.rejoins, left_.pauses, int{closed_}})
    key.add(number);
  key.add_print(head_print(ids));
  std::vector<Fingerprint> prints;
  for (std::size_t i = 0; i < agents_.size(); ++i) prints.push_back(agent_print(i, ids));
  std::sort(prints.begin() + 1, prints.end());
  for (const Fingerprint& print : prints) key.add_print(print);
  // The order in which the connections first said something does not matter.
  std::vector<const SearchOutbox*> outboxes;
  for (const SearchOutbox& outbox : outboxes_) outboxes.push_back(&outbox);
  std::sort(outboxes.begin(), outboxes.end(), [](const SearchOutbox* a, const SearchOutbox* b) {
    return a->connection < b->connection;
  });
  for (const SearchOutbox* outbox : outboxes) {
    key.add(place_of(outbox->connection, ids));
    for (const auto& word : outbox->words) {
      key.add(word.index());
      if (const auto* message = std::get_if<rounds::AgentMessage>(&word)) key.add_word(*message);
    }
  }
  return key.print;
}

}  // namespace dtrun::simulation
