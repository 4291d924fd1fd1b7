#include "meeting.h"

#include <algorithm>
#include <cstring>

#include "disagreement.h"
#include "group_channels.h"

namespace dtrun::collectives::cpu {

Meeting::Meeting(World& world, const GroupSpec& spec, GroupTable& table, Lane lane)
    : world_(world),
      spec_(spec),
      rank_(spec.rank),
      lines_(table.lines(lane)),
      ahead_(GroupTable::ahead(lane)),
      counts_(table.post_counts[static_cast<std::size_t>(lane)]),
      area_bytes_(area_bytes(spec.world_ranks.size())),
      payloads_(payload_area_bytes(spec.world_ranks.size())) {
  if (spec.world_ranks.size() < 2 || !world.all_linked(spec.world_ranks)) return;
  Post* posts = table.posts(lane);
  for (const int world_rank : spec.world_ranks) {
    members_.push_back({&world.doorbell(world_rank), posts, nullptr, nullptr});
    posts += GroupTable::post_stride(lane);
  }
  size_ = static_cast<int>(members_.size());
  copies_.resize(members_.size() + 1);
}

/// Before the first post with one there: a peer that sees the post can see the area.
void Meeting::open_payloads() {
  if (payload_area_ != 0) return;
  payload_area_ = world_.heap().allocate(payload_area_bytes(spec_.world_ranks.size()));
  members_[static_cast<std::size_t>(rank_)].payloads = world_.heap().at(payload_area_);
  own_line().payloads.store(payload_area_, std::memory_order_release);
}

std::byte* Meeting::payloads_of(int rank) {
  Member& member = members_[static_cast<std::size_t>(rank)];
  if (member.payloads == nullptr)
    member.payloads = world_.at(spec_.world_ranks[static_cast<std::size_t>(rank)],
                                line(rank).payloads.load(std::memory_order_acquire));
  return member.payloads;
}

bool Meeting::begin_awaited_turn(std::size_t payload, Room room) {
  const Turn next = turn_ + 1;
  const bool fits = fits_in_post(payload);
  if (!fits) open_payloads();
  // At each try anew: all may have come on meanwhile.
  Turn needed = next - ahead_;
  if (!fits) needed = payloads_.needed(payload, next, later(needed, all_came_));
  if (is_blocked_ && room == Room::halfway)
    needed = later(needed, next - std::max<Turn>(1, ahead_ / 2));
  awaited_ = needed;
  is_blocked_ = !is_at_or_past(all_came_, needed) && !have_all_come(needed);
  if (is_blocked_) return false;
  turn_ = awaited_ = next;
  if (fits) {
    payloads_.skip(next);
  } else {
    post_of(rank_).place =
        static_cast<std::uint16_t>(payloads_.take(payload, next, all_came_) / PayloadRing::kLine);
  }
  return true;
}

/// Whether all are at that turn or a later one. @throws Disagreement, EarlierDisagreement
bool Meeting::have_all_come(Turn needed) {
  // The newest one saves most looks in the next turns.
  for (const Turn turn : {turn_, turn_ - (turn_ - needed) / 2, needed}) {
    int seen = 0;
    while (seen < size() && (seen == rank_ || has_come(seen, turn))) ++seen;
    if (seen < size()) continue;
    for (int peer = 0; peer < size(); ++peer) compare(peer, turn);
    all_came_ = turn;
    return true;
  }
  return false;
}

void Meeting::compare_with_those_behind() const {
  for (int peer = 0; peer < size(); ++peer) {
    Turn turn = turn_;
    while (turn != all_came_ && !has_come(peer, turn)) --turn;
    if (turn != all_came_) compare(peer, turn);
  }
}

void Meeting::disagree(int peer, Turn turn) const {
  const Post& theirs = post_of(peer, turn);
  const Post& ours = post_of(rank_, turn);
  if (theirs.head.before != ours.head.before) throw EarlierDisagreement{peer};
  throw Disagreement{peer, theirs.fingerprint(), ours.fingerprint()};
}

void Meeting::open_stage() {
  if (stage_ != 0) return;
  stage_ = world_.heap().allocate(2 * area_bytes_);
  members_[static_cast<std::size_t>(rank_)].stage = world_.heap().at(stage_);
  own_line().stage.store(stage_, std::memory_order_release);
}

bool Meeting::begin_step(std::size_t bytes) {
  for (int peer = 0; peer < size(); ++peer)
    if (!is_at_or_past(line(peer).step.load(std::memory_order_seq_cst), step_)) return false;
  ++step_;
  // All of a half is used before the first place is used again: see area_bytes().
  std::size_t& end = ends_[step_ % 2];
  place_in_half_ = end + bytes <= area_bytes_ ? end : 0;
  end = place_in_half_ + bytes;
  return true;
}

void Meeting::step() {
  own_line().step.store(step_, std::memory_order_seq_cst);
  ring_sleepers();
}

bool Meeting::has_come_to_step(int peer) const {
  return is_at_or_past(line(peer).step.load(std::memory_order_seq_cst), step_);
}

const std::byte* Meeting::stage_of(int peer) {
  const MemberLine& of_peer = line(peer);
  Member& member = members_[static_cast<std::size_t>(peer)];
  if (member.stage == nullptr)
    member.stage = world_.at(spec_.world_ranks[static_cast<std::size_t>(peer)],
                             of_peer.stage.load(std::memory_order_acquire));
  return place_of_step(member.stage);
}

const std::byte* Meeting::tensor_at(int rank, Offset offset) {
  return world_.tensor_at(spec_.world_ranks[static_cast<std::size_t>(rank)], offset);
}

}  // namespace dtrun::collectives::cpu
