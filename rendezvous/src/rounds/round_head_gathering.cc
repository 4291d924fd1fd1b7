#include "rounds/head_step.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "dtrun/base/deadline.h"
#include "rounds/planted_bug.h"
#include "rounds/round_admission.h"
#include "rounds/round_places.h"

namespace dtrun::rendezvous::rounds {

// --- gathering
void HeadStep::gather_again() {
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

void HeadStep::gather() {
  if (somebody_was_done(s_)) return judge_former_round();
  const bool fixed = !s_.settings.elastic();
  if (s_.took_over && fixed && s_.restarts >= s_.settings.max_restarts)
    return fail_with_former_head();
  if (now_ < std::max(fence_of(s_), s_.pause_until)) return;
  const RoundSettings& settings = s_.settings;
  if (s_.present < settings.min_nodes - (planted(PlantedBug::kMinOffByOne) ? 1 : 0)) {
    if (!planted(PlantedBug::kLastCallNotCancelled)) s_.last_call.reset();
    if (!s_.join_deadline) s_.join_deadline = now_ + settings.join_timeout;
    if (now_ >= *s_.join_deadline) give_up_gathering();
    return;
  }
  s_.join_deadline.reset();
  const bool nobody_is_missing =
      s_.last_started != kNoRound && !s_.somebody_left && s_.lost_agents.empty();
  const int full = settings.max_nodes + (planted(PlantedBug::kLostWakeUpAtMax) ? 1 : 0);
  if (s_.present >= full || nobody_is_missing) return prepare();
  if (!s_.last_call) {
    s_.last_call = now_ + settings.last_call_timeout;
    note(Note::Weight::kPlain,
         fmt::format("{} ({}): others may come for {}", who_is_here(s_), hosts_of(s_),
                     base::format_duration(settings.last_call_timeout)));
    // Their own patience is for those who must come.
    for (const auto& [id, member] : s_.members)
      if (!member.leaving) tell_standing(id, Standing::Kind::kLastCall);
  }
  if (now_ >= *s_.last_call) prepare();
}

// Nodes that are done do not start again. A node that lost the last head has ended its workers
// unless they were done; a node that does not come in time may have had to.
void HeadStep::judge_former_round() {
  const FormerRound& former = s_.former;
  const auto done = static_cast<int>(former.done.size());
  s_.farewell = now_ + kFarewell;
  if (done == former.nodes) return close(Close::Outcome::kSucceeded, {});
  if (former.undone.empty() && now_ < *s_.done_deadline) return;
  JobFailure failure;
  failure.text = fmt::format(
      "{} of {} nodes were done in round {} when the node that hosted the rendezvous was lost, and "
      "{}: what is done is not done again",
      done, former.nodes, former.round,
      former.undone.empty() ? "the others have not come back" : former.undone + " was not");
  close(Close::Outcome::kFailed, failure);
}

// The node of the former head is lost, as any other node may be.
void HeadStep::fail_with_former_head() {
  JobFailure failure;
  failure.code = kUnreachableCode;
  failure.text = "the node that hosted the rendezvous is gone, and no restart is left";
  s_.farewell = now_ + kFarewell;
  close(Close::Outcome::kFailed, failure);
}

void HeadStep::give_up_gathering() {
  JobFailure failure;
  failure.code = kTemporaryCode;
  failure.text = who_is_missing(s_, now_) + (s_.how_to_join.empty() ? "" : "\n" + s_.how_to_join);
  close(Close::Outcome::kFailed, failure);
}

// Members of the last round come first, then the others in the order of their arrival. The members
// know which round was the last, even if this head is new. A place of an earlier round belongs to
// another member by now.
std::vector<Candidate> HeadStep::choose() const {
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
                        took_part || planted(PlantedBug::kOldClaims) ? member.hello.last_group_rank
                                                                     : kNoNodeRank});
    }
  give_first_place_to_own(chosen);
  return chosen;
}

// The node at which the user wants the nodes to meet is node 0, unless another node has been node 0
// already.
void HeadStep::give_first_place_to_own(std::vector<Candidate>& chosen) const {
  const auto was_placed = [](const Candidate& one) { return one.last_group_rank != kNoNodeRank; };
  if (std::any_of(chosen.begin(), chosen.end(), was_placed)) return;
  for (Candidate& candidate : chosen)
    if (candidate.id == s_.own) candidate.last_group_rank = 0;
}

void HeadStep::prepare() {
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

void HeadStep::start_round(const StoreReady& ready) {
  if (std::exchange(s_.took_over, false) && !s_.settings.elastic()) ++s_.restarts;
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
  start.master_address = ready.address;
  start.master_port = ready.port;
  for (const auto& [id, member] : order) {
    start.group_rank = member->group_rank;
    if (planted(PlantedBug::kRankReuse) && start.group_rank == 3) --start.group_rank;
    start.restart_count =
        s_.settings.restart_scope == RestartScope::kAgent ? member->restarts : s_.restarts;
    start.role_base_rank = role_bases[member->hello.role];
    start.role_world_size = role_sizes[member->hello.role];
    send(id, start);
    member->base_rank = start.base_rank;
    member->ends = 0;
    role_bases[member->hello.role] += member->hello.local_ranks;
    start.base_rank += member->hello.local_ranks;
    member->stopped = false;
    member->hello.last_round = s_.round;
    member->hello.last_group_rank = member->group_rank;
  }
  s_.phase = HeadPhase::kRunning;
  s_.last_started = s_.round;
  s_.running_since = now_;
  s_.busy = s_.participants;
  s_.done = 0;
  s_.somebody_done = false;
  s_.somebody_missing = s_.somebody_left = false;
  s_.lost_agents.clear();
  s_.absent.clear();
  s_.owed.clear();
  std::erase_if(s_.connections, [&](const auto& of) { return !s_.by_agent.contains(of.first); });
  const bool room = s_.participants < s_.settings.max_nodes;
  s_.newcomers_since.reset();
  if (room && s_.present > s_.participants) s_.newcomers_since = now_;
  note(s_.settings.one_round() ? Note::Weight::kDetail : Note::Weight::kPlain,
       fmt::format("round {}: {} node{}, {} rank{}", s_.round, s_.participants,
                   s_.participants == 1 ? "" : "s", start.world_size,
                   start.world_size == 1 ? "" : "s"));
}

}  // namespace dtrun::rendezvous::rounds
