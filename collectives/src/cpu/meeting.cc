#include "meeting.h"

#include <cstring>

#include "disagreement.h"
#include "group_channels.h"

namespace dtrun::collectives::cpu {

namespace {

/// Numbers go around at 2^32; members are at most one apart.
bool has_come_to(Turn theirs, Turn turn) {
  return static_cast<std::int32_t>(theirs - turn) >= 0;
}

}  // namespace

Meeting::Meeting(World& world, const GroupSpec& spec, GroupTable& table, Lane lane)
    : world_(world),
      spec_(spec),
      rank_(spec.rank),
      lines_(table.lines(lane)),
      posts_(table.posts[static_cast<std::size_t>(lane)].count) {
  if (spec.world_ranks.size() < 2 || !world.all_linked(spec.world_ranks)) return;
  for (const int world_rank : spec.world_ranks)
    members_.push_back({&world.doorbell(world_rank), nullptr, nullptr});
  size_ = static_cast<int>(members_.size());
}

GroupBlock& Meeting::block_of(int rank) {
  const auto index = static_cast<std::size_t>(rank);
  GroupBlock*& block = members_[index].block;
  if (block == nullptr)
    block = reinterpret_cast<GroupBlock*>(
        world_.at(spec_.world_ranks[index], spec_.memory[index].block));
  return *block;
}

bool Meeting::begin_turn() {
  if (met_ != turn_) {
    for (int peer = 0; peer < size(); ++peer)
      if (peer != rank_ && !look(peer)) return false;
    met_ = turn_;
  }
  ++turn_;
  return true;
}

void Meeting::pass(const Fingerprint& fingerprint) {
  if (!possible()) return;
  std::uint32_t words[7];
  static_assert(sizeof(words) == sizeof(PostHead::fingerprint));
  std::memcpy(words, &fingerprint, sizeof(words));
  for (const std::uint32_t word : words) {
    passing_hash_ = (passing_hash_ ^ word) * 0x9e3779b1U + 1;
    passing_hash_ ^= passing_hash_ >> 15;
  }
}

void Meeting::disagree(int peer) const {
  const Post& theirs = post_of(peer);
  const Post& ours = post_of(rank_);
  if (theirs.head.passed != ours.head.passed) throw EarlierDisagreement{peer};
  throw Disagreement{peer, theirs.fingerprint(), ours.fingerprint()};
}

void Meeting::post(const Fingerprint& fingerprint, Needed needed) {
  Post& post = post_of(rank_);
  post.show(passing_hash_, fingerprint);
  passing_hash_ = 0;
  post.turn.store(turn_, std::memory_order_seq_cst);
  if (size() <= kMostWoken) return ring_sleepers();
  const std::uint64_t posts = posts_.fetch_add(1, std::memory_order_seq_cst) + 1;
  // Nobody posts in a turn before all have posted in the one before.
  const bool last = posts % static_cast<std::uint64_t>(size()) == 0;
  if (last || needed == Needed::alone) ring_sleepers();
}

void Meeting::open_stage() {
  if (stage_ != 0) return;
  stage_ = world_.heap().allocate(2 * kStageBytes);
  members_[static_cast<std::size_t>(rank_)].stage = world_.heap().at(stage_);
  own_line().stage.store(stage_, std::memory_order_release);
}

bool Meeting::begin_step() {
  for (int peer = 0; peer < size(); ++peer)
    if (!has_come_to(line(peer).step.load(std::memory_order_seq_cst), step_)) return false;
  ++step_;
  return true;
}

void Meeting::step() {
  own_line().step.store(step_, std::memory_order_seq_cst);
  ring_sleepers();
}

bool Meeting::has_come_to_step(int peer) const {
  return has_come_to(line(peer).step.load(std::memory_order_seq_cst), step_);
}

const std::byte* Meeting::look_at_stage(int peer) {
  if (!has_come_to_step(peer)) return nullptr;
  const MemberLine& of_peer = line(peer);
  Member& member = members_[static_cast<std::size_t>(peer)];
  if (member.stage == nullptr)
    member.stage = world_.at(spec_.world_ranks[static_cast<std::size_t>(peer)],
                             of_peer.stage.load(std::memory_order_acquire));
  return half_of(member.stage);
}

const std::byte* Meeting::tensor_at(int rank, Offset offset) {
  return world_.tensor_at(spec_.world_ranks[static_cast<std::size_t>(rank)], offset);
}

void Meeting::ring_sleepers() const {
  for (int peer = 0; peer < size(); ++peer)
    if (peer != rank_) members_[static_cast<std::size_t>(peer)].doorbell->ring_sleepers();
}

}  // namespace dtrun::collectives::cpu
