// The network: connections that deliver in order after a while, that hold what is sent into a cut
// until it is mended or TCP_USER_TIMEOUT is over, and that end.
#include <algorithm>

#include "words.h"
#include "world.h"

namespace dtrun::simulation {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Moment kNever = Moment::max() / 4;

Moment World::delay(const Connection& connection) {
  if (connection.member_node >= 0 && same_node(connection))
    return random_.between(microseconds(1), microseconds(200));
  Moment result = random_.between(scenario_.delay_low, scenario_.delay_high);
  if (connection.member_node >= 0)
    result += nodes_[static_cast<std::size_t>(connection.member_node)].slowness +
              nodes_[static_cast<std::size_t>(connection.head_node)].slowness;
  return result;
}

// The moment from which on something can get from one node to the other.
Moment World::passable_at(int from, int to) const {
  if (from == to) return Moment::zero();
  const Node& source = nodes_[static_cast<std::size_t>(from)];
  const Node& target = nodes_[static_cast<std::size_t>(to)];
  Moment result = std::max(source.cut_out, target.cut_in);
  for (const Node* node : {&source, &target}) {
    if (!node->powered) return kNever;
    if (node->pause == Pause::kMachine) result = std::max(result, node->pause_end);
  }
  return result;
}

void World::connect(int index, int head) {
  Node& node = nodes_[static_cast<std::size_t>(index)];
  Node& host = nodes_[static_cast<std::size_t>(head)];
  const std::size_t number = connections_.size();
  Connection& connection = connections_.emplace_back();
  connection.member_node = index;
  connection.member_life = node.life;
  connection.head_node = head;
  connection.head_life = host.life;
  connection.id = ++host.head->last_id;
  host.head->connections[connection.id] = number;
  if (index == head) host.head->state.own = connection.id;
  node.connection = number;
  trace_.line(now_, "node {}: connected to {} as {}", index, head, connection.id);
  member_event(index, rounds::Connected{});
}

// --- sending
void World::send_to_head(std::size_t number, std::variant<rounds::AgentMessage, EndOfStream> what) {
  Connection& connection = connections_[number];
  Pipe<rounds::AgentMessage>& pipe = connection.to_head;
  pipe.last_arrival = std::max(pipe.last_arrival, now_ + delay(connection));
  pipe.parcels.push_back({now_, std::move(what)});
  arrange(pipe.last_arrival, Happening::kArrival, -1, static_cast<std::int64_t>(number));
}

void World::send_to_member(std::size_t number,
                           std::variant<rounds::HeadMessage, EndOfStream> what) {
  Connection& connection = connections_[number];
  Pipe<rounds::HeadMessage>& pipe = connection.to_member;
  pipe.last_arrival = std::max(pipe.last_arrival, now_ + delay(connection));
  pipe.parcels.push_back({now_, std::move(what)});
  arrange(pipe.last_arrival, Happening::kReturn, -1, static_cast<std::int64_t>(number));
}

// Whether what is to arrive has to wait: for a cut to end, or because the acknowledgement could not
// come back, which to the sender is the same.
template <typename Message>
bool World::is_held_up(const Appointment& appointment, Pipe<Message>& pipe, int from, int to) {
  if (pipe.parcels.empty()) return true;
  const Connection& connection = connections_[static_cast<std::size_t>(appointment.number)];
  const Moment way = passable_at(from, to);
  const Moment back = passable_at(to, from);
  const bool to_head = appointment.what == Happening::kArrival;
  if (std::max(way, back) > now_ && !pipe.timed && from != to) {
    pipe.timed = true;
    const Moment timeout = pipe.parcels.front().sent + connection.user_timeout;
    arrange(std::max(now_, timeout), to_head ? Happening::kUserTimeout : Happening::kReturnTimeout,
            -1, appointment.number);
  }
  if (way <= now_) return false;
  if (way == kNever) {
    pipe.parcels.clear();
    return true;
  }
  // Retransmission backs off: it notices the mended network late.
  agenda_.arrange({.at = way + random_.between(milliseconds(1), seconds(2)),
                   .what = appointment.what,
                   .number = appointment.number});
  return true;
}

// --- arrivals
void World::arrive_at_head(const Appointment& appointment) {
  const auto number = static_cast<std::size_t>(appointment.number);
  Connection& connection = connections_[number];
  if (is_held_up(appointment, connection.to_head, connection.member_node, connection.head_node))
    return;
  Node& host = nodes_[static_cast<std::size_t>(connection.head_node)];
  const bool there =
      host.running && host.life == connection.head_life && host.head && connection.head_open;
  if (there && host.pause == Pause::kProcess) return host.postponed.push_back(appointment);
  auto parcel = std::move(connection.to_head.parcels.front());
  connection.to_head.parcels.pop_front();
  ++tally_.messages;
  if (const auto* end = std::get_if<EndOfStream>(&parcel.content)) {
    if (!there) return;
    // A reset may come from a box on the way, and then its agent lives: only a close proves its
    // end.
    if (end->kind == EndOfStream::Kind::kReset)
      head_loses(number, rounds::LossKind::kReset, "connection reset");
    else
      head_loses(number, rounds::LossKind::kGone, "connection closed");
    return;
  }
  if (!there) {
    if (connection.member_open) send_to_member(number, EndOfStream{EndOfStream::Kind::kReset});
    return;
  }
  const auto& message = std::get<rounds::AgentMessage>(parcel.content);
  trace_.line(now_, "node {}: head hears {}: {}", connection.head_node, connection.id,
              text_of(message));
  nodes_[static_cast<std::size_t>(connection.member_node)].last_heard_by_head = now_;
  head_event(connection.head_node, rounds::Said{connection.id, message});
}

void World::arrive_at_member(const Appointment& appointment) {
  const auto number = static_cast<std::size_t>(appointment.number);
  Connection& connection = connections_[number];
  if (is_held_up(appointment, connection.to_member, connection.head_node, connection.member_node))
    return;
  const int index = connection.member_node;
  Node& node = nodes_[static_cast<std::size_t>(index)];
  const bool there = node.running && node.life == connection.member_life && connection.member_open;
  if (there && node.pause == Pause::kProcess) return node.postponed.push_back(appointment);
  auto parcel = std::move(connection.to_member.parcels.front());
  connection.to_member.parcels.pop_front();
  ++tally_.messages;
  if (const auto* end = std::get_if<EndOfStream>(&parcel.content)) {
    if (there && end->kind == EndOfStream::Kind::kReset)
      member_loses(number, rounds::LossKind::kReset, "connection reset");
    else if (there)
      member_loses(number, rounds::LossKind::kGone, "connection closed");
    return;
  }
  if (!there) {
    if (connection.head_open) send_to_head(number, EndOfStream{EndOfStream::Kind::kReset});
    return;
  }
  const auto& message = std::get<rounds::HeadMessage>(parcel.content);
  if (const auto* accepted = std::get_if<rounds::Accepted>(&message))
    connection.user_timeout = accepted->silence_window - 2 * rounds::beat_interval(*accepted);
  trace_.line(now_, "node {}: hears {}", index, text_of(message));
  member_event(index, rounds::Received{message});
}

// --- losses
void World::user_timeout_of_member(const Appointment& appointment) {
  const auto number = static_cast<std::size_t>(appointment.number);
  Connection& connection = connections_[number];
  connection.to_head.timed = false;
  Node& node = nodes_[static_cast<std::size_t>(connection.member_node)];
  if (!connection.member_open || !node.running || node.life != connection.member_life) return;
  if (node.pause == Pause::kMachine) {
    connection.to_head.timed = true;
    return arrange(node.pause_end, Happening::kUserTimeout, -1, appointment.number);
  }
  const int from = connection.member_node;
  const int to = connection.head_node;
  if (passable_at(from, to) <= now_ && passable_at(to, from) <= now_) return;
  if (node.pause == Pause::kProcess) return node.postponed.push_back(appointment);
  member_loses(number, rounds::LossKind::kSilent, "no acknowledgement");
}

void World::user_timeout_of_head(const Appointment& appointment) {
  const auto number = static_cast<std::size_t>(appointment.number);
  Connection& connection = connections_[number];
  connection.to_member.timed = false;
  Node& host = nodes_[static_cast<std::size_t>(connection.head_node)];
  if (!connection.head_open || !host.running || host.life != connection.head_life) return;
  if (host.pause == Pause::kMachine) {
    connection.to_member.timed = true;
    return arrange(host.pause_end, Happening::kReturnTimeout, -1, appointment.number);
  }
  const int from = connection.head_node;
  const int to = connection.member_node;
  if (passable_at(from, to) <= now_ && passable_at(to, from) <= now_) return;
  if (host.pause == Pause::kProcess) return host.postponed.push_back(appointment);
  head_loses(number, rounds::LossKind::kSilent, "no acknowledgement");
}

void World::member_loses(std::size_t number, rounds::LossKind kind, const std::string& why) {
  Connection& connection = connections_[number];
  if (!connection.member_open) return;
  connection.member_open = false;
  const int index = connection.member_node;
  Node& node = nodes_[static_cast<std::size_t>(index)];
  if (node.connection == number) node.connection.reset();
  trace_.line(now_, "node {}: loses the head: {}", index, why);
  member_event(index, rounds::Disconnected{why, kind});
}

void World::head_loses(std::size_t number, rounds::LossKind kind, const std::string& why) {
  Connection& connection = connections_[number];
  if (!connection.head_open) return;
  connection.head_open = false;
  Node& host = nodes_[static_cast<std::size_t>(connection.head_node)];
  if (!host.head) return;
  host.head->connections.erase(connection.id);
  trace_.line(now_, "node {}: head loses {}: {}", connection.head_node, connection.id, why);
  head_event(connection.head_node, rounds::Lost{connection.id, kind, why});
}

void World::close_member_end(std::size_t number, EndOfStream::Kind kind) {
  Connection& connection = connections_[number];
  Node& node = nodes_[static_cast<std::size_t>(connection.member_node)];
  if (node.connection == number) node.connection.reset();
  if (!connection.member_open) return;
  connection.member_open = false;
  send_to_head(number, EndOfStream{kind});
}

void World::close_head_end(std::size_t number, EndOfStream::Kind kind) {
  Connection& connection = connections_[number];
  Node& host = nodes_[static_cast<std::size_t>(connection.head_node)];
  if (host.head) host.head->connections.erase(connection.id);
  if (!connection.head_open) return;
  connection.head_open = false;
  send_to_member(number, EndOfStream{kind});
}

}  // namespace dtrun::simulation
