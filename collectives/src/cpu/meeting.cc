#include "meeting.h"

#include "disagreement.h"

namespace dtrun::collectives::cpu {

namespace {

/// Numbers go around at 2^32; members are at most one apart.
bool has_come_to(Turn theirs, Turn turn) {
  return static_cast<std::int32_t>(theirs - turn) >= 0;
}

/// More are not remembered.
constexpr std::size_t kMostPassed = 64;

}  // namespace

Meeting::Meeting(World& world, int rank, const std::vector<int>& world_ranks,
                 const std::vector<Offset>& block_offsets)
    : world_(world), rank_(rank) {
  if (world_ranks.size() < 2 || !world.all_linked(world_ranks)) return;
  for (std::size_t i = 0; i < world_ranks.size(); ++i) {
    Member member;
    const bool own = static_cast<int>(i) == rank;
    member.heap = own ? world.heap().at(0) : world.peer_heap(world_ranks[i]).at(0);
    member.block = reinterpret_cast<GroupBlock*>(member.heap + block_offsets[i]);
    member.doorbell = &reinterpret_cast<HeapHeader*>(member.heap)->doorbell;
    members_.push_back(member);
  }
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
  const auto* bytes = reinterpret_cast<const unsigned char*>(&fingerprint);
  for (std::size_t i = 0; i < sizeof(PostHead::fingerprint); ++i)
    passing_hash_ = (passing_hash_ ^ bytes[i]) * 0x01000193U + 1;
  passing_.push_back(fingerprint);
  if (passing_.size() > kMostPassed) passing_.pop_front();
}

void Meeting::disagree(int peer) const {
  const Post& theirs = post_of(peer);
  const Post& ours = post_of(rank_);
  if (theirs.head.passed != ours.head.passed) throw EarlierDisagreement{peer};
  throw Disagreement{peer, theirs.fingerprint(), ours.fingerprint(), ""};
}

void Meeting::post(const Fingerprint& fingerprint) {
  if (!passed_.empty()) passed_.clear();
  if (!passing_.empty()) passed_.swap(passing_);
  Post& post = post_of(rank_);
  post.show(passing_hash_, fingerprint);
  passing_hash_ = 0;
  post.turn.store(turn_, std::memory_order_seq_cst);
  ring_sleepers();
}

void Meeting::open_stage() {
  if (stage_ != 0) return;
  stage_ = world_.heap().allocate(2 * kStageBytes);
  members_[static_cast<std::size_t>(rank_)].stage = world_.heap().at(stage_);
  own().block->stage.store(stage_, std::memory_order_release);
}

bool Meeting::begin_step() {
  for (const Member& member : members_)
    if (!has_come_to(member.block->step.load(std::memory_order_seq_cst), step_)) return false;
  ++step_;
  return true;
}

void Meeting::step() {
  own().block->step.store(step_, std::memory_order_seq_cst);
  ring_sleepers();
}

const std::byte* Meeting::look_at_stage(int peer) {
  Member& member = members_[static_cast<std::size_t>(peer)];
  if (!has_come_to(member.block->step.load(std::memory_order_seq_cst), step_)) return nullptr;
  if (member.stage == nullptr)
    member.stage = member.heap + member.block->stage.load(std::memory_order_acquire);
  return half_of(member.stage);
}

void Meeting::ring_sleepers() const {
  for (const Member& member : members_)
    if (&member != &own()) member.doorbell->ring_sleepers();
}

}  // namespace dtrun::collectives::cpu
