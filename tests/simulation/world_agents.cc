// What the state machines say, and what the drivers of production (Membership, HeadService, the
// agent) make of it.
#include <algorithm>

#include "words.h"
#include "world.h"

namespace dtrun::simulation {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

void World::begin_member(int index) {
  Node& node = nodes_[static_cast<std::size_t>(index)];
  obey(index, rounds::begin(node.member, node.plan.clock.local(now_)));
}

void World::member_event(int index, const rounds::MemberEvent& event) {
  Node& node = nodes_[static_cast<std::size_t>(index)];
  if (!node.running || node.finished) return;
  ++tally_.steps;
  const rounds::MemberPhase before = node.member.phase;
  const auto actions = rounds::step(node.member, event, node.plan.clock.local(now_));
  trace_.mix(static_cast<std::uint64_t>(node.member.phase) << 8 | actions.size());
  if (node.member.phase != before)
    trace_.line(now_, "node {}: member {} -> {}", index, name_of(before),
                name_of(node.member.phase));
  obey(index, actions);
}

void World::obey(int index, const std::vector<rounds::MemberAction>& actions) {
  const int life = nodes_[static_cast<std::size_t>(index)].life;
  for (const rounds::MemberAction& action : actions) {
    Node& node = nodes_[static_cast<std::size_t>(index)];
    if (node.life != life || node.finished)
      throw Violation("finish is the last action", fmt::format("node {} acts after it", index));
    std::visit([&](const auto& what) { act(index, what); }, action);
  }
  Node& node = nodes_[static_cast<std::size_t>(index)];
  arm_member(index);
  check_not_forgotten(index);
  end_agent_if_over(node, index);
}

// Whoever neither waits for a moment nor for somebody's word is forgotten.
void World::check_not_forgotten(int index) {
  const Node& node = nodes_[static_cast<std::size_t>(index)];
  if (!node.running || node.finished || node.connection || node.dialling || node.news > 0) return;
  const bool workers = std::any_of(node.groups.begin(), node.groups.end(), [&](std::size_t group) {
    return groups_[group].life == node.life;
  });
  if (workers || rounds::member_deadline(node.member) != Moment::max()) return;
  throw Violation("nobody is forgotten",
                  fmt::format("node {}: {} without connection, dial, workers or deadline", index,
                              name_of(node.member.phase)));
}

void World::act(int index, const rounds::Connect&) {
  Node& node = nodes_[static_cast<std::size_t>(index)];
  node.dialling = true;
  Moment after = random_.between(milliseconds(5), milliseconds(1000));
  if (node.known_head == index) after = random_.between(microseconds(10), milliseconds(5));
  // A dial into a cut network takes its time to fail.
  if (node.known_head && *node.known_head != index &&
      passable_at(index, *node.known_head) > now_ + after)
    after += random_.between(seconds(1), seconds(5));
  arrange(now_ + after, Happening::kDialEnds, index, ++node.dials);
}

void World::act(int index, const rounds::Say& say) {
  Node& node = nodes_[static_cast<std::size_t>(index)];
  trace_.line(now_, "node {}: says {}", index, text_of(say.message));
  if (!node.connection)
    throw Violation("who speaks is connected",
                    fmt::format("node {} says {}", index, text_of(say.message)));
  referee_.member_says(index, say.message);
  const bool hello = std::holds_alternative<rounds::Hello>(say.message);
  const std::size_t connection = *node.connection;
  if (round_of(say.message) >= 0) repeat_old_words(connection, round_of(say.message));
  send_to_head(connection, say.message);
  if (round_of(say.message) >= 0) repeat_old_words(connection, round_of(say.message));
  if (!hello || !random_.chance(scenario_.double_hello_permille)) return;
  ++tally_.faults[static_cast<std::size_t>(Fault::kDoubleHello)];
  send_to_head(connection, say.message);
}

void World::act(int index, const rounds::Disconnect&) {
  Node& node = nodes_[static_cast<std::size_t>(index)];
  if (!node.connection) return;
  trace_.line(now_, "node {}: disconnects", index);
  close_member_end(*node.connection, EndOfStream::Kind::kClosed);
}

void World::act(int index, const rounds::OpenStore& open) {
  arrange_news(now_ + random_.between(microseconds(50), milliseconds(20)), Happening::kStoreOpens,
               index, open.round);
}

void World::act(int index, const rounds::StartWorkers& start) {
  Node& node = nodes_[static_cast<std::size_t>(index)];
  const Connection& connection = connections_[node.connection.value()];
  const int head_life = connection.head_node << 16 | connection.head_life;
  referee_.workers_start(nodes_, groups_, index, head_life, start.start);
  trace_.line(now_, "node {}: starts workers of round {}", index, start.start.round);
  const std::size_t group = groups_.size();
  groups_.push_back({.node = index,
                     .life = node.life,
                     .round = start.start.round,
                     .head_life = head_life,
                     .started = now_});
  node.groups.push_back(group);
  const bool calm = now_ >= scenario_.faults_until;
  const Moment most =
      calm ? std::min<Moment>(scenario_.work_high, seconds(20)) : scenario_.work_high;
  const Moment fate = random_.between(std::min(scenario_.work_low, most), most);
  arrange(now_ + fate, Happening::kGroupFate, index, static_cast<std::int64_t>(group));
}

void World::act(int index, const rounds::StopWorkers& stop) {
  Node& node = nodes_[static_cast<std::size_t>(index)];
  for (const std::size_t group : node.groups) {
    if (groups_[group].life != node.life || groups_[group].round != stop.round) continue;
    trace_.line(now_, "node {}: stops workers of round {}", index, stop.round);
    const bool now = stop.urgency == rounds::StopUrgency::kNow;
    Moment takes = random_.between(microseconds(500), Moment(milliseconds(now ? 50 : 300)));
    if (!now && random_.chance(scenario_.hanging_permille)) {
      ++tally_.faults[static_cast<std::size_t>(Fault::kHang)];
      takes = scenario_.stop_grace;  // SIGKILL
    }
    end_group(group, now_ + takes);
  }
}

void World::act(int index, const rounds::Finish& finish) {
  Node& node = nodes_[static_cast<std::size_t>(index)];
  trace_.line(now_, "node {}: finishes, {} {}{}", index, static_cast<int>(finish.kind),
              finish.kind == rounds::Finish::Kind::kFailed ? finish.failure.describe() : "",
              finish.error ? finish.error->what() : "");
  referee_.member_finishes(node, index, groups_, finish);
  node.finished = true;
  node.finish = finish;
  ++(finish.kind == rounds::Finish::Kind::kSucceeded ? tally_.succeeded
     : finish.kind == rounds::Finish::Kind::kError   ? tally_.never_in
                                                     : tally_.failed);
  if (node.connection) close_member_end(*node.connection, EndOfStream::Kind::kClosed);
}

void World::act(int index, const rounds::MemberNote& note) {
  trace_.line(now_, "node {}: notes: {}", index, note.text);
}

// --- heads
void World::open_head(int index) {
  Node& node = nodes_[static_cast<std::size_t>(index)];
  HostedHead& head = node.head.emplace();
  head.key = ++next_head_key_;
  ++tally_.heads;
  head.state = rounds::make_head(scenario_.settings, "job", node.plan.clock.local(now_));
  head.state.contradiction = rounds::Contradiction::kIsSentAway;
  if (scenario_.meeting == Meeting::kElected)
    rounds::take_over(head.state, last_round_, node.plan.clock.local(now_));
  trace_.line(now_, "node {}: is the head ({})", index, head.key);
  referee_.head_opens(head.key, index, now_);
  arm_head(index);
}

void World::head_event(int index, const rounds::HeadEvent& event) {
  Node& node = nodes_[static_cast<std::size_t>(index)];
  if (!node.running || !node.head || node.head->ended) return;
  ++tally_.steps;
  const rounds::HeadPhase before = node.head->state.phase;
  const auto actions = rounds::step(node.head->state, event, node.plan.clock.local(now_));
  trace_.mix(static_cast<std::uint64_t>(node.head->state.phase) << 16 | actions.size());
  if (node.head->state.phase != before)
    trace_.line(now_, "node {}: head {} -> {}", index, name_of(before),
                name_of(node.head->state.phase));
  referee_.head_steps(node.head->key, node, event, actions, now_);
  obey_head(index, actions);
}

void World::obey_head(int index, const std::vector<rounds::HeadAction>& actions) {
  for (const rounds::HeadAction& action : actions) {
    Node& node = nodes_[static_cast<std::size_t>(index)];
    HostedHead& head = *node.head;
    if (const auto* note = std::get_if<rounds::Note>(&action)) {
      trace_.line(now_, "node {}: head notes: {}", index, note->text);
    } else if (std::holds_alternative<rounds::End>(action)) {
      trace_.line(now_, "node {}: head ends", index);
      head.ended = true;
      for (const auto& [id, connection] : std::map(head.connections))
        close_head_end(connection, EndOfStream::Kind::kClosed);
    } else if (const auto* hang_up = std::get_if<rounds::HangUp>(&action)) {
      trace_.line(now_, "node {}: head hangs up on {}", index, hang_up->id);
      const auto found = head.connections.find(hang_up->id);
      if (found != head.connections.end())
        close_head_end(found->second, EndOfStream::Kind::kClosed);
    } else if (const auto* send = std::get_if<rounds::Send>(&action)) {
      trace_.line(now_, "node {}: head tells {}: {}", index, send->id, text_of(send->message));
      const bool verdict = std::holds_alternative<rounds::Close>(send->message);
      if (verdict && scenario_.meeting == Meeting::kElected)
        judge(index, *send);
      else
        deliver(head, *send);
    }
  }
  arm_head(index);
  end_agent_if_over(nodes_[static_cast<std::size_t>(index)], index);
}

void World::deliver(HostedHead& head, const rounds::Send& send) {
  const int round = round_of(send.message);
  last_round_ = std::max(last_round_, round);
  const auto found = head.connections.find(send.id);
  if (found == head.connections.end()) return;
  if (const auto* close = std::get_if<rounds::Close>(&send.message))
    referee_.verdict_told(connections_[found->second].member_node, *close);
  send_to_member(found->second, send.message);
  if (round < 0) return;
  repeat_old_head_words(found->second, round);
  old_head_words_[found->second].push_back(send.message);
}

}  // namespace dtrun::simulation
