// Meeting: where the members of a group who share memory meet on one lane of collectives: each
// leaves a post for a collective and looks at the others' posts, and, in long collectives, at their
// stages, step by step. Nobody writes to another's memory. All members count turns and steps alike.
// Owned by the group's channels and used under the engine's lock.
//
// A post is used every other turn, a half of a stage every other step. Who writes there must know
// that all have read what lay there before: a member that has come to turn t - 1 has left turn
// t - 2.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "dtrun/collectives/backend.h"
#include "dtrun/collectives/fingerprint.h"
#include "group_block.h"
#include "world.h"

namespace dtrun::collectives::cpu {

struct GroupSpec;

class Meeting {
 public:
  /// @param table of the members on this machine @param lane of collectives
  Meeting(World& world, const GroupSpec& spec, GroupTable& table, Lane lane);

  /// Every two members share memory. The same answer on all of them.
  bool possible() const { return size_ != 0; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  /// In a larger group not every post wakes the sleepers, each of whom would look at all posts, but
  /// a turn's last one does.
  static constexpr int kMostWoken = 16;

  // Posts: begin_turn(), write to payload(), post(), look for the others'.
  /// false: not everybody has come to the last turn yet. @throws Disagreement about the last turn
  bool begin_turn();
  /// Where this turn's payload goes.
  std::byte* payload(std::size_t bytes) { return payload_of(rank_, bytes); }
  /// Peers that sleep are rung. @param needed: somebody may wait for this post alone
  enum class Needed { with_all, alone };
  void post(const Fingerprint& fingerprint, Needed needed);
  /// Whether the peer's post of this turn is there. @throws Disagreement
  bool look(int peer) const {
    const Post& post = post_of(peer);
    if (post.turn.load(std::memory_order_seq_cst) != turn_) return false;
    if (!(post.head == post_of(rank_).head)) disagree(peer);
    return true;
  }
  bool has_come(int peer) const {
    return post_of(peer).turn.load(std::memory_order_seq_cst) == turn_;
  }
  /// The peer has come to the next turn, which this rank has not begun.
  bool is_ahead(int peer) const {
    const Post& next = line(peer).posts[(turn_ + 1) % 2];
    return next.turn.load(std::memory_order_seq_cst) == static_cast<Turn>(turn_ + 1);
  }
  const std::byte* payload(int peer, std::size_t bytes) { return payload_of(peer, bytes); }
  /// This rank has seen everybody's post of this turn.
  void met() {
    met_ = turn_;
    // All have left the turn before, whose post is the next one's: taking its line back from their
    // caches now, with any store, overlaps with what the caller does until then.
    own_line().posts[(turn_ + 1) % 2].payload[0] = std::byte{0};
  }

  // Stages, after a turn in which all have met: begin_step(), write to stage(), step(), look for
  // the others'.
  /// Before post(): a peer that sees the post can see the stage. @throws Error kSystem when the
  /// machine has no more memory
  void open_stage();
  /// false: not everybody has come to the last step yet.
  bool begin_step();
  std::byte* stage() const { return half_of(members_[static_cast<std::size_t>(rank_)].stage); }
  /// Peers that sleep are rung.
  void step();
  /// The peer has told this step, or is this rank.
  bool has_come_to_step(int peer) const;
  /// The peer's half of its stage of this step; null: not there yet.
  const std::byte* look_at_stage(int peer);
  /// To be given back when the group is left; 0: never opened.
  Offset own_stage() const { return stage_; }

  // Tensors in shared memory: World's, by the group's ranks.
  std::optional<Offset> shared_offset_of(const void* data) const {
    return world_.shared_offset_of(data);
  }
  const std::byte* tensor_at(int rank, Offset offset);

  /// A collective has gone by messages instead.
  void pass(const Fingerprint& fingerprint);

  TransportCounters& counters() { return counters_; }

 private:
  /// Block and stage are made out when first needed.
  struct Member {
    Doorbell* doorbell = nullptr;
    GroupBlock* block = nullptr;
    std::byte* stage = nullptr;
  };
  MemberLine& line(int rank) const { return lines_[static_cast<std::size_t>(rank)]; }
  MemberLine& own_line() const { return line(rank_); }
  Post& post_of(int rank) const { return line(rank).posts[turn_ % 2]; }
  GroupBlock& block_of(int rank);
  [[noreturn]] void disagree(int peer) const;
  std::byte* payload_of(int rank, std::size_t bytes) {
    return bytes <= Post::kInline ? post_of(rank).payload : block_of(rank).payloads[turn_ % 2];
  }
  std::byte* half_of(std::byte* stage) const { return stage + (step_ % 2) * kStageBytes; }
  void ring_sleepers() const;

  World& world_;
  const GroupSpec& spec_;
  const int rank_;
  MemberLine* const lines_;
  std::atomic<std::uint64_t>& posts_;  ///< of all members in all turns
  int size_ = 0;                       ///< 0: not possible
  std::vector<Member> members_;
  Turn turn_ = kFirstTurn - 1;  ///< the last that was begun
  Turn met_ = kFirstTurn - 1;
  Turn step_ = kFirstTurn - 1;  ///< the last that was begun
  Offset stage_ = 0;
  std::uint32_t passing_hash_ = 0;  ///< of all that have passed since this turn
  TransportCounters counters_;
};

}  // namespace dtrun::collectives::cpu
