#include "rounds/head_sessions.h"
#include "wire/printable.h"

#include <fmt/core.h>

#include <algorithm>

namespace dtrun::rendezvous {

using namespace rounds;

namespace {

// Complaints about strangers are limited to this rate, so that a flood of strangers does not flood
// the operator.
constexpr Moment kComplaintInterval = std::chrono::seconds(1);
// No name is longer.
constexpr std::size_t kMostHostBytes = 255;

// Names are shown on terminals, and anybody may have sent them.
void make_presentable(std::string& host) {
  host = printable(std::string_view(host).substr(0, kMostHostBytes));
}

void make_hosts_presentable(AgentMessage& message) {
  if (auto* hello = std::get_if<Hello>(&message)) make_presentable(hello->host);
  if (auto* failed = std::get_if<Failed>(&message)) make_presentable(failed->failure.host);
  if (auto* leaving = std::get_if<Leaving>(&message)) make_presentable(leaving->why.host);
  if (auto* end = std::get_if<WorkerEnd>(&message)) make_presentable(end->host);
}

}  // namespace

HeadSessions::HeadSessions(HeadState head, Proof proof, const Limits& limits, AddressOf address_of)
    : head_(std::move(head)),
      proof_(std::move(proof)),
      limits_(limits),
      address_of_(std::move(address_of)) {}

MemberId HeadSessions::add(AgentSession session, Moment now) {
  const MemberId id = next_id_++;
  if (newcomers_.size() >= limits_.newcomers) part_with_oldest_newcomer();
  entries_.emplace(id, Entry{std::move(session), now});
  newcomers_.insert(newcomers_.end(), id);
  return id;
}

MemberId HeadSessions::open(const AgentHandshake::Nonce& nonce, Moment now) {
  return add(AgentSession(AgentHandshake(AgentHandshake::Role::kHead, "agents", proof_, nonce)),
             now);
}

MemberId HeadSessions::open_own(Moment now) {
  const MemberId id = add(AgentSession(), now);
  head_.own = id;
  return id;
}

AgentSession* HeadSessions::find(MemberId id) {
  const auto found = entries_.find(id);
  return found == entries_.end() ? nullptr : &found->second.session;
}

void HeadSessions::part_with_oldest_newcomer() {
  const MemberId oldest = *newcomers_.begin();
  part(oldest, entries_.at(oldest), Parting::kAtOnce);
}

bool HeadSessions::part_with_newcomer_since(Moment moment) {
  if (newcomers_.empty() || entries_.at(*newcomers_.begin()).since > moment) return false;
  part_with_oldest_newcomer();
  return true;
}

void HeadSessions::receive(MemberId id, std::string_view bytes, Moment now) {
  const auto found = entries_.find(id);
  if (found == entries_.end() || !found->second.is_heard()) return;
  Entry& entry = found->second;
  entry.session.receive(bytes);
  if (!entry.session.unsent().empty()) effects_.written.push_back(id);
  if (auto question = entry.session.take_question())
    effects_.questions.emplace_back(id, std::move(question));
  hear(id, now);
}

void HeadSessions::hear_realm(MemberId id, AgentHandshake::RealmAnswer answer, Moment now) {
  const auto found = entries_.find(id);
  if (found == entries_.end() || !found->second.is_heard()) return;
  found->second.session.hear(std::move(answer));
  receive(id, {}, now);
}

// All whole messages. What follows from one of them may end the connection.
void HeadSessions::hear(MemberId id, Moment now) {
  Entry& entry = entries_.at(id);
  while (std::optional<AgentMessage> message = entry.session.next<AgentMessage>()) {
    make_hosts_presentable(*message);
    if (auto* ready = std::get_if<StoreReady>(&*message)) {
      // A store that is ready before it was asked for is ignored: the round may not begin before it
      // is on record.
      if (ready->round != opened_round_) continue;
      if (ready->address.empty()) ready->address = address_of_(id);
    }
    carry_out(step(head_, Said{id, std::move(*message)}, now));
    if (!entry.is_heard()) return;
  }
  const AgentSession::State state = entry.session.state();
  if (state == AgentSession::State::kRefused || state == AgentSession::State::kFailed)
    reject(id, entry, now);
}

void HeadSessions::reject(MemberId id, Entry& entry, Moment now) {
  const std::string why = entry.session.failure();
  const bool refused = entry.session.state() == AgentSession::State::kRefused;
  if (!complained_ || now - *complained_ >= kComplaintInterval) {
    complained_ = now;
    effects_.notes.push_back({refused ? Note::Weight::kWarning : Note::Weight::kDetail,
                              fmt::format("{} was turned away: {}", address_of_(id), why)});
  }
  const bool member = entry.stage == Entry::Stage::kMember;
  part(id, entry, refused ? Parting::kWhenSent : Parting::kAtOnce);
  // The agent may live, and have workers.
  if (member) carry_out(step(head_, Lost{id, LossKind::kSilent, why}, now));
}

void HeadSessions::lose(MemberId id, LossKind kind, const std::string& why, Moment now) {
  const auto found = entries_.find(id);
  if (found == entries_.end()) return;
  const bool known = found->second.stage != Entry::Stage::kParted;
  forget(id);
  if (known) carry_out(step(head_, Lost{id, kind, why}, now));
}

void HeadSessions::forget(MemberId id) {
  newcomers_.erase(id);
  entries_.erase(id);
}

void HeadSessions::tick(Moment now) {
  while (!newcomers_.empty() &&
         now - entries_.at(*newcomers_.begin()).since >= limits_.newcomer_time)
    part_with_oldest_newcomer();
  for (const MemberId id : std::exchange(deaf_, {})) {
    const auto found = entries_.find(id);
    if (found == entries_.end() || found->second.stage == Entry::Stage::kParted) continue;
    part(id, found->second, Parting::kAtOnce);
    carry_out(step(head_, Lost{id, LossKind::kSilent, "it does not read its messages"}, now));
  }
  carry_out(step(head_, Tick{}, now));
}

void HeadSessions::step_down() {
  // A verdict that no agent was told is left to the next head.
  if (verdict_ != Verdict::kMayBeTold) verdict_ = Verdict::kIsNotOurs;
  untold_.clear();
  carry_out(rounds::step_down(head_));
}

Moment HeadSessions::deadline() const {
  Moment due = head_deadline(head_);
  if (!newcomers_.empty())
    due = std::min(due, entries_.at(*newcomers_.begin()).since + limits_.newcomer_time);
  return deaf_.empty() ? due : head_.last_step;
}

void HeadSessions::carry_out(const std::vector<HeadAction>& actions) {
  for (const HeadAction& action : actions)
    std::visit([&](const auto& what) { carry_out(what); }, action);
}

void HeadSessions::carry_out(const Send& action) {
  if (const auto* prepare = std::get_if<Prepare>(&action.message))
    effects_.opening.emplace_back(action.id, *prepare);
  else if (const auto* close = std::get_if<Close>(&action.message))
    keep_verdict(action.id, *close);
  else
    say(action.id, action.message);
}

void HeadSessions::keep_verdict(MemberId id, const Close& verdict) {
  if (verdict_ == Verdict::kMayBeTold) return say(id, verdict);
  if (verdict_ == Verdict::kIsNotOurs) return;
  if (verdict_ == Verdict::kNone) effects_.verdict = verdict;
  verdict_ = Verdict::kIsKept;
  untold_.push_back(id);
}

void HeadSessions::tell_verdict() {
  verdict_ = Verdict::kMayBeTold;
  for (const MemberId id : std::exchange(untold_, {})) say(id, head_.verdict);
}

// If the round was given up meanwhile, the agent's answer is out of date.
void HeadSessions::open_round(MemberId id, const Prepare& prepare) {
  opened_round_ = prepare.round;
  say(id, prepare);
}

void HeadSessions::say(MemberId id, const HeadMessage& message) {
  const auto found = entries_.find(id);
  if (found == entries_.end() || found->second.stage == Entry::Stage::kParted) return;
  Entry& entry = found->second;
  if (std::holds_alternative<Accepted>(message)) {
    entry.stage = Entry::Stage::kMember;
    newcomers_.erase(id);
  } else if (std::holds_alternative<Refused>(message)) {
    entry.stage = Entry::Stage::kRefused;
  }
  entry.session.say(message);
  effects_.written.push_back(id);
  // The session is ended later: this is the middle of a step's actions.
  if (entry.session.unsent().size() > limits_.unsent_bytes) deaf_.push_back(id);
}

void HeadSessions::carry_out(const HangUp& action) {
  const auto found = entries_.find(action.id);
  if (found == entries_.end() || found->second.stage == Entry::Stage::kParted) return;
  part(action.id, found->second, Parting::kWhenSent);
}

void HeadSessions::carry_out(const Note& action) {
  effects_.notes.push_back(action);
}

void HeadSessions::carry_out(const Collect& action) {
  effects_.ends.push_back(action.end);
}

void HeadSessions::carry_out(const End&) {
  effects_.ended = true;
}

void HeadSessions::part(MemberId id, Entry& entry, Parting parting) {
  entry.stage = Entry::Stage::kParted;
  newcomers_.erase(id);
  effects_.parted.emplace_back(id, parting);
}

}  // namespace dtrun::rendezvous
