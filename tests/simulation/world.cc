#include "world.h"

#include <algorithm>

#include "words.h"

namespace dtrun::simulation {

void Tally::add(const Tally& other) {
  for (std::size_t i = 0; i < faults.size(); ++i) faults[i] += other.faults[i];
  steps += other.steps;
  messages += other.messages;
  rounds += other.rounds;
  restarts += other.restarts;
  heads += other.heads;
  succeeded += other.succeeded;
  failed += other.failed;
  never_in += other.never_in;
  virtual_time += other.virtual_time;
}

World::World(const Scenario& scenario, Trace& trace)
    : scenario_(scenario), trace_(trace), random_(~scenario.seed), referee_(scenario) {
  for (const NodePlan& plan : scenario.nodes) {
    Node& node = nodes_.emplace_back();
    node.plan = plan;
  }
  for (std::size_t i = 0; i < nodes_.size(); ++i)
    arrange(nodes_[i].plan.start, Happening::kAgentStarts, static_cast<int>(i));
  if (!scenario_.faults.empty()) next_fault();
  if (scenario_.meeting == Meeting::kElected) arrange(Moment::zero(), Happening::kLease, -1);
}

void World::run() {
  while (!agenda_.empty() && !all_over()) {
    const Appointment appointment = agenda_.take();
    if (appointment.at > scenario_.end_by()) break;
    now_ = std::max(now_, appointment.at);
    happen(appointment);
  }
  tally_.virtual_time = now_;
  tally_.rounds = referee_.rounds();
  tally_.restarts = referee_.restarts();
  check_that_all_ended();
  referee_.run_ends(nodes_);
}

void World::arrange(Moment at, Happening what, int node, std::int64_t number) {
  const int life = node < 0 ? 0 : nodes_[static_cast<std::size_t>(node)].life;
  if (what == Happening::kAgentStarts || what == Happening::kPowerOn) ++starts_to_come_;
  agenda_.arrange({.at = at, .what = what, .node = node, .life = life, .number = number});
}

void World::arrange_news(Moment at, Happening what, int node, std::int64_t number) {
  ++nodes_[static_cast<std::size_t>(node)].news;
  arrange(at, what, node, number);
}

void World::happen(const Appointment& appointment) {
  if (appointment.node >= 0 && of_agent(appointment.what)) {
    Node& node = nodes_[static_cast<std::size_t>(appointment.node)];
    if (!node.running || appointment.life != node.life) return;
    if (node.pause != Pause::kNone) return node.postponed.push_back(appointment);
  }
  trace_.mix(static_cast<std::uint64_t>(now_.count()));
  trace_.mix(static_cast<std::uint64_t>(appointment.what) << 40 |
             static_cast<std::uint64_t>(appointment.node + 1) << 24 |
             (static_cast<std::uint64_t>(appointment.number) & 0xffffff));
  dispatch(appointment);
}

void World::dispatch(const Appointment& appointment) {
  const int node = appointment.node;
  const auto number = static_cast<std::size_t>(appointment.number);
  switch (appointment.what) {
    case Happening::kAgentStarts:
      --starts_to_come_;
      return start_agent(node);
    case Happening::kMemberTimer:
      return member_timer(node);
    case Happening::kHeadTimer:
      return head_timer(node);
    case Happening::kDialEnds:
      return dial_ends(node, appointment.number);
    case Happening::kArrival:
      return arrive_at_head(appointment);
    case Happening::kReturn:
      return arrive_at_member(appointment);
    case Happening::kUserTimeout:
      return user_timeout_of_member(appointment);
    case Happening::kReturnTimeout:
      return user_timeout_of_head(appointment);
    case Happening::kStoreOpens:
      --nodes_[static_cast<std::size_t>(node)].news;
      return store_opens(node, static_cast<int>(appointment.number));
    case Happening::kGroupFate:
      return group_fate(number);
    case Happening::kGroupGone:
      return group_gone(number);
    case Happening::kTellFailed:
      --nodes_[static_cast<std::size_t>(node)].news;
      return tell_failed(node, number);
    case Happening::kTellGone:
      --nodes_[static_cast<std::size_t>(node)].news;
      return tell_gone(node, number);
    case Happening::kFault:
      return next_fault();
    case Happening::kResume:
      return resume(node);
    case Happening::kPowerOn:
      --starts_to_come_;
      return power_on(node);
    case Happening::kLease:
      return look_at_lease();
    case Happening::kHeadNews:
      return head_news(node);
    case Happening::kVerdictWrite:
      return write_verdict(node, appointment.number);
    case Happening::kVerdictNews:
      return verdict_news(node);
  }
}

// --- an agent's process
void World::start_agent(int index) {
  Node& node = nodes_[static_cast<std::size_t>(index)];
  if (node.running || !node.powered || now_ < node.pause_end) return;
  ++node.life;
  node.running = true;
  node.ever_started = true;
  node.finished = false;
  node.armed = Moment::max();
  node.connection.reset();
  node.dialling = false;
  node.known_head.reset();
  node.postponed.clear();
  node.news = 0;
  referee_.agent_starts(index);
  trace_.line(now_, "node {}: its agent starts", index);
  const bool fixed = scenario_.meeting == Meeting::kFixedHead;
  if (fixed && index == 0) open_head(0);
  if (fixed) node.known_head = 0;
  node.member = {};
  rounds::MemberSettings& settings = node.member.settings;
  rounds::Hello& hello = settings.hello;
  hello.run_id = "job";
  hello.host = node.plan.host;
  hello.node_rank = node.plan.node_rank;
  hello.local_ranks = node.plan.local_ranks;
  hello.min_nodes = scenario_.settings.min_nodes;
  hello.max_nodes = scenario_.settings.max_nodes;
  hello.agent = random_.next() | 1;
  settings.join_timeout = scenario_.settings.join_timeout;
  settings.rejoin_timeout = scenario_.rejoin_timeout;
  settings.after_loss = scenario_.after_loss;
  settings.head_name = "head";
  begin_member(index);
  if (!fixed && leader_) arrange(now_ + delay({}), Happening::kHeadNews, index);
  if (left_) arrange(now_ + delay({}), Happening::kVerdictNews, index);
}

void World::end_agent_if_over(Node& node, int index) {
  if (!node.running || !node.finished) return;
  if (node.head && !node.head->ended) {
    // The others elect another one, unless all is over and only the word has to get round, or it
    // never was one of those whom it hosts.
    if (scenario_.meeting == Meeting::kElected &&
        node.finish.kind != rounds::Finish::Kind::kError &&
        node.head->state.phase != rounds::HeadPhase::kClosed)
      step_down_head(index);
    else
      return;
  }
  if (node.head && node.head->is_writing) return;
  trace_.line(now_, "node {}: its agent is over", index);
  node.running = false;
  node.head.reset();
}

// --- timers
void World::arm_member(int index) {
  Node& node = nodes_[static_cast<std::size_t>(index)];
  if (!node.running || node.finished) return;
  const Moment due = rounds::member_deadline(node.member);
  if (due == Moment::max()) return;
  const Moment at = std::max(now_, node.plan.clock.truth(due));
  if (at >= node.armed) return;
  node.armed = at;
  arrange(at, Happening::kMemberTimer, index);
}

void World::arm_head(int index) {
  Node& node = nodes_[static_cast<std::size_t>(index)];
  if (!node.running || !node.head || node.head->ended) return;
  const Moment due = rounds::head_deadline(node.head->state);
  if (due == Moment::max()) return;
  const Moment at = std::max(now_, node.plan.clock.truth(due));
  if (at >= node.head->armed) return;
  node.head->armed = at;
  arrange(at, Happening::kHeadTimer, index);
}

void World::member_timer(int index) {
  Node& node = nodes_[static_cast<std::size_t>(index)];
  if (node.finished || node.armed > now_) return;
  node.armed = Moment::max();
  const Moment local = node.plan.clock.local(now_);
  if (rounds::member_deadline(node.member) > local) return arm_member(index);
  member_event(index, rounds::MemberTick{});
  if (node.running && !node.finished && rounds::member_deadline(node.member) <= local)
    throw Violation("deadlines move on",
                    fmt::format("node {}: a tick leaves its deadline in the past, {}", index,
                                name_of(node.member.phase)));
}

void World::head_timer(int index) {
  Node& node = nodes_[static_cast<std::size_t>(index)];
  if (!node.head || node.head->ended || node.head->armed > now_) return;
  node.head->armed = Moment::max();
  const Moment local = node.plan.clock.local(now_);
  if (rounds::head_deadline(node.head->state) > local) return arm_head(index);
  head_event(index, rounds::Tick{});
  if (node.running && node.head && !node.head->ended &&
      rounds::head_deadline(node.head->state) <= local)
    throw Violation("deadlines move on",
                    fmt::format("the head on node {}: a tick leaves its deadline in the past, {}",
                                index, name_of(node.head->state.phase)));
}

void World::dial_ends(int index, std::int64_t dial) {
  Node& node = nodes_[static_cast<std::size_t>(index)];
  if (dial != node.dials || !node.dialling) return;
  node.dialling = false;
  const auto fails = [&](const char* why) { member_event(index, rounds::Unreachable{why}); };
  if (!node.known_head) return fails("no head is known");
  const int head = *node.known_head;
  Node& host = nodes_[static_cast<std::size_t>(head)];
  if (head != index) {
    if (passable_at(index, head) > now_ || passable_at(head, index) > now_)
      return fails("timed out");
    if (may_happen(Fault::kRefusedDial) && random_.chance(30)) {
      ++tally_.faults[static_cast<std::size_t>(Fault::kRefusedDial)];
      return fails("refused");
    }
  }
  if (!host.running || !host.head || host.head->ended) return fails("refused");
  connect(index, head);
}

// --- the end
bool World::all_over() const {
  return starts_to_come_ == 0 &&
         std::none_of(nodes_.begin(), nodes_.end(), [](const Node& node) { return node.running; });
}

void World::check_that_all_ended() const {
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    if (!node.running) continue;
    throw Violation("everybody comes to an end",
                    fmt::format("node {}: member {}{}, head {}, {} s after the faults", i,
                                name_of(node.member.phase), node.finished ? " (finished)" : "",
                                node.head ? name_of(node.head->state.phase) : std::string("none"),
                                (now_ - scenario_.faults_until).count() / 1000000000));
  }
}

}  // namespace dtrun::simulation
