#include "dtrun/rendezvous/round_head.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "dtrun/base/deadline.h"
#include "planted_bug.h"
#include "round_admission.h"
#include "round_places.h"

namespace dtrun::rendezvous::rounds {
namespace {

constexpr int kUnreachableCode = 69;  // as the launcher's exit codes
constexpr int kUsageCode = 64;

// So often the silent are looked for, and so long a head that runs does not sleep.
Moment sweep_interval(const RoundSettings& settings) {
  return std::min(settings.keep_alive_interval, settings.silence_window / 4);
}

// For agents that are about to come to a job that cannot begin.
constexpr Moment kFarewell = std::chrono::seconds(5);

// Until then a closed head stays, unless more happens.
Moment end_of(const HeadState& state) {
  Moment end = Moment::min();
  if (!state.members.empty()) end = state.close_deadline;
  if (state.farewell && state.told < state.settings.max_nodes) end = std::max(end, *state.farewell);
  return end;
}

// One step: the state, the time, and what is to be done.
class HeadStep {
 public:
  HeadStep(HeadState& state, Moment now) : s_(state), now_(now) {}

  void on(const Said& said) {
    if (const auto* hello = std::get_if<Hello>(&said.message)) return on_hello(said.id, *hello);
    const auto found = s_.members.find(said.id);
    if (found == s_.members.end()) return do_(HangUp{said.id});  // no Hello yet
    if (!planted(PlantedBug::kBeatsDoNotCount) || !std::holds_alternative<Beat>(said.message))
      found->second.heard = now_;
    std::visit([&](const auto& message) { on_word(said.id, found->second, message); },
               said.message);
  }

  void on(const Lost& lost) { lose(lost.id, lost.kind, lost.why); }

  void on(const Tick&) {
    if (now_ < s_.next_sweep) return;
    s_.next_sweep = now_ + sweep_interval(s_.settings);
    if (planted(PlantedBug::kNobodyIsEvicted)) return;
    std::vector<MemberId> silent;
    for (const auto& [id, member] : s_.members)
      if (now_ - member.heard >= s_.settings.silence_window) silent.push_back(id);
    for (const MemberId id : silent) {
      do_(HangUp{id});
      lose(id, LossKind::kSilent,
           fmt::format("nothing was heard of it for {}",
                       base::format_duration(s_.settings.silence_window)));
    }
  }

  // What follows from the state as it is now. Every step ends here.
  void settle() {
    HeadPhase before;
    do {
      before = s_.phase;
      switch (s_.phase) {
        case HeadPhase::kGathering:
          gather();
          break;
        case HeadPhase::kPreparing:
          break;
        case HeadPhase::kRunning:
          run();
          break;
        case HeadPhase::kDraining:
          drain();
          break;
        case HeadPhase::kClosed:
          leave();
          break;
      }
    } while (s_.phase != before);
  }

  // A head that was stopped (or a machine that was) has heard nobody in that time.
  void forgive_own_pause() {
    const Moment pause = now_ - s_.last_step - sweep_interval(s_.settings);
    if (pause > Moment::zero() && !planted(PlantedBug::kNoPauseCompensation)) {
      for (auto& [id, member] : s_.members) member.heard += pause;
      for (std::optional<Moment>* deadline : {&s_.join_deadline, &s_.last_call})
        if (*deadline) **deadline += pause;
    }
    s_.last_step = now_;
  }

  std::vector<HeadAction> actions;

 private:
  template <typename Action>
  void do_(Action action) {
    actions.emplace_back(std::move(action));
  }
  template <typename Message>
  void send(MemberId id, Message message) {
    do_(Send{id, HeadMessage(std::move(message))});
  }
  void note(Note::Weight weight, std::string text) { do_(Note{weight, std::move(text)}); }

  // --- coming
  void on_hello(MemberId id, const Hello& hello) {
    if (s_.members.contains(id)) {  // it may say so once
      do_(HangUp{id});
      return lose(id, LossKind::kSilent, "it said twice who it is");
    }
    const auto twin = s_.by_agent.find(hello.agent);
    if (hello.agent != 0 && hello.run_id == s_.run_id && twin != s_.by_agent.end() &&
        !planted(PlantedBug::kTwinStays)) {
      const MemberId old = twin->second;
      do_(HangUp{old});
      lose(old, LossKind::kGone, "it has come back by another connection");
    }
    const Objection objection = objection_to(s_, hello);
    if (objection.kind != Objection::Kind::kNone) return send_away(id, hello, objection);
    HeadMember& member = s_.members[id];
    member.hello = hello;
    member.heard = now_;
    learn_of_the_past(hello);
    if (hello.agent != 0) s_.by_agent[hello.agent] = id;
    if (hello.node_rank != kNoNodeRank) s_.by_node_rank.emplace(hello.node_rank, id);
    ++s_.present;
    if (planted(PlantedBug::kCloseNotFinal) && s_.phase == HeadPhase::kClosed) gather_again();
    if (planted(PlantedBug::kSpareCountedTwice) && s_.participants == s_.settings.max_nodes)
      ++s_.present;
    send(id, Accepted{s_.settings.keep_alive_interval, s_.settings.silence_window});
    if (s_.own != id)
      note(Note::Weight::kDetail,
           fmt::format("{} has joined with {} ranks", hello.describe(), hello.local_ranks));
    if (s_.phase == HeadPhase::kGathering) {
      if (s_.last_call) tell_standing(id, Standing::Kind::kLastCall);
      return;
    }
    const bool room = s_.participants < s_.settings.max_nodes;
    if (room && !s_.newcomers_since) s_.newcomers_since = now_;
    tell_standing(id, room ? Standing::Kind::kWaiting : Standing::Kind::kSpare);
  }

  // What the head before this one has done its agents know best.
  void learn_of_the_past(const Hello& hello) {
    if (s_.head_loss == HeadLoss::kMovesTheHead && s_.last_started == kNoRound) {
      s_.restarts = std::max(s_.restarts, std::min(hello.restarts, s_.settings.max_restarts));
      if (hello.last_round > s_.latest_seen) take_over(s_, hello.last_round, now_);
    }
    if (!planted(PlantedBug::kRoundsFromZero))
      s_.latest_seen = std::max(s_.latest_seen, hello.last_round);
  }

  void send_away(MemberId id, const Hello& hello, const Objection& objection) {
    note(Note::Weight::kWarning,
         fmt::format("{} was sent away: {}", hello.describe(), objection.text));
    // The other side hangs up: our end could overtake the words.
    send(id, Refused{objection.text});
    if (hello.run_id == s_.run_id) ++s_.told;
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

  void tell_standing(MemberId id, Standing::Kind kind) { send(id, Standing{kind, s_.present}); }

  // --- words of members
  void on_word(MemberId, HeadMember&, const Hello&) {}
  void on_word(MemberId id, HeadMember&, const Beat&) { send(id, Echo{}); }

  void on_word(MemberId, HeadMember& member, const StoreReady& ready) {
    const bool right = ready.round == s_.round || planted(PlantedBug::kStaleStoreReady);
    if (s_.phase != HeadPhase::kPreparing || !right || member.group_rank != 0) return;
    start_round(ready);
  }

  void on_word(MemberId, HeadMember& member, const Stopped& stopped) {
    const bool right = planted(PlantedBug::kStaleStopped) && s_.phase == HeadPhase::kDraining;
    if (!right && !is_of_this_round(member, stopped.round)) return;
    has_stopped(member);
    if (s_.phase != HeadPhase::kRunning || member.done) return;
    JobFailure failure = failure_of_node(
        member.hello,
        fmt::format("the workers of {} have ended without a reason", name_of(member)));
    failure.node_rank = member.group_rank;
    interrupt(DrainCause::kWorkerFailure, failure);
  }

  void on_word(MemberId, HeadMember& member, const Done& done) {
    const int round = planted(PlantedBug::kStaleDone) ? s_.round : done.round;
    if (!is_of_this_round(member, round) || member.done) return;
    has_stopped(member);
    member.done = true;
    ++s_.done;
    if (s_.phase == HeadPhase::kRunning) s_.somebody_done = true;
    note(Note::Weight::kDetail, fmt::format("{} is done", name_of(member)));
  }

  void on_word(MemberId id, HeadMember& member, const Failed& failed) {
    const bool preparing = s_.phase == HeadPhase::kPreparing && member.group_rank == 0;
    if (failed.round != s_.round && !planted(PlantedBug::kStaleFailed)) return;
    if (preparing) return close(Close::Outcome::kFailed, failed.failure);
    if (!is_of_this_round(member, planted(PlantedBug::kStaleFailed) ? s_.round : failed.round))
      return;
    (void)id;
    interrupt(DrainCause::kWorkerFailure, failed.failure);
  }

  void on_word(MemberId id, HeadMember& member, const Leaving& leaving) {
    if (member.leaving || s_.phase == HeadPhase::kClosed) return;
    member.leaving = true;
    --s_.present;
    const bool host = s_.own == id && s_.head_loss == HeadLoss::kEndsTheJob;
    if (member.done && !holds_store(member) && !host) return;
    if (host || !s_.settings.elastic()) return close(Close::Outcome::kFailed, leaving.why);
    note(Note::Weight::kPlain,
         fmt::format("{} leaves: {}", member.hello.describe(), leaving.why.describe()));
    miss(member, DrainCause::kLeave, leaving.why);
  }

  bool is_of_this_round(const HeadMember& member, int round) const {
    return member.participant() && round == s_.round &&
           (s_.phase == HeadPhase::kRunning || s_.phase == HeadPhase::kDraining);
  }

  void has_stopped(HeadMember& member) {
    if (std::exchange(member.stopped, true)) return;
    --s_.busy;
  }

  // --- going
  void lose(MemberId id, LossKind kind, const std::string& why) {
    const auto found = s_.members.find(id);
    if (found == s_.members.end()) return;
    HeadMember member = std::move(found->second);
    s_.members.erase(found);
    forget(id, member);
    if (s_.phase == HeadPhase::kClosed) return;
    if (member.participant() && !member.done && !member.stopped) {
      const bool gone = kind == LossKind::kGone || planted(PlantedBug::kSilentLossNotFenced);
      const Moment dead = gone ? now_ : member.heard + s_.settings.silence_window;
      const Moment grace =
          planted(PlantedBug::kNoDeathGrace) ? Moment::zero() : s_.settings.death_grace;
      s_.fence = std::max(s_.fence, dead + grace);
    }
    if (member.participant()) --s_.participants;
    if (member.participant() && member.done) --s_.done;
    if (member.participant() && !member.stopped) --s_.busy;
    if (member.done && holds_store(member) && s_.phase == HeadPhase::kRunning)
      return close(Close::Outcome::kFailed,
                   failure_of_node(member.hello,
                                   fmt::format("{}, which holds the workers' store, is gone: {}",
                                               name_of(member), why)));
    if (member.done || (member.leaving && s_.phase != HeadPhase::kPreparing)) return;
    if (!member.participant() || s_.phase == HeadPhase::kPreparing)
      note(Note::Weight::kWarning,
           fmt::format("{} has left {}: {}", member.hello.describe(),
                       s_.last_started == kNoRound ? "before the start" : "while it waited", why));
    JobFailure failure =
        failure_of_node(member.hello, fmt::format("{} is gone: {}", name_of(member), why));
    failure.node_rank = member.group_rank;
    miss(member, DrainCause::kLoss, failure);
  }

  void forget(MemberId id, const HeadMember& member) {
    if (!member.leaving) --s_.present;
    const auto twin = s_.by_agent.find(member.hello.agent);
    if (twin != s_.by_agent.end() && twin->second == id) s_.by_agent.erase(twin);
    const auto numbered = s_.by_node_rank.find(member.hello.node_rank);
    if (numbered != s_.by_node_rank.end() && numbered->second == id)
      s_.by_node_rank.erase(numbered);
    if (s_.own == id) s_.own.reset();
  }

  // A participant will not be in the next round.
  void miss(const HeadMember& member, DrainCause cause, const JobFailure& failure) {
    const bool took_part = member.participant() || was_in_last_round(member);
    if (!took_part) return;
    s_.somebody_missing = true;
    if (s_.phase == HeadPhase::kPreparing && member.participant()) return gather_again();
    if (!member.participant()) return;
    interrupt(cause, failure);
  }

  static bool holds_store(const HeadMember& member) { return member.group_rank == 0; }

  bool was_in_last_round(const HeadMember& member) const {
    return s_.last_started != kNoRound && member.hello.last_round == s_.last_started;
  }

  static std::string name_of(const HeadMember& member) {
    return member.participant() ? fmt::format("node {} ({})", member.group_rank, member.hello.host)
                                : member.hello.describe();
  }

  static JobFailure failure_of_node(const Hello& hello, std::string text) {
    JobFailure failure;
    failure.node_rank = hello.node_rank;
    failure.host = hello.host;
    failure.code = 0;
    failure.text = std::move(text);
    return failure;
  }

  // --- gathering
  void gather_again() {
    s_.phase = HeadPhase::kGathering;
    s_.gathering_since = now_;
    s_.join_deadline.reset();
    s_.last_call.reset();
    s_.newcomers_since.reset();
    for (auto& [id, member] : s_.members) {
      member.group_rank = kNoNodeRank;
      member.stopped = true;
      member.done = false;
    }
    s_.participants = s_.busy = s_.done = 0;
  }

  void gather() {
    const bool fixed = !s_.settings.elastic();
    if (s_.took_over && fixed && s_.restarts >= s_.settings.max_restarts)
      return fail_with_former_head();
    if (now_ < s_.fence) return;
    const RoundSettings& settings = s_.settings;
    if (s_.present < settings.min_nodes - (planted(PlantedBug::kMinOffByOne) ? 1 : 0)) {
      if (!planted(PlantedBug::kLastCallNotCancelled)) s_.last_call.reset();
      if (!s_.join_deadline) {
        s_.join_deadline = now_ + settings.join_timeout;
        note_waiting("others must come within", settings.join_timeout);
      }
      if (now_ >= *s_.join_deadline) give_up_gathering();
      return;
    }
    s_.join_deadline.reset();
    const bool nobody_is_missing = s_.last_started != kNoRound && !s_.somebody_missing;
    const int full = settings.max_nodes + (planted(PlantedBug::kLostWakeUpAtMax) ? 1 : 0);
    if (s_.present >= full || nobody_is_missing) return prepare();
    if (!s_.last_call) {
      s_.last_call = now_ + settings.last_call_timeout;
      note_waiting("others may come for", settings.last_call_timeout);
      // Their own patience is for those who must come.
      for (const auto& [id, member] : s_.members)
        if (!member.leaving) tell_standing(id, Standing::Kind::kLastCall);
    }
    if (now_ >= *s_.last_call) prepare();
  }

  // Its node is lost as any other may be.
  void fail_with_former_head() {
    JobFailure failure;
    failure.code = kUnreachableCode;
    failure.text = "the node that hosted the rendezvous is gone, and no restart is left";
    s_.farewell = now_ + kFarewell;
    close(Close::Outcome::kFailed, failure);
  }

  void note_waiting(const char* what, Moment how_long) {
    note(Note::Weight::kPlain, fmt::format("{} ({}): {} {}", who_is_here(s_), hosts_of(s_), what,
                                           base::format_duration(how_long)));
  }

  void give_up_gathering() {
    JobFailure failure;
    failure.code = kUnreachableCode;
    failure.text = who_is_missing(s_, now_) + (s_.how_to_join.empty() ? "" : "\n" + s_.how_to_join);
    close(Close::Outcome::kFailed, failure);
  }

  // Those of the last round come first, then as they came. Which round that was the members know
  // even where this head is new. What one had in a round before that is somebody else's by now.
  std::vector<Candidate> choose() const {
    int last = kNoRound;
    for (const auto& [id, member] : s_.members)
      if (!member.leaving) last = std::max(last, member.hello.last_round);
    std::vector<Candidate> chosen;
    for (const bool old : {true, false})
      for (const auto& [id, member] : s_.members) {
        const bool took_part = last != kNoRound && member.hello.last_round == last;
        const bool leaving = member.leaving && !planted(PlantedBug::kLeavingIsChosen);
        if (leaving || took_part != old) continue;
        const int most = s_.settings.max_nodes + (planted(PlantedBug::kMaxOffByOne) ? 1 : 0);
        if (static_cast<int>(chosen.size()) == most) break;
        chosen.push_back({id, member.hello.host, member.hello.node_rank,
                          took_part || planted(PlantedBug::kOldClaims)
                              ? member.hello.last_group_rank
                              : kNoNodeRank});
      }
    give_first_place_to_own(chosen);
    return chosen;
  }

  // The node that the user has named to meet at is node 0, until somebody else has been.
  void give_first_place_to_own(std::vector<Candidate>& chosen) const {
    const auto was_placed = [](const Candidate& one) { return one.last_group_rank != kNoNodeRank; };
    if (std::any_of(chosen.begin(), chosen.end(), was_placed)) return;
    for (Candidate& candidate : chosen)
      if (candidate.id == s_.own) candidate.last_group_rank = 0;
  }

  void prepare() {
    if (std::exchange(s_.took_over, false) && !s_.settings.elastic()) ++s_.restarts;
    s_.round = std::max(s_.round, s_.latest_seen) + 1;
    s_.phase = HeadPhase::kPreparing;
    const std::vector<Candidate> places = in_places(choose());
    for (std::size_t i = 0; i < places.size(); ++i)
      s_.members.at(places[i].id).group_rank = static_cast<int>(i);
    s_.participants = static_cast<int>(places.size());
    for (const auto& [id, member] : s_.members)
      if (!member.participant() && !member.leaving) tell_standing(id, Standing::Kind::kSpare);
    send(places.front().id, Prepare{s_.round});
  }

  void start_round(const StoreReady& ready) {
    std::vector<std::pair<MemberId, HeadMember*>> order(static_cast<std::size_t>(s_.participants));
    for (auto& [id, member] : s_.members)
      if (member.participant()) order[static_cast<std::size_t>(member.group_rank)] = {id, &member};
    Start start;
    start.round = s_.round;
    start.group_world_size = s_.participants;
    start.world_size = 0;
    std::map<std::string, int> role_sizes;
    for (const auto& [id, member] : order) {
      start.world_size += member->hello.local_ranks;
      role_sizes[member->hello.role] += member->hello.local_ranks;
    }
    std::map<std::string, int> role_bases;
    start.restart_count = s_.restarts;
    start.master_address = ready.address;
    start.master_port = ready.port;
    for (const auto& [id, member] : order) {
      start.group_rank = member->group_rank;
      if (planted(PlantedBug::kRankReuse) && start.group_rank == 3) --start.group_rank;
      start.role_base_rank = role_bases[member->hello.role];
      start.role_world_size = role_sizes[member->hello.role];
      send(id, start);
      role_bases[member->hello.role] += member->hello.local_ranks;
      start.base_rank += member->hello.local_ranks;
      member->stopped = false;
      member->hello.last_round = s_.round;
      member->hello.last_group_rank = member->group_rank;
    }
    s_.phase = HeadPhase::kRunning;
    s_.last_started = s_.round;
    s_.busy = s_.participants;
    s_.done = 0;
    s_.somebody_done = false;
    s_.somebody_missing = false;
    const bool room = s_.participants < s_.settings.max_nodes;
    s_.newcomers_since.reset();
    if (room && s_.present > s_.participants) s_.newcomers_since = now_;
    note(s_.settings.one_round() ? Note::Weight::kDetail : Note::Weight::kPlain,
         fmt::format("round {}: {} nodes, {} ranks", s_.round, s_.participants, start.world_size));
  }

  // --- running
  void run() {
    if (s_.done == s_.participants) return close(Close::Outcome::kSucceeded, {});
    if (!s_.newcomers_since || (s_.somebody_done && !planted(PlantedBug::kRoundAfterDone))) return;
    const int waiting = s_.present - s_.participants;
    if (waiting <= 0) return s_.newcomers_since.reset();
    const bool full = s_.participants + waiting >= s_.settings.max_nodes;
    if (!full && now_ < *s_.newcomers_since + s_.settings.last_call_timeout) return;
    JobFailure cause;
    cause.text = fmt::format("{} more nodes have come", waiting);
    begin_drain(DrainCause::kNewcomers, cause);
  }

  // Something ends the round before its time.
  void interrupt(DrainCause cause, const JobFailure& failure) {
    if (s_.phase == HeadPhase::kDraining) {
      // A worker that fails now is a victim of the stop.
      if (cause != DrainCause::kWorkerFailure && cause > s_.drain_cause) {
        s_.drain_cause = cause;
        s_.failure = failure;
      }
      return;
    }
    if (s_.phase != HeadPhase::kRunning) return;
    const bool done = planted(PlantedBug::kDoneIsForgotten) ? s_.done > 0 : s_.somebody_done;
    if (done || (!s_.settings.elastic() && s_.restarts == s_.settings.max_restarts))
      return close(Close::Outcome::kFailed, failure);
    begin_drain(cause, failure);
  }

  void begin_drain(DrainCause cause, const JobFailure& failure) {
    s_.phase = HeadPhase::kDraining;
    s_.drain_cause = cause;
    s_.failure = failure;
    note(Note::Weight::kPlain,
         fmt::format("round {} is being stopped: {}", s_.round, failure.describe()));
    for (const auto& [id, member] : s_.members)
      if (member.participant() && !member.stopped &&
          !(planted(PlantedBug::kStopNotSentToOne) && member.group_rank == 2))
        send(id, Stop{s_.round, failure});
  }

  // --- draining
  void drain() {
    const int most =
        planted(PlantedBug::kDrainEndsEarly)                                             ? 1
        : planted(PlantedBug::kNewcomerEndsDrain) && s_.present >= s_.settings.max_nodes ? s_.busy
                                                                                         : 0;
    if (s_.busy > most || now_ < s_.fence) return;
    const bool all_done = s_.participants > 0 && s_.done == s_.participants && !s_.somebody_missing;
    if (all_done) return close(Close::Outcome::kSucceeded, {});
    const bool costs = planted(PlantedBug::kJoinIsCharged) ||
                       s_.drain_cause == DrainCause::kWorkerFailure ||
                       (s_.drain_cause == DrainCause::kLoss &&
                        (!s_.settings.elastic() || planted(PlantedBug::kElasticLossIsCharged)));
    if (costs) {
      if (s_.restarts == s_.settings.max_restarts && !planted(PlantedBug::kBudgetNotChecked))
        return close(Close::Outcome::kFailed, s_.failure);
      s_.restarts += planted(PlantedBug::kBudgetChargedTwice) ? 2 : 1;
      note(Note::Weight::kPlain, fmt::format("restart {} of {} after this: {}", s_.restarts,
                                             s_.settings.max_restarts, s_.failure.describe()));
    }
    gather_again();
  }

  // --- closed
  void close(Close::Outcome outcome, const JobFailure& failure) {
    if (s_.phase == HeadPhase::kClosed) return;
    s_.phase = HeadPhase::kClosed;
    s_.verdict = {outcome, failure};
    s_.close_deadline = now_ + s_.settings.close_timeout;
    for (const auto& [id, member] : s_.members)
      if (member.participant() || !planted(PlantedBug::kSparesAreNotTold)) send(id, s_.verdict);
    s_.told += static_cast<int>(s_.members.size());
  }

  void leave() {
    if (s_.ended || now_ < end_of(s_)) return;
    s_.ended = true;
    do_(End{});
  }

  HeadState& s_;
  const Moment now_;
};

}  // namespace

HeadState make_head(const RoundSettings& settings, std::string run_id, Moment now) {
  HeadState state;
  state.settings = settings;
  state.run_id = std::move(run_id);
  state.gathering_since = now;
  state.join_deadline = now + settings.join_timeout;
  state.last_step = now;
  state.next_sweep = now + sweep_interval(settings);
  return state;
}

std::vector<HeadAction> step(HeadState& state, const HeadEvent& event, Moment now) {
  HeadStep step(state, now);
  step.forgive_own_pause();
  std::visit([&](const auto& what) { step.on(what); }, event);
  step.settle();
  return std::move(step.actions);
}

void take_over(HeadState& state, int last_round, Moment now) {
  state.head_loss = HeadLoss::kMovesTheHead;
  state.latest_seen = std::max(state.latest_seen, last_round);
  if (last_round == kNoRound) return;
  state.took_over = true;
  state.fence =
      std::max(state.fence, now + state.settings.silence_window + state.settings.death_grace);
}

std::vector<HeadAction> step_down(HeadState& state) {
  std::vector<HeadAction> actions;
  for (const auto& [id, member] : state.members)
    if (id != state.own) actions.emplace_back(HangUp{id});
  actions.emplace_back(End{});
  state.phase = HeadPhase::kClosed;
  state.ended = true;
  return actions;
}

Moment head_deadline(const HeadState& state) {
  if (state.ended) return Moment::max();
  Moment due = state.next_sweep;
  const auto by = [&](std::optional<Moment> when) {
    if (when) due = std::min(due, *when);
  };
  const bool fenced = state.fence > state.last_step;
  switch (state.phase) {
    case HeadPhase::kGathering:
      if (fenced) return std::min(due, state.fence);
      by(state.join_deadline);
      by(state.last_call);
      break;
    case HeadPhase::kPreparing:
      break;
    case HeadPhase::kRunning:
      if (state.newcomers_since &&
          (!state.somebody_done || planted(PlantedBug::kDeadlineInThePast)))
        by(*state.newcomers_since + state.settings.last_call_timeout);
      break;
    case HeadPhase::kDraining:
      if (fenced && state.busy == 0) by(state.fence);
      break;
    case HeadPhase::kClosed:
      by(end_of(state));
      break;
  }
  return due;
}

}  // namespace dtrun::rendezvous::rounds
