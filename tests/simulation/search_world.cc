#include "search_world.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <utility>

#include "violation.h"
#include "words.h"

namespace dtrun::simulation {
namespace {

using rounds::Moment;
using Workers = SearchAgent::Workers;
constexpr Moment kUnit = std::chrono::seconds(5);

rounds::RoundSettings settings_of(const SearchScope& scope) {
  rounds::RoundSettings settings;
  settings.min_nodes = scope.min_nodes;
  settings.max_nodes = scope.max_nodes;
  settings.max_restarts = scope.restarts;
  settings.join_timeout = kUnit * 6;
  settings.last_call_timeout = kUnit * 2;
  settings.close_timeout = kUnit;
  settings.keep_alive_interval = kUnit;
  settings.silence_window = kUnit * 4;
  settings.death_grace = kUnit;
  return settings;
}

}  // namespace

SearchWorld::SearchWorld(const SearchScope& scope) : left_(scope) {
  head_ = rounds::make_head(settings_of(scope), "job", now_);
  head_.contradiction = rounds::Contradiction::kIsSentAway;
  agents_.resize(static_cast<std::size_t>(scope.nodes));
  for (std::size_t i = 0; i < agents_.size(); ++i) {
    agents_[i].member = new_member(i);
    obey(i, rounds::begin(agents_[i].member, now_));
  }
}

SearchWorld::Ids SearchWorld::known_ids() const {
  Ids ids;
  for (const auto& [id, member] : head_.members) ids.push_back(id);
  for (const SearchAgent& agent : agents_)
    if (agent.connection != 0) ids.push_back(agent.connection);
  for (const SearchOutbox& outbox : outboxes_) ids.push_back(outbox.connection);
  if (head_.own) ids.push_back(*head_.own);
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

rounds::MemberState SearchWorld::new_member(std::size_t agent) const {
  rounds::MemberState member;
  rounds::Hello& hello = member.settings.hello;
  hello.run_id = "job";
  hello.host = agent == 0 ? "n0" : "n1";  // those that do not host are alike
  hello.min_nodes = left_.min_nodes;
  hello.max_nodes = left_.max_nodes;
  hello.agent = identity_of(agent);
  member.settings.join_timeout = kUnit * 6;
  member.settings.rejoin_timeout = kUnit * 2;
  member.settings.read_timeout = kUnit * 12;
  member.settings.after_loss = rounds::AfterLoss::kRejoin;
  return member;
}

std::uint64_t SearchWorld::identity_of(std::size_t agent) const {
  return agent + 1 + kLives * static_cast<std::uint64_t>(agents_[agent].life);
}

bool SearchWorld::is_over() const {
  return std::all_of(agents_.begin(), agents_.end(), [](const SearchAgent& agent) {
    return (!agent.alive && agent.workers != Workers::kEndingNow) || agent.finished;
  });
}

// --- what can happen
std::vector<SearchMove> SearchWorld::moves() const {
  std::vector<SearchMove> result;
  for (const SearchOutbox& outbox : outboxes_)
    result.push_back({Choice::kHeadHears, static_cast<std::size_t>(outbox.connection)});
  for (std::size_t i = 0; i < agents_.size(); ++i) {
    const SearchAgent& agent = agents_[i];
    const auto add = [&](Choice choice) { result.push_back({choice, i}); };
    if (agent.workers == Workers::kEnding || agent.workers == Workers::kEndingNow)
      add(Choice::kWorkersGone);
    if (!agent.alive) {
      if (left_.rejoins > 0 && agent.workers == Workers::kNone && !head_.ended)
        add(Choice::kRejoin);
      continue;
    }
    if (agent.finished) continue;
    if (agent.workers == Workers::kRunning) {
      add(Choice::kWorkersEndWell);
      if (left_.failures > 0 && !agent.paused) add(Choice::kWorkersFail);
    }
    if (left_.crashes > 0 && i != 0) add(Choice::kCrash);
    if (agent.paused) {
      add(Choice::kResume);
      continue;
    }
    if (agent.workers == Workers::kGone) add(Choice::kWorkersGone);
    if (agent.dialling && !head_.ended) add(Choice::kDial);
    if (!agent.inbox.empty()) add(Choice::kHearHead);
    if (agent.opening != rounds::kNoRound) add(Choice::kStoreOpens);
    if (left_.losses > 0 && i != 0 && agent.connection != 0) add(Choice::kLose);
    if (left_.pauses > 0 && i != 0) add(Choice::kPause);
  }
  if (!something_is_under_way()) result.push_back({Choice::kTime, 0});
  return result;
}

// What takes no time must be over before time moves on. Who stands still keeps nobody waiting, and
// workers that have their grace take longer than anything.
bool SearchWorld::something_is_under_way() const {
  if (!outboxes_.empty()) return true;
  return std::any_of(agents_.begin(), agents_.end(), [&](const SearchAgent& agent) {
    if (agent.workers == Workers::kEndingNow) return true;
    if (!agent.alive || agent.finished || agent.paused) return false;
    return !agent.inbox.empty() || agent.opening != rounds::kNoRound ||
           agent.workers == Workers::kGone || (agent.dialling && !head_.ended);
  });
}

void SearchWorld::make(const SearchMove& move) {
  make_only(move);
  hear_what_has_no_answer();
}

// A word that is not answered, and after which the hearer does the same at any time until the clock
// moves, need not wait for its turn: whatever happens meanwhile leads to the same.
void SearchWorld::hear_what_has_no_answer() {
  bool again = true;
  while (again) {
    again = head_hears_in_vain();
    for (std::size_t i = 0; i < agents_.size(); ++i) again |= hear_without_answer(i);
  }
}

bool SearchWorld::hear_without_answer(std::size_t index) {
  SearchAgent& agent = agents_[index];
  if (!agent.alive || agent.finished || agent.paused || agent.inbox.empty()) return false;
  const auto* word = std::get_if<rounds::HeadMessage>(&agent.inbox.front());
  if (word == nullptr) return false;
  const bool opening = agent.opening != rounds::kNoRound;
  const bool prepares = std::holds_alternative<rounds::Accepted>(*word) ||
                        std::holds_alternative<rounds::Prepare>(*word);
  if (!std::holds_alternative<rounds::Standing>(*word) && (!prepares || opening)) return false;
  get_on({Choice::kHearHead, index});
  return true;
}

bool SearchWorld::head_hears_in_vain() {
  if (head_.ended || head_.phase != rounds::HeadPhase::kClosed) return false;
  for (const SearchOutbox& outbox : outboxes_) {
    const auto* word = std::get_if<rounds::AgentMessage>(&outbox.words.front());
    if (word == nullptr || std::holds_alternative<rounds::Hello>(*word)) continue;
    head_hears(outbox.connection);
    return true;
  }
  return false;
}

void SearchWorld::make_only(const SearchMove& move) {
  switch (move.choice) {
    case Choice::kTime:
      return let_time_pass();
    case Choice::kHeadHears:
      return head_hears(static_cast<rounds::MemberId>(move.agent));
    case Choice::kDial:
    case Choice::kHearHead:
    case Choice::kStoreOpens:
      return get_on(move);
    case Choice::kWorkersEndWell:
    case Choice::kWorkersFail:
    case Choice::kWorkersGone:
      return end_workers(move);
    default:
      return hurt(move);
  }
}

void SearchWorld::head_hears(rounds::MemberId id) {
  SearchOutbox& outbox = *outbox_of(id);
  const auto word = outbox.words.front();
  outbox.words.pop_front();
  if (outbox.words.empty())
    std::erase_if(outboxes_, [&](const SearchOutbox& each) { return each.connection == id; });
  if (const auto* loss = std::get_if<rounds::LossKind>(&word))
    return head_event(rounds::Lost{id, *loss, "lost"});
  head_event(rounds::Said{id, std::get<rounds::AgentMessage>(word)});
}

void SearchWorld::get_on(const SearchMove& move) {
  SearchAgent& agent = agents_[move.agent];
  if (move.choice == Choice::kDial) {
    agent.dialling = false;
    agent.connection = ++last_id_;
    if (move.agent == 0) head_.own = agent.connection;
    return member_event(move.agent, rounds::Connected{});
  }
  if (move.choice == Choice::kStoreOpens) {
    const int round = std::exchange(agent.opening, rounds::kNoRound);
    return member_event(move.agent, rounds::StoreOpened{round, "", 1});
  }
  const auto word = agent.inbox.front();
  agent.inbox.pop_front();
  if (!std::holds_alternative<SearchLoss>(word))
    return member_event(move.agent, rounds::Received{std::get<rounds::HeadMessage>(word)});
  agent.connection = 0;
  member_event(move.agent, rounds::Disconnected{"lost"});
}

void SearchWorld::end_workers(const SearchMove& move) {
  SearchAgent& agent = agents_[move.agent];
  if (move.choice == Choice::kWorkersEndWell) {
    agent.workers = Workers::kGone;
    agent.workers_well = true;
    return;
  }
  if (move.choice == Choice::kWorkersFail) {
    --left_.failures;
    agent.workers = Workers::kEnding;
    rounds::JobFailure failure;
    failure.text = "failed";
    return member_event(move.agent, rounds::WorkersFailed{agent.workers_round, failure});
  }
  if (!agent.alive || agent.paused) {
    agent.workers = agent.alive ? Workers::kGone : Workers::kNone;
    return;
  }
  agent.workers = Workers::kNone;
  using How = rounds::WorkersGone::How;
  const How how = std::exchange(agent.workers_well, false) ? How::kAllSucceeded : How::kOtherwise;
  member_event(move.agent, rounds::WorkersGone{agent.workers_round, how});
}

void SearchWorld::hurt(const SearchMove& move) {
  SearchAgent& agent = agents_[move.agent];
  switch (move.choice) {
    case Choice::kCrash: {
      --left_.crashes;
      agent.alive = agent.paused = agent.dialling = false;
      agent.opening = rounds::kNoRound;
      agent.inbox.clear();
      drop_connection(move.agent, rounds::LossKind::kGone);
      const bool live = agent.workers == Workers::kRunning || agent.workers == Workers::kEnding ||
                        agent.workers == Workers::kEndingNow;
      agent.workers = live ? Workers::kEndingNow : Workers::kNone;
      return;
    }
    case Choice::kLose:
      --left_.losses;
      agent.inbox.emplace_back(SearchLoss{});
      drop_connection(move.agent, rounds::LossKind::kSilent);
      return;
    case Choice::kRejoin:
      --left_.rejoins;
      ++agent.life;
      agent.alive = true;
      agent.member = new_member(move.agent);
      return obey(move.agent, rounds::begin(agent.member, now_));
    case Choice::kPause:
      --left_.pauses;
      agent.paused = agent.excused = true;
      return;
    default:
      agent.paused = false;
  }
}

void SearchWorld::let_time_pass() {
  Moment next = rounds::head_deadline(head_);
  for (const SearchAgent& agent : agents_) {
    if (!agent.alive || agent.finished || agent.paused) continue;
    next = std::min(next, rounds::member_deadline(agent.member));
    if (agent.dialling && agent.member.join_deadline)
      next = std::min(next, std::max(now_, *agent.member.join_deadline));
  }
  if (next == Moment::max()) {
    // Workers that have their grace, or run, are somebody to wait for.
    const bool live = std::any_of(agents_.begin(), agents_.end(), [](const SearchAgent& agent) {
      return agent.paused || agent.workers == Workers::kRunning ||
             agent.workers == Workers::kEnding;
    });
    if (!live) throw Violation("no deadlock", describe_agents());
    return;
  }
  now_ = std::max(now_, next);
  // The workers of the dead, and of those that have lost the head, do not outlive a unit of time:
  // something_is_under_way() has seen to that.
  for (std::size_t i = 0; i < agents_.size(); ++i) {
    SearchAgent& agent = agents_[i];
    if (!agent.alive || agent.finished || agent.paused) continue;
    if (rounds::member_deadline(agent.member) <= now_) member_event(i, rounds::MemberTick{});
    if (agent.dialling && head_.ended) {
      agent.dialling = false;
      member_event(i, rounds::Unreachable{"nobody is there"});
    }
  }
  if (!head_.ended && rounds::head_deadline(head_) <= now_) head_event(rounds::Tick{});
  if (!head_.ended && rounds::head_deadline(head_) <= now_)
    throw Violation("deadlines move on", "the head's stays");
}

// --- members
void SearchWorld::member_event(std::size_t index, const rounds::MemberEvent& event) {
  SearchAgent& agent = agents_[index];
  if (!agent.alive || agent.finished) return;
  obey(index, rounds::step(agent.member, event, now_));
}

void SearchWorld::obey(std::size_t index, const std::vector<rounds::MemberAction>& actions) {
  SearchAgent& agent = agents_[index];
  for (const rounds::MemberAction& action : actions) {
    if (std::holds_alternative<rounds::Connect>(action)) {
      agent.dialling = true;
    } else if (const auto* say_it = std::get_if<rounds::Say>(&action)) {
      say(index, say_it->message);
    } else if (std::holds_alternative<rounds::Disconnect>(action)) {
      drop_connection(index, rounds::LossKind::kGone);
      agent.inbox.clear();
    } else if (const auto* open = std::get_if<rounds::OpenStore>(&action)) {
      agent.opening = open->round;
    } else if (const auto* start = std::get_if<rounds::StartWorkers>(&action)) {
      start_workers(index, start->start);
    } else if (const auto* stop = std::get_if<rounds::StopWorkers>(&action)) {
      const bool live = agent.workers == Workers::kRunning || agent.workers == Workers::kEnding;
      if (live && stop->round == agent.workers_round)
        agent.workers =
            stop->urgency == rounds::StopUrgency::kNow ? Workers::kEndingNow : Workers::kEnding;
    } else if (std::holds_alternative<rounds::Finish>(action)) {
      agent.finished = true;
      drop_connection(index, rounds::LossKind::kGone);
      agent.inbox.clear();
      if (agent.workers != Workers::kNone)
        throw Violation("who finishes has no workers", fmt::format("agent {}", index));
    }
  }
}

void SearchWorld::say(std::size_t index, const rounds::AgentMessage& message) {
  SearchAgent& agent = agents_[index];
  if (agent.connection == 0) {
    const bool will_hear =
        std::any_of(agent.inbox.begin(), agent.inbox.end(),
                    [](const auto& word) { return std::holds_alternative<SearchLoss>(word); });
    if (!will_hear) throw Violation("who speaks is connected", text_of(message));
    return;
  }
  agent.excused = false;
  // Beats and what answers them change nothing but the times at which one was heard.
  if (std::holds_alternative<rounds::Beat>(message)) {
    if (head_.members.contains(agent.connection) && outbox_of(agent.connection) == nullptr)
      head_event(rounds::Said{agent.connection, message});
    return;
  }
  open_outbox(index, agent.connection).words.emplace_back(message);
}

SearchOutbox* SearchWorld::outbox_of(rounds::MemberId connection) {
  for (SearchOutbox& outbox : outboxes_)
    if (outbox.connection == connection) return &outbox;
  return nullptr;
}

SearchOutbox& SearchWorld::open_outbox(std::size_t agent, rounds::MemberId connection) {
  if (SearchOutbox* outbox = outbox_of(connection)) return *outbox;
  return outboxes_.emplace_back(SearchOutbox{connection, agent, agents_[agent].life, {}});
}

// The head hears of it when it has heard all that was said before; the member's own end is its own
// affair.
void SearchWorld::drop_connection(std::size_t index, rounds::LossKind kind) {
  SearchAgent& agent = agents_[index];
  const rounds::MemberId id = std::exchange(agent.connection, 0);
  if (id == 0 || head_.ended) return;
  open_outbox(index, id).words.emplace_back(kind);
}

void SearchWorld::start_workers(std::size_t index, const rounds::Start& start) {
  for (std::size_t i = 0; i < agents_.size(); ++i) {
    const SearchAgent& each = agents_[i];
    if (each.workers == Workers::kNone || each.workers == Workers::kGone) continue;
    if (i != index && each.workers_round == start.round) continue;
    const SearchAgent& older = each.workers_round < start.round ? each : agents_[index];
    if (!older.excused || i == index)
      throw Violation("one generation lives",
                      fmt::format("round {} starts on {}, and {} lives on {}", start.round, index,
                                  each.workers_round, i));
  }
  agents_[index].workers = Workers::kRunning;
  agents_[index].workers_round = start.round;
  agents_[index].workers_well = false;
}

// --- the head
void SearchWorld::head_event(const rounds::HeadEvent& event) {
  if (head_.ended) return;
  const auto* said = std::get_if<rounds::Said>(&event);
  if (said != nullptr && head_.phase == rounds::HeadPhase::kRunning) {
    const auto* done = std::get_if<rounds::Done>(&said->message);
    if (done != nullptr && done->round == started_) done_in_ = started_;
  }
  const auto actions = rounds::step(head_, event, now_);
  check_starts(actions);
  for (const rounds::HeadAction& action : actions) {
    if (const auto* message = std::get_if<rounds::Send>(&action)) send(*message);
    const auto* hang_up = std::get_if<rounds::HangUp>(&action);
    const bool end = std::holds_alternative<rounds::End>(action);
    if (hang_up == nullptr && !end) continue;
    for (SearchAgent& agent : agents_)
      if (agent.alive && agent.connection != 0 && (end || agent.connection == hang_up->id)) {
        agent.inbox.emplace_back(SearchLoss{});
        agent.connection = 0;
      }
    std::erase_if(outboxes_, [&](const SearchOutbox& outbox) {
      return end || outbox.connection == hang_up->id;
    });
  }
}

void SearchWorld::send(const rounds::Send& send) {
  const bool about_a_round = std::holds_alternative<rounds::Prepare>(send.message) ||
                             std::holds_alternative<rounds::Start>(send.message);
  if (closed_ && about_a_round) throw Violation("closed is final", text_of(send.message));
  if (std::holds_alternative<rounds::Close>(send.message)) closed_ = true;
  if (std::holds_alternative<rounds::Echo>(send.message)) return;
  for (SearchAgent& agent : agents_)
    if (agent.alive && !agent.finished && agent.connection == send.id)
      agent.inbox.emplace_back(send.message);
}

void SearchWorld::check_starts(const std::vector<rounds::HeadAction>& actions) {
  std::set<int> ranks;
  int world = 0;
  for (const rounds::HeadAction& action : actions) {
    const auto* message = std::get_if<rounds::Send>(&action);
    const auto* start =
        message == nullptr ? nullptr : std::get_if<rounds::Start>(&message->message);
    if (start == nullptr) continue;
    if (!ranks.insert(start->group_rank).second)
      throw Violation("one owner per rank", text_of(message->message));
    world = start->group_world_size;
    if (start->restart_count > left_.restarts)
      throw Violation("the restart budget", text_of(message->message));
    if (ranks.size() == 1 && start->round <= started_)
      throw Violation("rounds rise", text_of(message->message));
    if (done_in_ != rounds::kNoRound)
      throw Violation("no round after a done", text_of(message->message));
    started_ = start->round;
  }
  if (ranks.empty()) return;
  const auto count = static_cast<int>(ranks.size());
  if (count != world || *ranks.begin() != 0 || *ranks.rbegin() != world - 1)
    throw Violation("ranks are dense", fmt::format("{} of {}", count, world));
  if (count < left_.min_nodes) throw Violation("never below min", fmt::format("{}", count));
  if (count > left_.max_nodes) throw Violation("never above max", fmt::format("{}", count));
}

std::string SearchWorld::describe_agents() const {
  std::string result = fmt::format("head {}", name_of(head_.phase));
  for (const SearchAgent& agent : agents_)
    result += fmt::format("; {}{}{}{}, workers {}", name_of(agent.member.phase),
                          agent.alive ? "" : " dead", agent.finished ? " finished" : "",
                          agent.dialling ? " dialling" : "", static_cast<int>(agent.workers));
  return result;
}

std::vector<std::string> SearchWorld::way() const {
  std::vector<std::string> result;
  for (const Way* way = way_.get(); way != nullptr; way = way->before.get())
    result.push_back(way->step);
  std::reverse(result.begin(), result.end());
  return result;
}

std::string SearchWorld::describe(const SearchMove& move) {
  static constexpr const char* kNames[] = {
      "dials",        "hears the head", "is heard",   "opens the store", "workers end well",
      "workers fail", "workers gone",   "crashes",    "loses the head",  "rejoins",
      "stands still", "goes on",        "time passes"};
  return fmt::format("{} {}", move.agent, kNames[static_cast<std::size_t>(move.choice)]);
}

}  // namespace dtrun::simulation
