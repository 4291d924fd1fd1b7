// What the members of a group of the cpu backend say to one another beside their data: in what they
// wait, what they have called, and why they fail.
#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "dtrun/base/log.h"
#include "group_engine.h"

namespace dtrun::collectives::cpu {

using base::Error;
using base::ErrorCode;

/// Compares this call with the members': those on this machine by shared memory, the others by a
/// message that asks them to compare.
void GroupEngine::announce(const Operation& operation) {
  const Fingerprint& ours = operation.fingerprint();
  // A monitored barrier is no collective; it is told among the short ones.
  const Lane lane = operation.lane() == Lane::bulk ? Lane::bulk : Lane::prompt;
  MemberLine& line = channels_.table().lines(lane)[spec_.rank];
  line.waits_digest.store(ours.digest(), std::memory_order_seq_cst);
  line.waits_in.store(ours.sequence, std::memory_order_seq_cst);
  channels_.table().long_waits.fetch_add(1, std::memory_order_seq_cst);
  for (const int peer : operation.missing())
    if (peer != spec_.rank && channels_.shares_memory(peer)) compare_with_history(peer, ours);
  ask_remote_members(ours);
}

void GroupEngine::ask_remote_members(const Fingerprint& ours) {
  Frame frame{FrameKind::announce, spec_.id, ""};
  frame.payload.assign(reinterpret_cast<const char*>(&ours), sizeof(Fingerprint));
  tell_remote_members(frame);
}

void GroupEngine::compare_with_history(int rank, const Fingerprint& ours) {
  if (channels_.table().line(rank).called.load(std::memory_order_acquire) < ours.sequence) return;
  try {
    if (const auto theirs = channels_.history_of(rank).read(ours.sequence))
      compare(rank, *theirs, ours);
  } catch (const Error& error) {
    // Not fatal: the other side may find the disagreement, else the deadline ends the wait.
    base::log::warning(base::log::Component::kCollectives,
                       "cannot look up what rank {} has called: {}", global_rank(rank),
                       error.what());
  }
}

/// Compares this rank's past calls with the calls in which members on this machine wait for long.
void GroupEngine::compare_with_waiting() {
  GroupTable& table = channels_.table();
  const std::uint32_t long_waits = table.long_waits.load(std::memory_order_acquire);
  if (long_waits == long_waits_seen_) return;
  const std::uint64_t called = channels_.own_line().called.load(std::memory_order_relaxed);
  bool ahead = false;
  // The lines of both lanes.
  for (int i = 0; i < kCollectiveLanes * size(); ++i) {
    const int rank = i % size();
    const MemberLine& line = table.lines(Lane::prompt)[i];
    const std::uint64_t sequence = line.waits_in.load(std::memory_order_acquire);
    if (rank == spec_.rank || sequence == 0) continue;
    ahead |= sequence > called;
    const std::optional<Fingerprint> ours = channels_.own_history().read(sequence);
    // A history is mapped only where the digests differ.
    if (ours && ours->digest() != line.waits_digest.load(std::memory_order_acquire))
      compare_with_history(rank, *ours);
  }
  if (!ahead) long_waits_seen_ = long_waits;
}

void GroupEngine::tell_remote_members(const Frame& frame) {
  for (int rank = 0; rank < size(); ++rank)
    if (!channels_.shares_memory(rank))
      world_->send(spec_.world_ranks[static_cast<std::size_t>(rank)], frame);
}

void GroupEngine::tell_failure(const GroupFailure& failure) {
  channels_.table().tell_failure(failure.encode());
  channels_.ring_local_members();
  tell_remote_members({FrameKind::poison, spec_.id, failure.encode()});
}

/// Takes over a failure that a member on this machine has written to shared memory.
void GroupEngine::hear_failure() {
  if (failure_ || !channels_.table().has_failed()) return;
  const std::string text = channels_.table().failure_text();
  if (!text.empty()) return fail(GroupFailure::decode(text), Tell::nobody);
  fail({Error(ErrorCode::kPeerFailed,
              fmt::format("group '{}' has failed, and the rank that said why died over it",
                          spec_.name),
              "", "look at the other ranks' output"),
        -1},
       Tell::nobody);
}

void GroupEngine::send_status(int rank) {
  MemberStatus mine{world_->record().line(),
                    channels_.own_line().called.load(std::memory_order_relaxed)};
  BoardLine& line = mine.line;
  const std::int64_t now = monotonic_ns();
  // Monotonic clocks of two machines are unrelated, so times are sent as ages.
  line.started_ns -= now;
  if (line.ended_ns != 0) line.ended_ns = std::min<std::int64_t>(line.ended_ns - now, -1);
  Frame status{FrameKind::status, spec_.id, ""};
  status.payload.assign(reinterpret_cast<const char*>(&mine), sizeof(mine));
  world_->send(spec_.world_ranks[static_cast<std::size_t>(rank)], status);
}

void GroupEngine::on_announce(int rank, const Fingerprint& theirs) {
  send_status(rank);
  note_called(rank, theirs.sequence);
  if (const auto ours = channels_.own_history().read(theirs.sequence)) {
    compare(rank, theirs, *ours);
  } else {
    announced_[rank] = theirs;
    world_->record().set_awaited(theirs, recorded_group_, global_rank(rank));
    base::log::debug(base::log::Component::kCollectives,
                     "group '{}': rank {} waits in {}, to which rank {} has not come", spec_.name,
                     global_rank(rank), theirs.describe(), global_rank(spec_.rank));
  }
}

void GroupEngine::note_called(int rank, std::uint64_t sequence) {
  std::uint64_t& newest = called_[rank];
  newest = std::max(newest, sequence);
}

void GroupEngine::compare(int rank, const Fingerprint& theirs, const Fingerprint& ours) {
  if (!failure_ && !theirs.agrees_with(ours))
    fail(disagreement({rank, theirs, ours}), Tell::members);
}

std::optional<int> GroupEngine::group_rank(int world_rank) const {
  const auto found = std::find(spec_.world_ranks.begin(), spec_.world_ranks.end(), world_rank);
  if (found == spec_.world_ranks.end()) return std::nullopt;
  return static_cast<int>(found - spec_.world_ranks.begin());
}

void GroupEngine::on_frame(int world_rank, const Frame& frame) {
  const std::optional<int> rank = group_rank(world_rank);
  if (!rank) return;
  const auto read = [&](auto& record) {
    if (frame.payload.size() != sizeof(record)) return false;
    std::memcpy(&record, frame.payload.data(), sizeof(record));
    return true;
  };
  const std::scoped_lock lock(watchers_mutex_);
  switch (frame.kind) {
    case FrameKind::poison:
      fail(GroupFailure::decode(frame.payload), Tell::nobody);
      break;
    case FrameKind::announce:
      if (Fingerprint theirs; read(theirs)) on_announce(*rank, theirs);
      break;
    case FrameKind::status:
      if (MemberStatus theirs; read(theirs)) {
        world_->store_status(world_rank, theirs.line);
        note_called(*rank, theirs.called);
      }
      break;
    case FrameKind::left:
      if (LeftRecord record; read(record)) channels_.set_left(*rank, record);
      break;
    case FrameKind::goodbye:
      break;  // the world's, not a group's
  }
  world_->doorbell().ring();
}

void GroupEngine::on_data_connection(int world_rank, const DataHello& hello, base::UniqueFd fd) {
  const std::optional<int> rank = group_rank(world_rank);
  if (!rank) return;
  const std::scoped_lock lock(watchers_mutex_);
  channels_.attach(*rank, hello, std::move(fd));
  world_->doorbell().ring();
}

void GroupEngine::on_member_lost(int world_rank, const Error& error) {
  if (!group_rank(world_rank)) return;
  const std::scoped_lock lock(watchers_mutex_);
  fail({error, world_->card(world_rank).global_rank}, Tell::members);
}

void GroupEngine::on_trouble(const Error& error) {
  const std::scoped_lock lock(watchers_mutex_);
  fail_alone(error);
}

}  // namespace dtrun::collectives::cpu
