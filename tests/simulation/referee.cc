#include "referee.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "rounds/restart_policy.h"
#include "words.h"

namespace dtrun::simulation {
namespace {

template <typename... Arguments>
void demand(bool condition, const char* rule, fmt::format_string<Arguments...> format,
            Arguments&&... arguments) {
  if (!condition) throw Violation(rule, fmt::format(format, std::forward<Arguments>(arguments)...));
}

}  // namespace

Referee::Referee(const Scenario& scenario) : scenario_(scenario) {}

void Referee::head_opens(int key, int node, Moment) {
  HeadBook& head = heads_[key];
  head.node = node;
  const bool elected = scenario_.meeting == Meeting::kElected;
  // An elected head goes on where the last one was; a fixed one that comes again has a new job.
  if (!elected) last_round_ = rounds::kNoRound;
  head.round = head.prepared = last_round_;
}

void Referee::head_stood_still(int key, Moment since, Moment until) {
  heads_.at(key).still.emplace_back(since, until);
}

// How long the head itself has run in the meantime.
Moment Referee::ran_since(const HeadBook& head, Moment since, Moment now) const {
  Moment result = now - since;
  for (const auto& [begin, end] : head.still)
    if (end > since) result -= end - std::max(begin, since);
  return result;
}

// --- heads
void Referee::head_steps(int key, const Node& node, const rounds::HeadEvent& event,
                         const std::vector<rounds::HeadAction>& actions, Moment now) {
  HeadBook& head = heads_.at(key);
  if (const auto* said = std::get_if<rounds::Said>(&event)) hear(head, *said, now);
  if (const auto* lost = std::get_if<rounds::Lost>(&event)) lose(head, lost->id, now);
  std::map<rounds::MemberId, const rounds::Start*> starts;
  for (const rounds::HeadAction& action : actions) {
    const auto* send = std::get_if<rounds::Send>(&action);
    if (send == nullptr) continue;
    if (const auto* start = std::get_if<rounds::Start>(&send->message))
      demand(starts.emplace(send->id, start).second, "one start each",
             "member {} is started twice in round {}", send->id, start->round);
  }
  if (!starts.empty()) check_start(head, starts, now);
  for (const rounds::HeadAction& action : actions) {
    if (const auto* hang_up = std::get_if<rounds::HangUp>(&action))
      check_hang_up(head, event, hang_up->id, now);
    const auto* send = std::get_if<rounds::Send>(&action);
    if (send != nullptr) check_send(head, *send);
  }
  note_phase(head, node, now);
  const rounds::HeadState& state = node.head->state;
  const bool waits =
      state.phase == rounds::HeadPhase::kGathering && state.present >= state.settings.max_nodes &&
      node.plan.clock.local(now) >= std::max(rounds::fence_of(state), state.pause_until);
  demand(!waits || who_was_done(head) != nullptr, "a full job begins at once",
         "{} nodes are here, and the head waits", state.present);
  if (head.closed && !head.told) check_that_all_are_told(head);
  head.told = head.closed.has_value();
}

// The step that ends a round may prepare the next one at once.
void Referee::note_phase(HeadBook& head, const Node& node, Moment now) {
  const rounds::HeadPhase before = std::exchange(head.phase, node.head->state.phase);
  if (before == rounds::HeadPhase::kDraining && head.phase != before)
    head.drained_at = node.plan.clock.local(now);
  if (before == rounds::HeadPhase::kRunning && head.phase != before)
    head.ran_until = node.plan.clock.local(now);
  if (head.phase == rounds::HeadPhase::kRunning && head.phase != before)
    head.running_since = node.plan.clock.local(now);
  if (head.phase == rounds::HeadPhase::kPreparing && head.phase != before)
    head.prepared_at = node.plan.clock.local(now);
}

void Referee::hear(HeadBook& head, const rounds::Said& said, Moment now) {
  if (const auto* hello = std::get_if<rounds::Hello>(&said.message)) {
    const auto [place, is_new] = head.members.try_emplace(said.id);
    if (is_new) place->second.hello = *hello;
    // Whoever says Hello has no live workers, whatever its old connection is thought to be; unless
    // it has said so by a later one already.
    const auto is_same = [&](const auto& entry) {
      return entry.first != said.id && entry.second.hello.agent == hello->agent;
    };
    const bool late = std::any_of(head.members.begin(), head.members.end(), [&](const auto& entry) {
      return is_same(entry) && entry.second.hello.connection > hello->connection;
    });
    for (auto& entry : head.members)
      if (is_same(entry) && !late) entry.second.stopped = true;
  }
  const auto found = head.members.find(said.id);
  if (found == head.members.end()) return;
  found->second.heard = now;
  hear_in_round(head, said.id, said.message);
}

void Referee::hear_in_round(HeadBook& head, rounds::MemberId id,
                            const rounds::AgentMessage& message) {
  MemberBook& book = head.members.at(id);
  if (std::holds_alternative<rounds::Leaving>(message)) book.leaving = true;
  if (const auto* ready = std::get_if<rounds::StoreReady>(&message))
    head.ready = std::max(head.ready, ready->round);
  if (round_of(message) != head.round || !head.participants.contains(id)) return;
  if (std::holds_alternative<rounds::Stopped>(message)) book.stopped = true;
  if (const auto* failed = std::get_if<rounds::Failed>(&message)) {
    if (head.phase == rounds::HeadPhase::kRunning) head.worker_failure = failed->failure;
    head.failed = true;
  }
  if (std::holds_alternative<rounds::Done>(message)) {
    book.stopped = true;
    if (!head.draining) head.done.insert(id);
  }
}

void Referee::lose(HeadBook& head, rounds::MemberId id, Moment) {
  const auto found = head.members.find(id);
  if (found == head.members.end()) return;
  found->second.lost = true;
  if (head.participants.contains(id) && !scenario_.settings.elastic()) head.failed = true;
}

void Referee::check_open(const HeadBook& head, int round, const char* what) const {
  demand(!head.closed, "closed is final", "{} of round {} after the close", what, round);
}

void Referee::check_send(HeadBook& head, const rounds::Send& send) {
  MemberBook& book = head.members[send.id];
  const int round = round_of(send.message);
  if (round != rounds::kNoRound) {
    demand(round >= book.sent_round, "rounds rise", "{} to {} after round {}",
           text_of(send.message), send.id, book.sent_round);
    book.sent_round = round;
  }
  if (const auto* close = std::get_if<rounds::Close>(&send.message)) {
    check_close(head, *close);
    book.told_end = true;
  } else if (std::holds_alternative<rounds::Refused>(send.message)) {
    book.told_end = true;
  } else if (const auto* prepare = std::get_if<rounds::Prepare>(&send.message)) {
    check_open(head, prepare->round, "Prepare");
    demand(prepare->round > head.prepared && prepare->round > last_round_, "rounds rise",
           "Prepare of round {} after {}", prepare->round, std::max(head.prepared, last_round_));
    head.prepared = prepare->round;
    prepared_before_ = std::exchange(prepared_, std::max(prepared_, prepare->round));
  } else if (const auto* stop = std::get_if<rounds::Stop>(&send.message)) {
    demand(stop->round == head.round, "rounds rise", "Stop of round {} in round {}", stop->round,
           head.round);
    head.draining = true;
  }
}

// The only reason to hang up on a member that was not told anything is its silence, in a time in
// which the head itself was able to hear.
void Referee::check_hang_up(HeadBook& head, const rounds::HeadEvent& event, rounds::MemberId id,
                            Moment now) {
  const auto found = head.members.find(id);
  if (found == head.members.end()) return;
  MemberBook& book = found->second;
  lose(head, id, now);
  const auto* said = std::get_if<rounds::Said>(&event);
  if (book.told_end || (said != nullptr && std::holds_alternative<rounds::Hello>(said->message)))
    return;
  const Moment silence = ran_since(head, book.heard, now);
  // Of each pause, the head cannot know one interval between two of its looks.
  const Moment interval =
      std::min(scenario_.settings.keep_alive_interval, scenario_.settings.silence_window / 4);
  const auto pauses = std::count_if(head.still.begin(), head.still.end(),
                                    [&](const auto& pause) { return pause.second > book.heard; });
  demand(silence >= scenario_.settings.silence_window * 98 / 100 - interval * pauses,
         "no false eviction",
         "member {} ({}) is evicted after {} ms in which the head ran, the window is {} ms", id,
         book.hello.host, silence.count() / 1000000,
         scenario_.settings.silence_window.count() / 1000000);
}

void Referee::check_close(HeadBook& head, const rounds::Close& close) {
  if (head.closed) {
    demand(head.closed->outcome == close.outcome, "closed is final",
           "one is told success, another one failure");
    return;
  }
  head.closed = close;
  if (close.outcome != rounds::Close::Outcome::kSucceeded) return;
  if (head.participants.empty()) return check_success_of_former_round();
  for (const rounds::MemberId id : head.participants) {
    const MemberBook& book = head.members.at(id);
    demand(finished_rounds_.contains({head.round, head.ranks.at(book.hello.agent)}),
           "success is all done", "round {} is called a success, but member {} ({}) is not done",
           head.round, id, book.hello.host);
  }
}

void Referee::verdict_told(int node, const rounds::Close& close) {
  demand(!left_ || left_->outcome == close.outcome, "closed is final",
         "node {} is told another verdict than the one that is written", node);
  if (close.outcome == rounds::Close::Outcome::kSucceeded) told_well_.insert(agent_of_[node]);
}

void Referee::verdict_left(const rounds::Close& close) {
  demand(!left_, "closed is final", "a second verdict is written");
  left_ = close;
}

// A head that has begun no round: all of the last head's last one were done.
void Referee::check_success_of_former_round() const {
  demand(last_size_ > 0, "success is all done", "success without a round");
  for (int rank = 0; rank < last_size_; ++rank)
    demand(finished_rounds_.contains({last_round_, rank}), "success is all done",
           "round {} is called a success by the next head, but group rank {} is not done",
           last_round_, rank);
}

void Referee::check_that_all_are_told(const HeadBook& head) const {
  for (const auto& [id, book] : head.members)
    demand(book.lost || book.told_end, "everybody is told",
           "member {} ({}) is not told that the job is over", id, book.hello.host);
}

// --- starts
void Referee::check_start(HeadBook& head,
                          const std::map<rounds::MemberId, const rounds::Start*>& starts, Moment) {
  const rounds::Start& first = *starts.begin()->second;
  check_open(head, first.round, "Start");
  demand(!left_, "closed is final", "Start of round {} after a verdict was written", first.round);
  demand(first.round == head.prepared, "rounds rise", "Start of round {}, prepared was {}",
         first.round, head.prepared);
  demand(head.ready == first.round, "a round has a store",
         "Start of round {}, and the last store is that of round {}", first.round, head.ready);
  demand(first.round > last_round_, "rounds rise", "Start of round {} after round {}", first.round,
         last_round_);
  demand(head.done.empty(), "no round after a done", "round {} after a Done in round {}",
         first.round, head.round);
  check_done_under_former_head(head, first.round);
  for (const rounds::MemberId id : head.participants) {
    const MemberBook& book = head.members.at(id);
    demand(book.stopped || book.lost, "all have stopped",
           "round {} starts, and member {} ({}) has not said that it stopped round {}", first.round,
           id, book.hello.host, head.round);
  }
  check_ranks(head, starts);
  check_survivors(head, starts);
  check_worth(head, first.round);
  restarts_ += check_budget(head, starts);
  ++rounds_;
  last_round_ = head.round = first.round;
  last_size_ = static_cast<int>(starts.size());
  head.worker_failure.reset();
  head.participants.clear();
  head.ranks.clear();
  head.failed = head.draining = false;
  for (const auto& [id, start] : starts) {
    head.participants.insert(id);
    MemberBook& book = head.members.at(id);
    book.stopped = false;
    head.ranks[book.hello.agent] = start->group_rank;
  }
}

// The first round of an elected head: none of those whom it has heard had said Done in the last
// round of the head before, unless a later one was about to begin.
void Referee::check_done_under_former_head(const HeadBook& head, int round) const {
  if (prepared_before_ > done_in_) return;
  const MemberBook* const done = who_was_done(head);
  demand(done == nullptr, "no round after a done",
         "round {} of the next head after a Done of {} in round {}", round,
         done == nullptr ? "" : done->hello.host, done_in_);
}

const Referee::MemberBook* Referee::who_was_done(const HeadBook& head) const {
  const bool follows = scenario_.meeting == Meeting::kElected && head.participants.empty();
  if (!follows || done_in_ != last_round_) return nullptr;
  for (const auto& [id, book] : head.members)
    if (done_agents_.contains(book.hello.agent)) return &book;
  return nullptr;
}

void Referee::check_ranks(const HeadBook& head,
                          const std::map<rounds::MemberId, const rounds::Start*>& starts) const {
  const auto world = static_cast<int>(starts.size());
  demand(world >= scenario_.settings.min_nodes, "never below min", "{} nodes are started", world);
  demand(world <= scenario_.settings.max_nodes, "never above max", "{} nodes are started", world);
  std::vector<int> local_ranks(starts.size(), 0);
  std::vector<int> bases(starts.size(), 0);
  std::set<std::uint64_t> agents;
  for (const auto& [id, start] : starts) {
    const auto found = head.members.find(id);
    demand(found != head.members.end() && !found->second.lost, "the living take part",
           "member {} takes part and is gone", id);
    const MemberBook& book = found->second;
    demand(!book.leaving, "the living take part", "member {} takes part and is leaving", id);
    demand(agents.insert(book.hello.agent).second, "one owner per rank",
           "agent {:x} takes part twice", book.hello.agent);
    demand(start->group_world_size == world, "ranks are dense", "world {} of {} nodes",
           start->group_world_size, world);
    demand(start->group_rank >= 0 && start->group_rank < world, "ranks are dense",
           "group rank {} of {}", start->group_rank, world);
    int& count = local_ranks[static_cast<std::size_t>(start->group_rank)];
    demand(count == 0, "one owner per rank", "group rank {} is given twice", start->group_rank);
    count = book.hello.local_ranks;
    bases[static_cast<std::size_t>(start->group_rank)] = start->base_rank;
  }
  int base = 0;
  for (std::size_t i = 0; i < starts.size(); ++i) {
    demand(bases[i] == base, "ranks are dense", "base rank {} instead of {}", bases[i], base);
    base += local_ranks[i];
  }
  for (const auto& [id, start] : starts)
    demand(start->world_size == base, "ranks are dense", "world size {} instead of {}",
           start->world_size, base);
}

// Who was in the last round keeps its group rank where that exists, unless somebody was given it by
// --node_rank.
void Referee::check_survivors(
    const HeadBook& head, const std::map<rounds::MemberId, const rounds::Start*>& starts) const {
  // What agents remember of a fixed head's rounds says nothing to the head that comes after it.
  if (scenario_.meeting == Meeting::kFixedHead && heads_.size() > 1) return;
  const auto world = static_cast<int>(starts.size());
  std::set<int> given;
  for (const auto& [id, start] : starts) given.insert(head.members.at(id).hello.node_rank);
  std::vector<const rounds::Hello*> fresh(starts.size(), nullptr);
  for (const auto& [id, start] : starts) {
    const rounds::Hello& hello = head.members.at(id).hello;
    const auto old = head.ranks.find(hello.agent);
    const bool numbered = hello.node_rank != rounds::kNoNodeRank;
    // An agent that lost its connection before it heard of its start does not know of it.
    const bool knows = head.participants.contains(id) || hello.last_round == head.round;
    if (!numbered && knows && old != head.ranks.end() && old->second < world &&
        !given.contains(old->second))
      demand(start->group_rank == old->second, "survivors keep their ranks",
             "{} had group rank {} and has {} in round {}", hello.host, old->second,
             start->group_rank, start->round);
    // The head's own node is the first, until somebody else has been.
    const NodePlan& host = scenario_.nodes[static_cast<std::size_t>(head.node)];
    if (!numbered && old == head.ranks.end() && hello.last_round == rounds::kNoRound &&
        hello.host != host.host)
      fresh[static_cast<std::size_t>(start->group_rank)] = &hello;
  }
  // The newcomers among themselves stand in the natural order of their hosts.
  const auto number = [](const rounds::Hello* hello) { return std::stoi(hello->host.substr(4)); };
  const rounds::Hello* before = nullptr;
  for (const rounds::Hello* hello : fresh) {
    if (hello == nullptr) continue;
    demand(before == nullptr || number(before) <= number(hello), "hosts in natural order",
           "{} stands before {}", before ? before->host : "", hello->host);
    before = hello;
  }
}

// How many restarts it has cost: the job's, or one agent's, and what that has spent may be
// forgotten with its connection.
int Referee::check_budget(HeadBook& head,
                          const std::map<rounds::MemberId, const rounds::Start*>& starts) {
  const rounds::RoundSettings& settings = scenario_.settings;
  const bool of_job = settings.restart_scope == rounds::RestartScope::kJob;
  const rounds::Start& first = *starts.begin()->second;
  int paid = 0;
  for (const auto& [id, start] : starts) {
    demand(start->restart_count <= settings.max_restarts, "the restart budget", "restart {} of {}",
           start->restart_count, settings.max_restarts);
    demand(!of_job || start->restart_count == first.restart_count, "the restart budget",
           "members are told of {} and of {} restarts", first.restart_count, start->restart_count);
    const std::uint64_t payer = of_job ? 0 : head.members.at(id).hello.agent;
    const auto [known, is_new] = head.restarts.try_emplace(payer, start->restart_count);
    const int spent = start->restart_count - std::exchange(known->second, start->restart_count);
    if (head.participants.empty() || spent <= 0) continue;
    demand(spent == 1, "the restart budget", "{} restarts at once", spent);
    demand(head.failed, "the restart budget", "round {} costs a restart, and nothing has failed",
           first.round);
    demand(of_job || ++paid == 1, "the restart budget", "two agents pay for round {}", first.round);
    paid = 1;
    const Moment pause = rounds::backoff_before(settings, start->restart_count);
    demand(head.prepared_at - head.drained_at >= pause, "a restart waits for its pause",
           "round {} begins after {} ms, and restart {} waits for {} ms", first.round,
           (head.prepared_at - head.drained_at).count() / 1000000, start->restart_count,
           pause.count() / 1000000);
  }
  return paid;
}

// After a failure that would only come again no other round begins.
void Referee::check_worth(HeadBook& head, int round) const {
  const auto before = std::exchange(head.quick_failure_before, std::nullopt);
  if (!head.worker_failure) return;
  const rounds::JobFailure& failure = *head.worker_failure;
  demand(!rounds::is_final(scenario_.settings, failure), "the final is final",
         "round {} begins after exit code {}", round, failure.code);
  if (head.ran_until - head.running_since >= scenario_.settings.alike_window) return;
  demand(!before || before->code != failure.code, "what fails alike is not tried again",
         "round {} begins, and the two before it ended with {} at once", round, failure.code);
  head.quick_failure_before = failure;
}

// --- members
void Referee::agent_starts(int node) {
  said_round_[node] = rounds::kNoRound;
}

void Referee::is_done(int node, int round) {
  if (round > done_in_) done_agents_.clear();
  if (round >= done_in_) done_agents_.insert(agent_of_[node]);
  done_in_ = std::max(done_in_, round);
}

void Referee::member_says(int node, const rounds::AgentMessage& message) {
  const int round = round_of(message);
  if (const auto* hello = std::get_if<rounds::Hello>(&message)) {
    agent_of_[node] = hello->agent;
    // Its workers may have ended well while it had no head to tell.
    if (hello->done_round != rounds::kNoRound) is_done(node, hello->done_round);
  }
  if (std::holds_alternative<rounds::Done>(message)) is_done(node, round);
  // It was told to.
  if (std::holds_alternative<rounds::Stopped>(message) && round == done_in_)
    done_agents_.erase(agent_of_[node]);
  // Stopped is true of any old round, and said whenever it is asked for.
  if (round == rounds::kNoRound || std::holds_alternative<rounds::Stopped>(message)) return;
  int& last = said_round_[node];
  demand(round >= last, "rounds rise", "node {} says {} after round {}", node, text_of(message),
         last);
  last = round;
}

// Two rounds may live at once in one case only: where the agent of the older one's workers, or its
// machine, stood still after the head had last heard of it. Nobody can act while it stands still,
// and the others do not wait for it. A fixed head that comes again has a new job: its rounds are
// not those of the old one.
// Who was told a verdict that could not be written ends its workers with their grace, and those who
// were not told may begin another round meanwhile.
void Referee::workers_start(const std::vector<Node>& nodes, const std::vector<WorkerGroup>& groups,
                            int node, int head_life, const rounds::Start& start) {
  const auto [owner, is_new] =
      owners_.emplace(std::tuple(head_life, start.round, start.group_rank), node);
  demand(is_new, "one owner per rank", "nodes {} and {} are both group rank {} of round {}",
         owner->second, node, start.group_rank, start.round);
  for (const Node& each : nodes) {
    for (const std::size_t number : each.groups) {
      const WorkerGroup& group = groups[number];
      if (group.phase == WorkerGroup::Phase::kGone) continue;
      const bool same_head = group.head_life == head_life;
      if (same_head && group.round == start.round) continue;
      if (!same_head && scenario_.meeting == Meeting::kFixedHead) continue;
      const bool is_older = group.round < start.round;
      const Node& older = nodes[static_cast<std::size_t>(is_older ? group.node : node)];
      const bool excused = (is_older && group.excused) || older.stood_still_unheard();
      if (told_unwritten_) continue;
      demand(excused && (group.node != node || group.excused), "one generation lives",
             "node {} starts workers of round {}, and those of round {} live on node {}", node,
             start.round, group.round, group.node);
    }
  }
}

void Referee::workers_gone(const WorkerGroup& group) {
  if (!group.succeeded) return;
  for (const auto& [place, node] : owners_)
    if (std::get<1>(place) == group.round && node == group.node)
      finished_rounds_.insert({group.round, std::get<2>(place)});
}

void Referee::member_finishes(const Node& node, int index, const std::vector<WorkerGroup>& groups,
                              const rounds::Finish& finish) {
  for (const std::size_t number : node.groups)
    demand(groups[number].life != node.life || groups[number].phase == WorkerGroup::Phase::kGone,
           "who finishes has no workers", "node {} finishes, and its workers of round {} live",
           index, groups[number].round);
  if (finish.kind == rounds::Finish::Kind::kFailed)
    demand(!finish.failure.describe().empty(), "a verdict has a reason", "node {}", index);
  const bool succeeded = finish.kind == rounds::Finish::Kind::kSucceeded;
  const bool is_left = left_ && left_->outcome == rounds::Close::Outcome::kSucceeded;
  demand(!succeeded || is_left || told_well_.contains(agent_of_[index]),
         "success is the head's word",
         "node {} takes the job for a success, and no head has told it so", index);
  if (finish.kind == rounds::Finish::Kind::kError)
    demand(finish.error.has_value(), "a verdict has a reason", "node {}", index);
}

// A run without faults and failures must have ended well for everybody who could take part.
void Referee::run_ends(const std::vector<Node>& nodes) const {
  if (!scenario_.faults.empty()) return;
  const auto count = static_cast<int>(nodes.size());
  if (count < scenario_.settings.min_nodes) return;
  int well = 0;
  for (const Node& node : nodes) well += node.finish.kind == rounds::Finish::Kind::kSucceeded;
  demand(well >= scenario_.settings.min_nodes, "a quiet run ends well",
         "only {} of {} nodes ended well", well, count);
}

}  // namespace dtrun::simulation
