// Meeting: where the members of a group who share memory meet on one lane of collectives: each
// leaves a post for a collective and looks at the others' posts, and, in long collectives, at their
// stages, step by step. Nobody writes to another's memory. All members count turns and steps alike.
// Owned by the group's channels and used under the engine's lock.
//
// Each rank posts in each turn, and need not wait for those that do not have what it needs: it may
// be kAhead turns ahead of the last member. Who writes a post must know that all have read what lay
// there before, 2 kAhead turns ago. It does: before a member comes to turn t, it has seen everybody
// at turn t - kAhead or later, and compared the posts of such a turn. What it took of a turn's
// posts, it took before it came to the next turn. So a member at t will not look at posts of
// t - kAhead or earlier any more, and all are at t - kAhead or later when somebody comes to t.
// A post's head hashes all calls before it: two heads that are equal say that these were equal.
//
// A half of a stage is used every other step: a member that has come to step s - 1 has left step
// s - 2.
//
// Memory order: a post is written, then its turn stored, and its reader loads the turn before it
// reads the post. A piece of its payload that follows is written before the number of pieces is
// stored, and read after that was loaded; all of them are there before the rank's next turn is. The
// reader's next post is stored after that, and loaded by whoever overwrites the first one. So
// store-release and load-acquire would do; they are seq_cst because sleepers are rung after a look
// at their count (doorbell.h). Of a post that is rung later the store is a release where taking a
// mutex, which lies between, is a full fence: two of them would cost a tenth of a short call.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "dtrun/collectives/backend.h"
#include "dtrun/collectives/fingerprint.h"
#include "group_table.h"
#include "payload_ring.h"
#include "shared_copy.h"
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
  /// What a rank waits for that is too far ahead. `halfway` is for waits of moments: it goes on
  /// only when all are so near that it can make many turns, else the two sides would take turns at
  /// each call, and where they share a core, each time switch to the other. `least` is the first
  /// turn that will do: one call of the slowest rank, however slow that is.
  enum class Room { least, halfway };
  /// @param payload that this rank shows in it
  /// @return false: somebody is too far behind to have read what this would overwrite
  /// @throws Disagreement, EarlierDisagreement about a turn before; Error kSystem when the machine
  /// has no more memory
  bool begin_turn(std::size_t payload, Room room) {
    const Turn next = turn_ + 1;
    if (!fits_in_post(payload) || is_blocked_ || !is_at_or_past(all_came_, next - ahead_))
      return begin_awaited_turn(payload, room);
    turn_ = awaited_ = next;
    payloads_.skip(next);
    return true;
  }
  /// Where this turn's payload goes.
  std::byte* payload(std::size_t bytes) { return payload_of(rank_, bytes); }
  /// What the post says of the parts that this rank gives; before post(). @param bytes as
  /// Post::parcel
  void set_parcel(std::uint16_t bytes) { post_of(rank_).parcel = bytes; }
  /// Peers that sleep are rung. @param needed: somebody may wait for this post alone
  enum class Needed { with_all, alone };
  void post(const Fingerprint& fingerprint, Needed needed) {
    show_post<std::memory_order_seq_cst>(fingerprint);
    end_post(needed);
  }
  // The same in two parts, between which the caller takes a mutex.
  void post_unrung(const Fingerprint& fingerprint) { show_post<kBeforeMutex>(fingerprint); }
  void ring_after_mutex(Needed needed) {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    end_post(needed);
  }
  // The same of a payload in pieces, which others can take one after the other.
  /// The first piece is there. Nobody is rung yet.
  void begin_post(const Fingerprint& fingerprint) {
    tell_pieces(1);
    show_post<std::memory_order_seq_cst>(fingerprint);
  }
  /// So many are.
  void tell_pieces(std::uint32_t laid) {
    post_of(rank_).laid_pieces().store(laid, std::memory_order_seq_cst);
  }
  /// All are.
  void end_post(Needed needed) {
    if (size() <= kMostWoken || counts_.is_last(slot_of(turn_), size()) || needed == Needed::alone)
      ring_sleepers();
  }
  /// Of a peer that has come.
  std::uint32_t laid_pieces(int peer) const {
    return post_of(peer).laid_pieces().load(std::memory_order_seq_cst);
  }
  /// Whether the peer's post of this turn is there, after post(). @throws Disagreement,
  /// EarlierDisagreement
  bool look(int peer) const {
    if (!has_come(peer)) return false;
    if constexpr (kChecksCalls)
      if (!(post_of(peer).head == shown_)) disagree(peer, turn_);
    return true;
  }
  /// Of a peer that may be ahead: its post of a coming turn is on its way while this rank works on
  /// this one. Not for peers that wait for this rank: they could not write what is not read yet.
  void fetch_early(int peer) const { __builtin_prefetch(&post_of(peer, turn_ + kFetchedAhead)); }
  bool has_come(int peer) const { return has_come(peer, turn_); }
  /// The peer has come to the next turn, which this rank has not begun.
  bool is_ahead(int peer) const { return has_come(peer, turn_ + 1); }
  /// The peer is so far behind that this rank cannot begin its next turn.
  bool is_behind(int peer) const { return !has_come(peer, awaited_); }
  /// For a rank that waits: compares its posts with the newest ones of all who are behind. Takes
  /// microseconds, and reads lines that these are about to write: not for each look.
  /// @throws Disagreement, EarlierDisagreement
  void compare_with_those_behind() const;
  const std::byte* payload(int peer, std::size_t bytes) { return payload_of(peer, bytes); }
  std::uint16_t parcel(int peer) const { return post_of(peer).parcel; }
  Fingerprint fingerprint(int peer) const { return post_of(peer).fingerprint(); }
  /// This rank has seen everybody's post of this turn.
  void met() { all_came_ = turn_; }

  // Stages, after a turn in which all have met: begin_step(), write to stage(), step(), look for
  // the others'.
  /// Before post(): a peer that sees the post can see the stage. @throws Error kSystem when the
  /// machine has no more memory
  void open_stage();
  /// @param bytes the most that a rank lays in it, up to area_bytes(); the same on all ranks
  /// @return false: not everybody has come to the last step yet
  bool begin_step(std::size_t bytes);
  /// So many pieces of this step lie in the stage; the last of them is told by step(). Nobody is
  /// rung.
  void tell_pieces_of_step(std::uint32_t laid) {
    own_line().pieces.store(word_of_pieces(laid), std::memory_order_release);
  }
  std::byte* stage() const {
    return place_of_step(members_[static_cast<std::size_t>(rank_)].stage);
  }
  /// Peers that sleep are rung.
  void step();
  /// The peer has told this step, or is this rank.
  bool has_come_to_step(int peer) const;
  /// Whether the peer has told this step, or more pieces of it than `laid`.
  bool has_piece_of_step(int peer, std::uint32_t laid) const {
    if (has_come_to_step(peer)) return true;
    const std::uint64_t told = line(peer).pieces.load(std::memory_order_acquire);
    return told > word_of_pieces(laid) && told < word_of_pieces(0) + kMostPieces;
  }
  /// Where the peer lays this step, of which it has told something.
  const std::byte* stage_of(int peer);
  /// This rank's payloads and stage, to be given back when the group is left; 0: never opened.
  std::array<Offset, 2> own_areas() const { return {payload_area_, stage_}; }

  // Tensors in shared memory: World's, by the group's ranks.
  std::optional<Offset> shared_offset_of(const void* data) const {
    return world_.shared_offset_of(data);
  }
  const std::byte* tensor_at(int rank, Offset offset);

  /// A collective has gone by messages instead.
  void pass(const Fingerprint& fingerprint) {
    if (possible()) hash(fingerprint);
  }

  /// Into payload() or stage(). @param bytes that SharedCopy::is_for() @param place the copies for
  /// which have one reader; size() and more: for several
  void copy_long(std::byte* to, const std::byte* from, std::size_t bytes, int place) {
    copies_[static_cast<std::size_t>(std::min(place, size()))].copy(to, from, bytes);
  }
  TransportCounters& counters() { return counters_; }

 private:
  /// A short call takes half the time that a line needs from core to core, so one turn would not
  /// be early enough.
  static constexpr Turn kClaimedAhead = 4, kFetchedAhead = 2;
  /// Payloads and stage are made out when first needed.
  struct Member {
    Doorbell* doorbell = nullptr;
    Post* posts = nullptr;
    std::byte* payloads = nullptr;
    std::byte* stage = nullptr;
  };
  MemberLine& line(int rank) const { return lines_[static_cast<std::size_t>(rank)]; }
  MemberLine& own_line() const { return line(rank_); }
  /// Which of its posts a rank uses in that turn.
  Turn slot_of(Turn turn) const { return turn & (posts_of(ahead_) - 1); }
  Post& post_of(int rank, Turn turn) const {
    return members_[static_cast<std::size_t>(rank)].posts[slot_of(turn)];
  }
  Post& post_of(int rank) const { return post_of(rank, turn_); }
  /// That turn is at most as far from this rank's as one may be ahead.
  bool has_come(int peer, Turn turn) const {
    return post_of(peer, turn).turn.load(std::memory_order_seq_cst) == turn;
  }
  template <std::memory_order kOrder>
  void show_post(const Fingerprint& fingerprint) {
    Post& post = post_of(rank_);
    if constexpr (kChecksCalls) {
      shown_.tell(static_cast<std::uint32_t>(hash_), fingerprint);
      post.show(shown_, fingerprint);
    }
    post.turn.store(turn_, kOrder);
    claim_coming_post();
    hash(fingerprint);
  }
  /// That turn, or a later one. Numbers go around at 2^32; members are never far apart.
  static bool is_at_or_past(Turn theirs, Turn turn) {
    return static_cast<std::int32_t>(theirs - turn) >= 0;
  }
  static Turn later(Turn one, Turn other) { return is_at_or_past(one, other) ? one : other; }
  /// As begin_turn(), where the payload takes room or others must have come.
  bool begin_awaited_turn(std::size_t payload, Room room);
  bool have_all_come(Turn needed);
  /// Takes the line of a coming post back from the caches of those who have read it, while the
  /// caller does something else.
  void claim_coming_post() const {
#if defined(__x86_64__)
    asm volatile("prefetchw %0" : : "m"(post_of(rank_, turn_ + kClaimedAhead)));
#endif
  }
  void open_payloads();
  std::byte* payloads_of(int rank);
  /// Of a turn to which both have come.
  void compare(int peer, Turn turn) const {
    if constexpr (kChecksCalls)
      if (!(post_of(peer, turn).head == post_of(rank_, turn).head)) disagree(peer, turn);
  }
  static constexpr std::uint64_t kMostPieces = 256;
  static_assert(area_bytes(1) / kStagePieceBytes < kMostPieces);
  std::uint64_t word_of_pieces(std::uint32_t laid) const {
    return step_ * kMostPieces + laid;
  }
  [[noreturn]] void disagree(int peer, Turn turn) const;
  static constexpr bool fits_in_post(std::size_t payload) {
    return payload <= Post::kInline;
  }
  std::byte* payload_of(int rank, std::size_t bytes) {
    Post& post = post_of(rank);
    if (fits_in_post(bytes)) return post.payload;
    return payloads_of(rank) + post.place * PayloadRing::kLine;
  }
  std::byte* place_of_step(std::byte* stage) const {
    return stage + (step_ % 2) * area_bytes_ + place_in_half_;
  }
  void ring_sleepers() const {
    for (int peer = 0; peer < size(); ++peer)
      if (peer != rank_) members_[static_cast<std::size_t>(peer)].doorbell->ring_sleepers();
  }
  void hash(const Fingerprint& fingerprint);

  World& world_;
  const GroupSpec& spec_;
  const int rank_;
  MemberLine* const lines_;
  const Turn ahead_;  ///< how many turns this rank may be ahead of the last one
  GroupTable::PostCounts& counts_;
  const std::size_t area_bytes_;
  int size_ = 0;  ///< 0: not possible
  std::vector<Member> members_;
  Turn turn_ = kFirstTurn - 1;      ///< the last that was begun
  Turn all_came_ = kFirstTurn - 1;  ///< all have come to this one at least, and it was compared
  Turn awaited_ = kFirstTurn - 1;   ///< where all must come; this turn unless is_blocked_
  bool is_blocked_ = false;         ///< the next turn could not be begun
  PayloadRing payloads_;
  Offset payload_area_ = 0;
  Turn step_ = kFirstTurn - 1;  ///< the last that was begun
  Offset stage_ = 0;
  std::size_t place_in_half_ = 0;         ///< of this step
  std::array<std::size_t, 2> ends_ = {};  ///< of each half: where its last step ends
  std::uint64_t hash_ = 0;                ///< of all collectives so far
  /// The head of this rank's newest post. To read it there, while others take that line, would hold
  /// up a short call by a third.
  PostHead shown_;
  std::vector<SharedCopy> copies_;  ///< by place: some readers may use this rank's core
  TransportCounters counters_;
};

/// Its words are mixed side by side: one after the other they would take longer than a post.
inline void Meeting::hash(const Fingerprint& print) {
  if constexpr (!kChecksCalls) return;
  const std::uint64_t kinds = static_cast<std::uint64_t>(print.kind) |
                              static_cast<std::uint64_t>(print.dtype) << 8 |
                              static_cast<std::uint64_t>(print.reduce_op) << 16 |
                              std::uint64_t{static_cast<std::uint32_t>(print.root)} << 32;
  const std::uint64_t mixed = (print.sequence ^ hash_) * 0x9e3779b97f4a7c15U ^
                              std::rotl(kinds * 0xbf58476d1ce4e5b9U, 13) ^
                              std::rotl(print.counts * 0x94d049bb133111ebU, 29) ^
                              std::rotl(print.shape * 0xd6e8feb86659fd93U, 43);
  hash_ = (mixed ^ mixed >> 32) * 0x9e3779b97f4a7c15U;
  hash_ ^= hash_ >> 32;
}

}  // namespace dtrun::collectives::cpu
