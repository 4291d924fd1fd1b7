#include "rounds/head_step.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "rounds/planted_bug.h"
#include "rounds/round_admission.h"

namespace dtrun::rendezvous::rounds {

// --- coming
void HeadStep::on_hello(MemberId id, const Hello& hello) {
  if (s_.resigned) return do_(HangUp{id});
  if (s_.members.contains(id)) {  // it may say so once
    do_(HangUp{id});
    return lose(id, LossKind::kSilent, "it sent a second Hello");
  }
  if (is_out_of_date(hello)) return do_(HangUp{id});
  const auto twin = s_.by_agent.find(hello.agent);
  if (hello.agent != 0 && hello.run_id == s_.run_id && twin != s_.by_agent.end() &&
      !planted(PlantedBug::kTwinStays)) {
    if (take_back(id, hello)) return;
    const MemberId old = twin->second;
    do_(HangUp{old});
    lose(old, LossKind::kGone, "it has come back by another connection");
  }
  // It has no live workers.
  if (hello.agent != 0 && hello.run_id == s_.run_id) {
    s_.absent.remove(hello.agent);
    s_.owed.remove(hello.agent);
  }
  if (planted(PlantedBug::kAnybodyEndsAbsence)) s_.absent.clear();
  if (is_owed_the_verdict(hello)) {
    admit(id, hello);
    send(id, Accepted{s_.settings.keep_alive_interval, s_.settings.silence_window});
    send(id, s_.verdict);
    note_told(hello.agent);
    return;
  }
  const Objection objection = objection_to(s_, hello);
  if (objection.kind != Objection::Kind::kNone) return send_away(id, hello, objection);
  admit(id, hello);
  learn_of_the_past(hello);
  s_.lost_agents.erase(hello.agent);
  if (planted(PlantedBug::kCloseNotFinal) && s_.phase == HeadPhase::kClosed) gather_again();
  if (planted(PlantedBug::kSpareCountedTwice) && s_.participants == s_.settings.max_nodes)
    ++s_.present;
  send(id, Accepted{s_.settings.keep_alive_interval, s_.settings.silence_window});
  if (s_.own != id)
    note(Note::Weight::kDetail,
         fmt::format("{} has joined with {} ranks", hello.describe(), hello.local_ranks));
  if (s_.phase == HeadPhase::kGathering) {
    if (s_.last_call) tell_standing(id, Standing::Kind::kLastCall);
    // Its patience does not run during a pause that the user has asked for.
    if (now_ < s_.pause_until) tell_standing(id, Standing::Kind::kWaiting);
    return;
  }
  const bool room = s_.participants < s_.settings.max_nodes;
  if (room && !s_.newcomers_since) s_.newcomers_since = now_;
  tell_standing(id, room ? Standing::Kind::kWaiting : Standing::Kind::kSpare);
}

// It has come by a later connection since, and may have been started there.
bool HeadStep::is_out_of_date(const Hello& hello) const {
  if (hello.run_id != s_.run_id) return false;
  const auto last = s_.connections.find(hello.agent);
  return last != s_.connections.end() && hello.connection < last->second;
}

void HeadStep::admit(MemberId id, const Hello& hello) {
  HeadMember& member = s_.members[id];
  member.hello = hello;
  member.restarts = std::min(hello.restarts, s_.settings.max_restarts);
  // The agent hears of its spent restarts only with the next Start, so its Hello may say too few.
  if (const auto spent = s_.spent_by_agent.find(hello.agent); spent != s_.spent_by_agent.end())
    member.restarts = std::max(member.restarts, spent->second);
  member.heard = now_;
  // It has lost its place, but not what it has done: while that round runs no other follows.
  const bool is_last = s_.phase == HeadPhase::kRunning || s_.phase == HeadPhase::kClosed;
  member.done = is_last && hello.done_round != kNoRound && hello.done_round == s_.last_started;
  if (hello.agent != 0) {
    s_.by_agent[hello.agent] = id;
    s_.connections[hello.agent] = hello.connection;
  }
  if (hello.node_rank != kNoNodeRank) s_.by_node_rank.emplace(hello.node_rank, id);
  ++s_.present;
}

// A member that is done in this round and comes by another connection has missed nothing; only its
// own message may have been lost.
bool HeadStep::take_back(MemberId id, const Hello& hello) {
  const MemberId old = s_.by_agent.at(hello.agent);
  HeadMember& member = s_.members.at(old);
  if (hello.done_round == kNoRound || !is_of_this_round(member, hello.done_round)) return false;
  on_word(old, member, Done{hello.done_round});
  member.heard = now_;
  auto entry = s_.members.extract(old);
  entry.key() = id;
  s_.members.insert(std::move(entry));
  s_.by_agent[hello.agent] = id;
  s_.connections[hello.agent] = hello.connection;
  const auto numbered = s_.by_node_rank.find(hello.node_rank);
  if (numbered != s_.by_node_rank.end() && numbered->second == old) numbered->second = id;
  if (s_.failed == old) s_.failed = id;
  do_(HangUp{old});
  send(id, Accepted{s_.settings.keep_alive_interval, s_.settings.silence_window});
  if (s_.phase == HeadPhase::kDraining) send(id, Stop{s_.round, s_.failure});
  return true;
}

// The agent took part and comes when the job is over. If it was not done when all others were, it
// had lost its place, and has no part in the success.
bool HeadStep::is_owed_the_verdict(const Hello& hello) const {
  if (s_.phase != HeadPhase::kClosed || planted(PlantedBug::kCloseNotFinal)) return false;
  if (hello.run_id != s_.run_id || hello.last_round == kNoRound) return false;
  return s_.verdict.outcome == Close::Outcome::kFailed ||
         (hello.done_round != kNoRound &&
          hello.done_round == std::max(s_.last_started, s_.latest_seen));
}

// The agents know best what the head before this one has done.
void HeadStep::learn_of_the_past(const Hello& hello) {
  if (s_.head_loss == HeadLoss::kMovesTheHead && s_.last_started == kNoRound) {
    if (s_.settings.restart_scope == RestartScope::kJob)
      s_.restarts = std::max(s_.restarts, std::min(hello.restarts, s_.settings.max_restarts));
    if (hello.last_round > s_.latest_seen) take_over(s_, hello.last_round, now_);
    learn_who_was_done(hello);
  }
  if (!planted(PlantedBug::kRoundsFromZero))
    s_.latest_seen = std::max(s_.latest_seen, hello.last_round);
}

void HeadStep::learn_who_was_done(const Hello& hello) {
  FormerRound& former = s_.former;
  if (hello.last_round == kNoRound || hello.last_round < former.round ||
      planted(PlantedBug::kDoneIsUnknownToTheNext))
    return;
  if (hello.last_round > former.round) {
    former = {hello.last_round, hello.last_group_size, {}, ""};
    s_.done_deadline.reset();
  }
  // It contradicts itself, or the others.
  if (hello.last_group_size != former.nodes || hello.last_group_rank < 0 ||
      hello.last_group_rank >= former.nodes)
    return;
  if (hello.done_round == former.round) {
    former.done.insert(hello.last_group_rank);
  } else if (former.undone.empty()) {
    former.undone = hello.describe();
  }
  if (somebody_was_done(s_) && !s_.done_deadline)
    s_.done_deadline = std::max(now_, fence_of(s_)) + s_.settings.silence_window;
}

void HeadStep::send_away(MemberId id, const Hello& hello, const Objection& objection) {
  note(Note::Weight::kWarning,
       fmt::format("{} was sent away: {}", hello.describe(), objection.text));
  // The other side hangs up: our end could overtake the words.
  send(id, Refused{objection.text});
  if (hello.run_id == s_.run_id) note_told(hello.agent);
  if (objection.kind != Objection::Kind::kContradiction || s_.last_started != kNoRound ||
      s_.contradiction == Contradiction::kIsSentAway || s_.phase == HeadPhase::kClosed)
    return;
  JobFailure failure = failure_of_node(hello, "");
  failure.code = kUsageCode;
  failure.text = fmt::format(
      "the nodes of job '{}' contradict each other: {} was sent away\n  why: {}\n  try: start "
      "all nodes with the same line",
      s_.run_id, hello.describe(), objection.text);
  s_.farewell = now_ + kFarewell;
  close(Close::Outcome::kFailed, failure);
}

void HeadStep::tell_standing(MemberId id, Standing::Kind kind) {
  send(id, Standing{kind, s_.present});
}

// --- words of members
void HeadStep::on_word(MemberId, HeadMember&, const Hello&) {}
void HeadStep::on_word(MemberId id, HeadMember&, const Beat&) {
  send(id, Echo{});
}

void HeadStep::on_word(MemberId, HeadMember& member, const StoreReady& ready) {
  const bool right = ready.round == s_.round || planted(PlantedBug::kStaleStoreReady);
  if (s_.phase != HeadPhase::kPreparing || !right || member.group_rank != 0) return;
  start_round(ready);
}

void HeadStep::on_word(MemberId id, HeadMember& member, const Stopped& stopped) {
  const bool right = planted(PlantedBug::kStaleStopped) && s_.phase == HeadPhase::kDraining;
  if (!right && !is_of_this_round(member, stopped.round)) return;
  has_stopped(member);
  if (s_.phase != HeadPhase::kRunning || member.done) return;
  JobFailure failure = failure_of_node(
      member.hello, fmt::format("the workers of {} have ended without a reason", name_of(member)));
  failure.node_rank = member.group_rank;
  interrupt(DrainCause::kWorkerFailure, failure, id, member.hello.agent);
}

void HeadStep::on_word(MemberId, HeadMember& member, const Done& done) {
  const int round = planted(PlantedBug::kStaleDone) ? s_.round : done.round;
  if (!is_of_this_round(member, round) || member.done) return;
  has_stopped(member);
  member.done = true;
  ++s_.done;
  if (s_.phase == HeadPhase::kRunning) s_.somebody_done = true;
  note(Note::Weight::kDetail, fmt::format("{} is done", name_of(member)));
}

void HeadStep::on_word(MemberId id, HeadMember& member, const Failed& failed) {
  const bool preparing = s_.phase == HeadPhase::kPreparing && member.group_rank == 0;
  if (failed.round != s_.round && !planted(PlantedBug::kStaleFailed)) return;
  if (preparing) return close(Close::Outcome::kFailed, failed.failure);
  if (!is_of_this_round(member, planted(PlantedBug::kStaleFailed) ? s_.round : failed.round))
    return;
  interrupt(DrainCause::kWorkerFailure, failed.failure, id, member.hello.agent);
}

// Only ends of the agent's own workers are taken, and no more than it has workers: they are kept
// until the end of the job.
void HeadStep::on_word(MemberId, HeadMember& member, const WorkerEnd& end) {
  const int local_rank = end.rank - member.base_rank;
  const bool own = local_rank >= 0 && local_rank < member.hello.local_ranks;
  const bool started = end.round == s_.round && end.round == s_.last_started;
  if (!member.participant() || !started || !own || member.ends == kMostWorkerEnds) return;
  ++member.ends;
  do_(Collect{end});
}

void HeadStep::on_word(MemberId id, HeadMember& member, const Leaving& leaving) {
  if (member.leaving || s_.phase == HeadPhase::kClosed) return;
  member.leaving = true;
  --s_.present;
  const bool host = s_.own == id && s_.head_loss == HeadLoss::kEndsTheJob;
  if (member.done && !holds_store(member) && !host) return;
  if (host || !s_.settings.elastic()) return close(Close::Outcome::kFailed, leaving.why);
  note(Note::Weight::kPlain,
       fmt::format("{} leaves: {}", member.hello.describe(), leaving.why.describe()));
  miss(id, member, DrainCause::kLeave, leaving.why);
}

bool HeadStep::is_of_this_round(const HeadMember& member, int round) const {
  return member.participant() && round == s_.round &&
         (s_.phase == HeadPhase::kRunning || s_.phase == HeadPhase::kDraining);
}

void HeadStep::has_stopped(HeadMember& member) {
  if (std::exchange(member.stopped, true)) return;
  --s_.busy;
}

// --- going
void HeadStep::lose(MemberId id, LossKind kind, const std::string& why) {
  const bool is_host = s_.own == id && s_.head_loss == HeadLoss::kEndsTheJob;
  const auto found = s_.members.find(id);
  if (found == s_.members.end()) {
    if (is_host) close(Close::Outcome::kFailed, end_of_host(why));
    return;
  }
  HeadMember member = std::move(found->second);
  s_.members.erase(found);
  forget(id, member);
  // Messages to the agent may be lost with the connection.
  if (member.done && kind != LossKind::kGone && member.hello.agent != 0)
    s_.owed.add(member.hello.agent, now_ + s_.settings.silence_window);
  if (s_.phase == HeadPhase::kClosed) return;
  if (member.participant() && !member.done && !member.stopped) {
    const bool gone = kind == LossKind::kGone || planted(PlantedBug::kSilentLossNotFenced);
    const Moment dead = gone ? now_ : member.heard + s_.settings.silence_window;
    const Moment grace =
        planted(PlantedBug::kNoDeathGrace) ? Moment::zero() : s_.settings.death_grace;
    if (member.hello.agent != 0)
      s_.absent.add(member.hello.agent, dead + grace);
    else
      s_.fence = std::max(s_.fence, dead + grace);
  }
  if (member.participant()) --s_.participants;
  if (member.participant() && member.done) --s_.done;
  if (member.participant() && !member.stopped) --s_.busy;
  if (member.done && holds_store(member) && s_.phase == HeadPhase::kRunning)
    return close(
        Close::Outcome::kFailed,
        failure_of_node(member.hello, fmt::format("{}, which holds the workers' store, is gone: {}",
                                                  name_of(member), why)));
  if (member.done || (member.leaving && s_.phase != HeadPhase::kPreparing)) return;
  if (!member.participant() || s_.phase == HeadPhase::kPreparing)
    note(Note::Weight::kWarning,
         fmt::format("{} has left {}: {}", member.hello.describe(),
                     s_.last_started == kNoRound ? "before the start" : "while it waited", why));
  if (is_host && !member.participant()) return close(Close::Outcome::kFailed, end_of_host(why));
  JobFailure failure =
      failure_of_node(member.hello, fmt::format("{} is gone: {}", name_of(member), why));
  failure.node_rank = member.group_rank;
  miss(id, member, DrainCause::kLoss, failure);
}

void HeadStep::forget(MemberId id, const HeadMember& member) {
  // The head remembers the restarts only if it knows more than the agent will say itself when it
  // comes back.
  const bool knows_more_here = member.restarts > member.hello.restarts ||
                               (s_.failed_agent == member.hello.agent && member.restarts > 0);
  if (s_.settings.restart_scope == RestartScope::kAgent && member.hello.agent != 0 &&
      knows_more_here)
    s_.spent_by_agent[member.hello.agent] = member.restarts;
  // An agent that has never been started cannot be harmed by an old message.
  if (!member.participant()) s_.connections.erase(member.hello.agent);
  if (!member.leaving) --s_.present;
  const auto twin = s_.by_agent.find(member.hello.agent);
  if (twin != s_.by_agent.end() && twin->second == id) s_.by_agent.erase(twin);
  const auto numbered = s_.by_node_rank.find(member.hello.node_rank);
  if (numbered != s_.by_node_rank.end() && numbered->second == id) s_.by_node_rank.erase(numbered);
  if (s_.own == id) s_.own.reset();
}

// A participant will not be in the next round.
void HeadStep::miss(MemberId id, const HeadMember& member, DrainCause cause,
                    const JobFailure& failure) {
  const bool took_part = member.participant() || was_in_last_round(member);
  if (!took_part) return;
  s_.somebody_missing = true;
  // That it was in the last round may be the agent's own claim only.
  const bool can_be_true = static_cast<int>(s_.lost_agents.size()) < s_.settings.max_nodes;
  if (cause == DrainCause::kLoss && member.hello.agent != 0 && can_be_true)
    s_.lost_agents.insert(member.hello.agent);
  else
    s_.somebody_left = true;
  if (s_.phase == HeadPhase::kPreparing && member.participant()) return gather_again();
  if (!member.participant()) return;
  interrupt(cause, failure, id, member.hello.agent);
}

bool HeadStep::was_in_last_round(const HeadMember& member) const {
  return s_.last_started != kNoRound && member.hello.last_round == s_.last_started;
}

std::string HeadStep::name_of(const HeadMember& member) {
  return member.participant() ? fmt::format("node {} ({})", member.group_rank, member.hello.host)
                              : member.hello.describe();
}

// Follows "the head" in messages; empty if the head has no agent of its own.
std::string HeadStep::host_of_head() const {
  const auto own = s_.own ? s_.members.find(*s_.own) : s_.members.end();
  return own == s_.members.end() ? "" : fmt::format(" on {}", own->second.hello.host);
}

// Its agent was stopped, and could not say so any more: nobody else keeps the job from waiting.
JobFailure HeadStep::end_of_host(const std::string& why) {
  JobFailure failure;
  failure.code = kUnreachableCode;
  failure.text =
      fmt::format("the dtrun that hosts the rendezvous has ended before the start: {}", why);
  return failure;
}

JobFailure HeadStep::failure_of_node(const Hello& hello, std::string text) {
  JobFailure failure;
  failure.node_rank = hello.node_rank;
  failure.host = hello.host;
  failure.code = 0;
  failure.text = std::move(text);
  return failure;
}

}  // namespace dtrun::rendezvous::rounds
