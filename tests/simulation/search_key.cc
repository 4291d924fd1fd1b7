// What of a situation of the search matters from here on, as bytes: times as they are from now,
// texts not at all.
#include <algorithm>

#include "search_world.h"

namespace dtrun::simulation {
namespace {

using rounds::Moment;

class Bytes {
 public:
  template <typename Value>
  void add(Value value) {
    const auto number = static_cast<std::int32_t>(value);
    text.append(reinterpret_cast<const char*>(&number), sizeof number);
  }
  // What is long over is all the same.
  void add_time(Moment time, Moment now) {
    const std::int64_t units = (time - now).count() / 1000000000;
    add(std::clamp<std::int64_t>(units, -60, 1000));
  }
  void add_time(const std::optional<Moment>& time, Moment now) {
    add(time.has_value());
    if (time) add_time(*time, now);
  }
  std::string text;
};

void add_member(Bytes& bytes, const rounds::MemberState& member, Moment now) {
  bytes.add(member.phase);
  bytes.add(member.connected << 3 | member.accepted << 2 | member.workers << 1 |
            member.silence_told);
  bytes.add(member.round);
  bytes.add(member.group_rank);
  bytes.add(member.prepared);
  bytes.add_time(member.join_deadline, now);
  bytes.add_time(member.answer_deadline, now);
  bytes.add_time(member.beat_at, now);
  if (member.accepted) bytes.add_time(member.head_heard, now);
  bytes.add(member.verdict.kind);
}

template <typename Variant>
void add_word(Bytes& bytes, const Variant& word) {
  bytes.add(word.index());
  std::visit(
      [&](const auto& message) {
        if constexpr (requires { message.round; }) bytes.add(message.round);
        if constexpr (requires { message.group_rank; }) {
          bytes.add(message.group_rank);
          bytes.add(message.group_world_size);
        }
        if constexpr (requires { message.outcome; }) bytes.add(message.outcome);
      },
      word);
}

void add_head(Bytes& bytes, const rounds::HeadState& head, Moment now) {
  bytes.add(head.phase);
  for (const int number : {head.round, head.last_started, head.latest_seen, head.restarts,
                           head.present, head.participants, head.busy, head.done, head.told})
    bytes.add(number);
  bytes.add(head.somebody_done << 2 | head.somebody_missing << 1 | int{head.ended});
  bytes.add(head.drain_cause);
  bytes.add(head.own.value_or(0));
  for (const auto& deadline : {head.join_deadline, head.last_call, head.newcomers_since})
    bytes.add_time(deadline, now);
  bytes.add_time(std::max(head.fence, now), now);
  bytes.add_time(head.next_sweep, now);
  bytes.add_time(head.last_step, now);
  if (head.phase == rounds::HeadPhase::kClosed) bytes.add_time(head.close_deadline, now);
  for (const auto& [id, member] : head.members) {
    bytes.add(id);
    bytes.add_time(member.heard, now);
    bytes.add(member.group_rank);
    bytes.add(member.stopped << 2 | member.done << 1 | int{member.leaving});
    bytes.add(member.hello.last_round);
    bytes.add(member.hello.last_group_rank);
    bytes.add(member.hello.agent);
  }
}

}  // namespace

std::string SearchWorld::key() const {
  Bytes bytes;
  add_head(bytes, head_, now_);
  for (const int number : {left_.failures, left_.crashes, left_.losses, left_.rejoins, left_.pauses,
                           started_, done_in_, int{closed_}, last_id_})
    bytes.add(number);
  for (const SearchAgent& agent : agents_) {
    bytes.add(agent.alive << 5 | agent.finished << 4 | agent.paused << 3 | agent.excused << 2 |
              agent.dialling << 1 | int{agent.workers_well});
    bytes.add(agent.life);
    bytes.add(agent.connection);
    bytes.add(agent.opening);
    bytes.add(agent.workers);
    bytes.add(agent.workers_round);
    if (agent.alive && !agent.finished) add_member(bytes, agent.member, now_);
    bytes.add(agent.inbox.size());
    for (const auto& word : agent.inbox) {
      bytes.add(word.index());
      if (const auto* message = std::get_if<rounds::HeadMessage>(&word)) add_word(bytes, *message);
    }
  }
  // The order in which the connections first said something does not matter.
  std::vector<const SearchOutbox*> outboxes;
  for (const SearchOutbox& outbox : outboxes_) outboxes.push_back(&outbox);
  std::sort(outboxes.begin(), outboxes.end(), [](const SearchOutbox* a, const SearchOutbox* b) {
    return a->connection < b->connection;
  });
  for (const SearchOutbox* outbox : outboxes) {
    bytes.add(outbox->connection);
    bytes.add(outbox->words.size());
    for (const auto& word : outbox->words) {
      bytes.add(word.index());
      if (const auto* message = std::get_if<rounds::AgentMessage>(&word)) add_word(bytes, *message);
    }
  }
  return bytes.text;
}

}  // namespace dtrun::simulation
