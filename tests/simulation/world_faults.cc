// The faults: what happens to nodes, agents and connections, and how it ends.
#include <algorithm>

#include "words.h"
#include "world.h"

namespace dtrun::simulation {

using std::chrono::milliseconds;
using std::chrono::seconds;

void World::next_fault() {
  if (now_ >= scenario_.faults_until) return;
  if (now_ > Moment::zero()) {
    const auto count = static_cast<std::int64_t>(scenario_.faults.size());
    inject(scenario_.faults[static_cast<std::size_t>(random_.below(count))]);
  }
  const Moment gap = random_.between(milliseconds(1), scenario_.fault_gap * 2);
  arrange(now_ + gap, Happening::kFault, -1);
}

// Every fault is over when the faults are.
Moment World::fault_duration(Moment longest) {
  const Moment left = std::max<Moment>(scenario_.faults_until - now_, milliseconds(20));
  return std::min(left, random_.of_any_size(milliseconds(10), longest));
}

int World::some_running_node() {
  const auto count = static_cast<std::int64_t>(nodes_.size());
  for (int attempt = 0; attempt < 8; ++attempt) {
    const auto index = static_cast<int>(random_.below(count));
    const Node& node = nodes_[static_cast<std::size_t>(index)];
    if (node.running && !(node.finished && !node.head)) return index;
  }
  return -1;
}

std::optional<std::size_t> World::some_connection() {
  const int index = some_running_node();
  if (index < 0) return std::nullopt;
  const Node& node = nodes_[static_cast<std::size_t>(index)];
  if (!node.connection || same_node(connections_[*node.connection])) return std::nullopt;
  return node.connection;
}

// A fault that finds nobody to hurt did not happen, and is not counted.
void World::inject(Fault fault) {
  const int index = some_running_node();
  if (index < 0) return;
  trace_.line(now_, "fault: {} (node {})", fault_name(fault), index);
  if (hurt_node(fault, index) || hurt_head(fault) || hurt_network(fault, index))
    ++tally_.faults[static_cast<std::size_t>(fault)];
}

bool World::hurt_node(Fault fault, int index) {
  const Node& node = nodes_[static_cast<std::size_t>(index)];
  const bool hosts = node.head.has_value();
  // The end of a fixed head ends the job: it is a fault of its own, and a rare one.
  const bool spared = hosts && scenario_.meeting == Meeting::kFixedHead;
  switch (fault) {
    case Fault::kAgentCrash:
      if (!spared)
        crash_agent(index, random_.chance(600) ? fault_duration(seconds(60)) : Moment::max());
      return !spared;
    case Fault::kAgentReplaced:
      if (!spared) crash_agent(index, random_.between(milliseconds(1), milliseconds(500)));
      return !spared;
    case Fault::kNodeCrash:
      if (!spared) crash_node(index);
      return !spared;
    case Fault::kAgentPause:
      if (!hosts) pause(index, Pause::kProcess, fault_duration(seconds(100)));
      return !hosts;
    case Fault::kNodePause:
      if (!hosts) pause(index, Pause::kMachine, fault_duration(seconds(100)));
      return !hosts;
    case Fault::kOperatorStop:
      return stop_by_operator(index, spared);
    case Fault::kLateJoiner:
      return start_planned_node();
    case Fault::kWorkerFailure:
      return fail_workers(index);
    default:
      return false;
  }
}

bool World::hurt_head(Fault fault) {
  const auto head = std::find_if(nodes_.begin(), nodes_.end(),
                                 [](const Node& each) { return each.running && each.head; });
  if (head == nodes_.end()) return false;
  const int index = static_cast<int>(head - nodes_.begin());
  switch (fault) {
    case Fault::kHeadCrash:
      if (!random_.chance(100)) return false;
      crash_agent(index, random_.chance(500) ? fault_duration(seconds(20)) : Moment::max());
      return true;
    case Fault::kHeadPause:
      pause(index, Pause::kProcess, fault_duration(seconds(120)));
      return true;
    case Fault::kHeadNodePause:
      pause(index, Pause::kMachine, fault_duration(seconds(120)));
      return true;
    case Fault::kLeaseCut:
      if (scenario_.meeting != Meeting::kElected) return false;
      lease_cut_until_ = now_ + fault_duration(seconds(40));
      return true;
    default:
      return false;
  }
}

bool World::hurt_network(Fault fault, int index) {
  Node& node = nodes_[static_cast<std::size_t>(index)];
  switch (fault) {
    case Fault::kCut:
    case Fault::kOneWayCut:
      if (node.head && !random_.chance(200)) return false;
      cut(index, fault == Fault::kCut);
      return true;
    case Fault::kReset:
    case Fault::kHalfReset:
      return reset(fault == Fault::kReset);
    case Fault::kStall:
      return stall();
    case Fault::kSlowNode:
      node.slowness = random_.chance(300) ? Moment::zero() : fault_duration(milliseconds(150));
      return true;
    default:
      return false;  // the others happen by themselves, where they are allowed
  }
}

bool World::stop_by_operator(int index, bool spared) {
  Node& node = nodes_[static_cast<std::size_t>(index)];
  if (random_.chance(500) || (spared && random_.chance(900))) return false;
  if (node.pause != Pause::kNone) return false;
  const bool hosts = node.head.has_value();
  member_event(index, rounds::OperatorStop{random_.chance(500) ? 2 : 15});
  if (node.running && random_.chance(300)) member_event(index, rounds::OperatorStop{2});
  if (node.running && !hosts && random_.chance(300)) cut(index, true);
  return true;
}

bool World::fail_workers(int index) {
  bool any = false;
  for (const std::size_t group : std::vector(nodes_[static_cast<std::size_t>(index)].groups)) {
    if (groups_[group].phase != WorkerGroup::Phase::kRunning) continue;
    end_group(group, now_ + random_.between(milliseconds(1), milliseconds(300)));
    arrange_news(now_, Happening::kTellFailed, index, static_cast<std::int64_t>(group));
    any = true;
  }
  return any;
}

// Its kernel ends its connections, its guard its workers.
void World::crash_agent(int index, Moment successor_after) {
  Node& node = nodes_[static_cast<std::size_t>(index)];
  trace_.line(now_, "node {}: its agent is killed", index);
  for (const std::size_t group : node.groups) groups_[group].excused |= node.stood_still_unheard();
  node.running = false;
  node.pause = Pause::kNone;
  node.pause_end = std::min(node.pause_end, now_);
  const auto kind = [&] {
    return random_.chance(500) ? EndOfStream::Kind::kClosed : EndOfStream::Kind::kReset;
  };
  if (node.connection) close_member_end(*node.connection, kind());
  if (node.head) {
    for (const auto& [id, connection] : std::map(node.head->connections))
      close_head_end(connection, kind());
    node.head.reset();
  }
  kill_groups(index, now_ + scenario_.settings.death_grace * 9 / 10);
  if (successor_after != Moment::max() && now_ + successor_after < scenario_.faults_until)
    arrange(now_ + successor_after, Happening::kAgentStarts, index);
}

void World::crash_node(int index) {
  Node& node = nodes_[static_cast<std::size_t>(index)];
  trace_.line(now_, "node {}: its machine is down", index);
  node.powered = false;
  node.running = false;
  node.pause = Pause::kNone;
  node.pause_end = std::min(node.pause_end, now_);
  for (Connection& connection : connections_) {
    if (connection.member_node == index) connection.member_open = false;
    if (connection.head_node == index) connection.head_open = false;
  }
  node.connection.reset();
  node.head.reset();
  for (const std::size_t group : std::vector(node.groups)) {
    end_group(group, now_);
    group_gone(group);
  }
  if (random_.chance(600)) arrange(now_ + fault_duration(seconds(120)), Happening::kPowerOn, index);
}

void World::power_on(int index) {
  Node& node = nodes_[static_cast<std::size_t>(index)];
  node.powered = true;
  node.plan.clock.origin = -now_.count();  // it counts from the boot
  trace_.line(now_, "node {}: its machine is up again", index);
  if (now_ + seconds(2) < scenario_.faults_until && random_.chance(800))
    arrange(now_ + random_.between(milliseconds(100), milliseconds(2000)), Happening::kAgentStarts,
            index);
}

void World::pause(int index, Pause kind, Moment duration) {
  Node& node = nodes_[static_cast<std::size_t>(index)];
  if (node.pause != Pause::kNone) return;
  trace_.line(now_, "node {}: stands still for {} ms", index, duration.count() / 1000000);
  node.pause = kind;
  node.paused_since = now_;
  node.pause_end = now_ + duration;
  arrange(node.pause_end, Happening::kResume, index);
}

void World::resume(int index) {
  Node& node = nodes_[static_cast<std::size_t>(index)];
  if (node.pause == Pause::kNone || now_ < node.pause_end) return;
  trace_.line(now_, "node {}: goes on", index);
  // A suspended machine's monotonic clock may have stood still, too.
  if (node.pause == Pause::kMachine && random_.chance(500))
    node.plan.clock.slept += (now_ - node.paused_since).count();
  node.pause = Pause::kNone;
  if (node.head) referee_.head_stood_still(node.head->key, node.paused_since, now_);
  std::vector<Appointment> postponed = std::move(node.postponed);
  node.postponed.clear();
  if (node.running) step_down_if_late(index);
  if (!node.running) return;
  node.armed = Moment::max();
  if (node.head) node.head->armed = Moment::max();
  const bool timers_first = random_.chance(500);
  const auto timers = [&] {
    arm_member(index);
    arm_head(index);
  };
  if (timers_first) timers();
  for (Appointment appointment : postponed) {
    appointment.at = now_;
    if (appointment.what != Happening::kMemberTimer && appointment.what != Happening::kHeadTimer)
      agenda_.arrange(appointment);
  }
  if (!timers_first) timers();
}

void World::cut(int index, bool both_ways) {
  Node& node = nodes_[static_cast<std::size_t>(index)];
  const Moment end = now_ + fault_duration(seconds(120));
  const bool out = both_ways || random_.chance(500);
  trace_.line(now_, "node {}: cut {}{} for {} ms", index, out ? "out" : "",
              both_ways || !out ? "in" : "", (end - now_).count() / 1000000);
  if (out) node.cut_out = std::max(node.cut_out, end);
  if (both_ways || !out) node.cut_in = std::max(node.cut_in, end);
}

// Something between two nodes ends their connection.
bool World::reset(bool both_ends) {
  const auto number = some_connection();
  if (!number) return false;
  if (both_ends) send_to_head(*number, EndOfStream{EndOfStream::Kind::kReset});
  send_to_member(*number, EndOfStream{EndOfStream::Kind::kReset});
  return true;
}

bool World::stall() {
  const auto number = some_connection();
  if (!number) return false;
  Connection& connection = connections_[*number];
  const Moment longest = std::min<Moment>(connection.user_timeout / 4, seconds(2));
  connection.to_head.last_arrival = now_ + fault_duration(longest);
  connection.to_member.last_arrival = connection.to_head.last_arrival;
  return true;
}

bool World::may_happen(Fault fault) const {
  return now_ < scenario_.faults_until &&
         std::find(scenario_.faults.begin(), scenario_.faults.end(), fault) !=
             scenario_.faults.end();
}

namespace {

// One of the last few of its connection, if that was of a round before this one.
std::optional<rounds::HeadMessage> old_word(std::deque<rounds::HeadMessage>& words, int round,
                                            RandomSource& random) {
  while (words.size() > 8) words.pop_front();
  if (words.empty()) return std::nullopt;
  const auto place = random.below(static_cast<std::int64_t>(words.size()));
  const rounds::HeadMessage& word = words[static_cast<std::size_t>(place)];
  if (round_of(word) >= round) return std::nullopt;
  return word;
}

}  // namespace

// Whatever a member may have said in an earlier round.
void World::repeat_old_words(std::size_t connection, int round) {
  if (!may_happen(Fault::kStaleToHead) || round < 1 || !random_.chance(150)) return;
  ++tally_.faults[static_cast<std::size_t>(Fault::kStaleToHead)];
  const int old = static_cast<int>(random_.below(round));
  const rounds::AgentMessage words[] = {
      rounds::StoreReady{old, "", 1}, rounds::Stopped{old}, rounds::Done{old},
      rounds::Failed{old, {.rank = 0, .code = 1, .host = "", .text = "an old failure"}}};
  send_to_head(connection, words[random_.below(4)]);
}

void World::repeat_old_head_words(std::size_t connection, int round) {
  if (!may_happen(Fault::kStaleToMember) || !random_.chance(150)) return;
  const auto word = old_word(old_head_words_[connection], round, random_);
  if (!word) return;
  ++tally_.faults[static_cast<std::size_t>(Fault::kStaleToMember)];
  send_to_member(connection, *word);
}

// One that was to come later comes now.
bool World::start_planned_node() {
  for (std::size_t i = 1; i < nodes_.size(); ++i) {
    Node& node = nodes_[i];
    if (node.running || !node.powered || now_ < node.pause_end) continue;
    if (node.ever_started && !random_.chance(300)) continue;
    arrange(now_, Happening::kAgentStarts, static_cast<int>(i));
    return true;
  }
  return false;
}

}  // namespace dtrun::simulation
