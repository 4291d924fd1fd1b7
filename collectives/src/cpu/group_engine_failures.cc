// Why a group of the cpu backend fails, with what this rank knows of the others.
#include <fmt/core.h>
#include <fmt/format.h>

#include <set>

#include "group_engine.h"
#include "group_failure_texts.h"
#include "round_schedule.h"

namespace dtrun::collectives::cpu {

using base::Deadline;
using base::Error;
using base::ErrorCode;

const Card& GroupEngine::card(int rank) const {
  return world_->card(spec_.world_ranks[static_cast<std::size_t>(rank)]);
}

GroupFailure GroupEngine::disagreement(const Disagreement& found) const {
  return {disagreement_error(spec_.name, {global_rank(found.peer), found.theirs},
                             {global_rank(spec_.rank), found.ours}, found.bytes),
          -1};
}

// The two calls that met need not be the first that differ: earlier calls may have gone unmatched.
// For a peer that is behind, this rank's history has the call of the same place; for a peer that is
// ahead, the peer's history has it.
void GroupEngine::on_disagreement(const Disagreement& found) {
  const std::uint64_t sequence = found.theirs.sequence;
  const bool message = found.ours.kind == OpKind::receive;
  if (message || sequence == found.ours.sequence) return fail(disagreement(found), Tell::members);
  if (sequence < found.ours.sequence) {
    const std::optional<Fingerprint> ours = channels_.own_history().read(sequence);
    const bool known = ours && !found.theirs.agrees_with(*ours);
    return fail(disagreement({found.peer, found.theirs, known ? *ours : found.ours, found.bytes}),
                Tell::members);
  }
  if (channels_.shares_memory(found.peer)) {
    compare_with_history(found.peer, found.ours);
    return fail(disagreement(found), Tell::members);
  }
  doubt_.emplace(found, Deadline::after(kPatience));
  ask_remote_members(found.ours);
}

// Some call since the members last met does not agree. The peer's history says which one.
void GroupEngine::on_disagreement(const EarlierDisagreement& found) {
  const Fingerprint now = collectives(stepped_).front()->fingerprint();
  const std::uint64_t first =
      now.sequence - std::min<std::uint64_t>(now.sequence, CallHistory::kLength);
  for (std::uint64_t sequence = first; !failure_ && sequence < now.sequence; ++sequence)
    if (const auto ours = channels_.own_history().read(sequence))
      compare_with_history(found.peer, *ours);
  if (!failure_) fail(disagreement({found.peer, now, now}), Tell::members);
}

GroupFailure GroupEngine::passed_by(int peer, const Fingerprint& ours) const {
  return {passed_by_error(spec_.name, {global_rank(spec_.rank), ours}, global_rank(peer)), -1};
}

/// A rank on this machine that is past a call has sent all of it. If this rank has looked for it
/// since, and still waits, the other one called something else, and a history may be too short to
/// say what.
void GroupEngine::watch_passing(Operation& operation) {
  const Lane lane = operation.lane();
  if (lane == Lane::point_to_point || operation.after) return;
  if (collectives(lane).empty() || collectives(lane).front().get() != &operation) return;
  const Fingerprint& ours = operation.fingerprint();
  const int before = std::exchange(operation.passed_by, -1);
  for (const int peer : operation.missing()) {
    if (peer == spec_.rank || !channels_.shares_memory(peer)) continue;
    const MemberLine& line = channels_.table().lines(lane)[peer];
    if (line.over.load(std::memory_order_acquire) < ours.sequence) continue;
    if (peer == before) return fail(passed_by(peer, ours), Tell::members);
    operation.passed_by = peer;
    operation.watch_next = Deadline::after(kPatience);
    return;
  }
}

GroupFailure GroupEngine::left(int peer) const {
  // The peer may have failed because of another rank's death in another group: blame that rank.
  const int cause = world_->victim_of(spec_.world_ranks[static_cast<std::size_t>(peer)]);
  if (cause >= 0 && cause != global_rank(spec_.rank)) {
    return {
        Error(ErrorCode::kPeerFailed,
              fmt::format("rank {} failed, therefore {} has left group '{}', and rank {} still "
                          "needs it",
                          cause, describe_member(card(peer)), spec_.name, global_rank(spec_.rank)),
              fmt::format("this rank is {}", world_->record().line().describe(monotonic_ns())),
              fmt::format("look for what happened to rank {}", cause)),
        cause};
  }
  return member_left_failure(
      card(peer), spec_.name, global_rank(spec_.rank),
      fmt::format("this rank is {}", world_->record().line().describe(monotonic_ns())));
}

GroupFailure GroupEngine::broken(int peer) const {
  return {Error(ErrorCode::kPeerFailed,
                fmt::format("the connection between rank {} and {} broke", global_rank(spec_.rank),
                            describe_member(card(peer))),
                "the peer or the network between the hosts failed", "look at that rank's output"),
          global_rank(peer)};
}

/// The peer would take what comes next for the rest.
Error GroupEngine::lost_rest(int peer) const {
  return Error(ErrorCode::kSystem,
               fmt::format("a part of a message to {} was sent, and the rest was not",
                           describe_member(card(peer))),
               "the call that sent it ended with an exception; memory may have run out",
               "look at that exception");
}

std::vector<int> GroupEngine::ended_ranks() {
  require_own_process();
  std::vector<bool> left;
  {
    const std::scoped_lock lock(mutex_);
    for (int rank = 0; rank < size(); ++rank) left.push_back(channels_.has_left(rank));
  }
  // The world is asked without the engine's lock: its watcher holds the world's while it tells the
  // engine of a loss.
  std::vector<int> ended;
  for (int rank = 0; rank < size(); ++rank) {
    const auto index = static_cast<std::size_t>(rank);
    if (left[index] || world_->has_ended(spec_.world_ranks[index])) ended.push_back(rank);
  }
  return ended;
}

void GroupEngine::abort(const Error& error) {
  require_own_process();
  const std::scoped_lock lock(mutex_);
  // A member's word may be there already.
  hear_failure();
  fail({error, global_rank(spec_.rank)}, Tell::members);
}

GroupFailure GroupEngine::stuck(const Error& error) const {
  const Card& me = card(spec_.rank);
  return {Error(ErrorCode::kPeerFailed,
                fmt::format("{} cannot go on in group '{}': {}", describe_member(me), spec_.name,
                            error.summary()),
                error.why(), error.remedy()),
          me.global_rank};
}

/// The newest call that a rank has shown, where it is this one or a later collective of the group.
std::optional<BoardLine> GroupEngine::shown_since(int rank, const Fingerprint& ours) {
  const auto line = world_->status(spec_.world_ranks[static_cast<std::size_t>(rank)]);
  // The board has no more of a name.
  const std::string_view shown = std::string_view(spec_.name).substr(0, sizeof(line->group) - 1);
  const bool is_since = line && line->group == shown && !is_message(line->fingerprint.kind) &&
                        line->fingerprint.sequence >= ours.sequence;
  return is_since ? line : std::nullopt;
}

bool GroupEngine::has_come(int rank, const Fingerprint& ours) const {
  if (channels_.shares_memory(rank))
    return channels_.table().line(rank).called.load(std::memory_order_acquire) >= ours.sequence;
  const auto known = called_.find(rank);
  return known != called_.end() && known->second >= ours.sequence;
}

/// Follows those who have come to those for whom they wait.
std::vector<int> GroupEngine::absent(const Operation& operation) {
  const Fingerprint& ours = operation.fingerprint();
  if (!operation.relays() || !operation.announced) return operation.missing();
  std::set<int> found, followed;
  std::vector<int> next = operation.missing();
  while (!next.empty()) {
    const int rank = next.back();
    next.pop_back();
    if (!followed.insert(rank).second || rank == spec_.rank) continue;
    if (!has_come(rank, ours)) {
      found.insert(rank);
      continue;
    }
    const auto line = shown_since(rank, ours);
    int awaited = 0;
    while (awaited < size() && (!line || global_rank(awaited) != line->waiting_for)) ++awaited;
    if (awaited < size()) {
      next.push_back(awaited);
      continue;
    }
    for (const int other : ranks_needed(ours.kind, machine_lists_, rank, ours.root))
      if (!has_come(other, ours)) found.insert(other);
  }
  if (found.empty()) return operation.missing();
  return {found.begin(), found.end()};
}

GroupFailure GroupEngine::timed_out(const Operation& operation) {
  // Beyond this many missing ranks only their number is printed.
  constexpr std::size_t kMostDescribed = 16;
  std::vector<int> missing;
  std::string where;
  for (const int rank : absent(operation)) {
    missing.push_back(global_rank(rank));
    if (missing.size() > kMostDescribed) continue;
    where += fmt::format("{}{} is {}", where.empty() ? "" : "; ", describe_member(card(rank)),
                         world_->whereabouts(spec_.world_ranks[static_cast<std::size_t>(rank)])
                             .value_or("not answering"));
  }
  if (missing.size() > kMostDescribed)
    where += fmt::format("; and {} more", missing.size() - kMostDescribed);
  const auto waited = base::Deadline::Clock::now() - operation.started();
  return {Error(ErrorCode::kTimeout,
                waited_text(global_rank(spec_.rank), waited, operation.fingerprint(), spec_.name,
                            rank_list(missing)),
                where, "raise the timeout if they only need longer"),
          missing.empty() ? -1 : missing.front()};
}

}  // namespace dtrun::collectives::cpu
