// SharedPlan: a collective whose members share memory, as steps. In each step a rank lays pieces of
// its buffers where the others can read them, and takes theirs. What each kind lays and takes is
// said here; of parcels Deliveries says the same to those who send messages. A collective by post
// is one step, whose pieces are whole and lie
// beside the post; of a long broadcast or reduce it is several, so that pieces are taken while the
// next ones are laid. One by stages is as many steps as its pieces need. In place, the others read
// the buffers themselves, and the steps only part the work; where the buffers lie elsewhere, it
// ends once all have met. Pure, and computed from what all
// members know, but for parcels: what this rank gives and expects is one step, and the peers' posts
// may say otherwise. Borrows the call's fingerprint and buffers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>

#include "algorithm.h"
#include "chunk.h"
#include "dtrun/collectives/backend.h"
#include "parcel.h"

namespace dtrun::collectives::cpu {

/// @tparam Kind OpKind, or a std::integral_constant of one: then nothing is asked of it when the
/// program runs, which halves the instructions of a short call.
template <typename Kind>
class SharedPlanOf {
 public:
  /// @param way post, stages or in_place_or_messages
  SharedPlanOf(const CollectiveView& collective, int rank, const Situation& situation, Way way)
      : SharedPlanOf(collective, rank, situation.place.ranks, situation.bytes, situation.item_bytes,
                     way) {
    if (meets_all()) cut_into_steps();
    if (way == Way::post) cut_post();
  }
  /// The same with less known of it.
  template <typename Known>
  explicit SharedPlanOf(const SharedPlanOf<Known>& plan)
      : SharedPlanOf(plan.collective(), plan.rank(), plan.size(), plan.shown_bytes(),
                     plan.item_bytes(), plan.way()) {
    parcel_ = plan.parcel();
    piece_ = plan.piece();
    steps_ = plan.steps();
    steps_of_half_ = plan.steps_of_half();
  }
  /// By posts, in one step. @param shown_bytes the most that one member shows: up to post_bytes
  static SharedPlanOf by_posts(const CollectiveView& collective, int rank, int size,
                               std::size_t shown_bytes, std::size_t item_bytes) {
    static_assert(kDefaultLimits.post_bytes <= kPostPieceBytes, "the whole is one piece");
    return SharedPlanOf(collective, rank, size, shown_bytes, item_bytes, Way::post);
  }

  /// A gather, scatter or all_to_all. This rank's parts lie beside its post; whether the peers' do,
  /// SharedSteps::take_posts() finds. @param parcel that parcel_of() has told: not kInMessages
  static SharedPlanOf by_parcels(const CollectiveView& collective, int rank, int size,
                                 std::uint16_t parcel, std::size_t item_bytes) {
    SharedPlanOf plan(collective, rank, size, 0, item_bytes, Way::parcels);
    plan.parcel_ = parcel;
    return plan;
  }
  /// Whether what this rank gets can be so short that it lies beside posts. @param most bytes there
  static bool may_lie_beside_posts(const CollectiveView& collective, int size,
                                   std::size_t item_bytes, std::size_t most) {
    std::int64_t longest = 0;
    for (const Buffer& output : collective.outputs) longest = std::max(longest, output.count);
    return static_cast<std::size_t>(longest) * item_bytes *
               givers_parts(kind_of(collective), size) <=
           std::min(kMostParcelBytes, most);
  }

  const CollectiveView& collective() const { return collective_; }
  OpKind kind() const { return kind_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  /// The most that one member shows to all; of parcels not known.
  std::size_t shown_bytes() const { return shown_bytes_; }
  /// What that peer, whose bytes this rank takes, has beside its post.
  std::size_t shown_bytes_of(int peer) const {
    return has_parcels() ? parcel_of_peer(peer) * givers_parts(kind(), size_) : shown_bytes_;
  }
  bool has_parcels() const { return way_ == Way::parcels; }
  /// How long each part is that this rank gives.
  std::uint16_t parcel() const { return parcel_; }
  /// How long a part this rank expects of that peer.
  std::size_t parcel_of_peer(int peer) const {
    const Buffer& part = output(kind() == OpKind::scatter ? 0 : peer);
    return static_cast<std::size_t>(part.count) * item_bytes_;
  }
  /// So many steps lie side by side in a half of a stage; by posts all do.
  std::int64_t steps_of_half() const { return steps_of_half_; }
  /// Where this step's area begins in the payload of the post, or in the half.
  std::size_t offset_of_step(std::int64_t step) const {
    if (steps_of_half_ == 1) return 0;
    return static_cast<std::size_t>(step % steps_of_half_ * piece_) * item_bytes_;
  }
  /// The most that a rank lays in one step of the meeting; the same on all.
  std::size_t bytes_of_meeting_step() const {
    const std::int64_t elements = places() * std::min(steps_, steps_of_half_) * piece_;
    return static_cast<std::size_t>(elements) * item_bytes_;
  }
  /// Of what this rank lays beside its post.
  std::size_t laid_bytes() const {
    if (meets_all() || !shows(rank_)) return 0;
    return has_parcels() ? parcel_ * givers_parts(kind(), size_) : shown_bytes_;
  }
  /// Whether this rank takes the post of everybody.
  bool takes_all_posts() const {
    if (meets_all()) return true;
    if (goes_to_root()) return is_root();
    return !comes_from_root() || (size_ == 2 && !is_root());
  }
  Way way() const { return way_; }
  /// Whether everybody meets everybody before any bytes are taken, and all may be read in place.
  bool meets_all() const { return way_ == Way::stages || way_ == Way::in_place_or_messages; }
  std::int64_t steps() const { return steps_; }
  std::size_t item_bytes() const { return item_bytes_; }

  /// Whether this rank needs that peer's bytes, or its arrival.
  bool needs(int peer) const {
    if (peer == rank_) return false;
    if (comes_from_root()) return peer == collective_.root();
    return !goes_to_root() || is_root();
  }
  /// Whether this rank meets that peer by posts.
  bool meets(int peer) const { return meets_all() ? peer != rank_ : needs(peer); }
  /// All whom it meets by posts, and maybe itself: from the first one to before the end.
  int first_met() const { return !meets_all() && comes_from_root() ? collective_.root() : 0; }
  int end_of_met() const {
    if (meets_all()) return size_;
    if (comes_from_root()) return collective_.root() + (is_root() ? 0 : 1);
    return goes_to_root() && !is_root() ? 0 : size_;
  }
  /// Who shows what this rank takes waits for nobody, and may be ahead.
  bool is_one_way() const { return comes_from_root() || goes_to_root(); }
  bool comes_from_root() const { return kind() == OpKind::broadcast || kind() == OpKind::scatter; }
  bool goes_to_root() const { return kind() == OpKind::reduce || kind() == OpKind::gather; }
  bool is_root() const { return rank_ == collective_.root(); }
  /// Whether others read this peer's buffers in place.
  bool shows(int peer) const {
    if (comes_from_root()) return peer == collective_.root();
    return !goes_to_root() || peer != collective_.root();
  }
  /// Whether that peer reads this rank's buffers in place.
  bool is_read_by(int peer) const {
    if (peer == rank_ || !shows(rank_)) return false;
    return !goes_to_root() || peer == collective_.root();
  }
  /// In place, an all_reduce has a second part: all copy what the owners have combined.
  bool has_second_part() const { return kind() == OpKind::all_reduce; }
  /// Steps of a part in place.
  std::int64_t steps_in_place() const { return steps_ - (has_second_part() ? 1 : 0); }
  /// Where the first input lies that has elements; null: none has.
  const std::byte* first_input() const {
    for (const Buffer& buffer : collective_.inputs)
      if (buffer.count > 0) return static_cast<const std::byte*>(buffer.data);
    return nullptr;
  }
  /// The inputs lie one behind the other.
  bool has_one_input_block() const {
    const std::byte* end = first_input();
    for (const Buffer& buffer : collective_.inputs) {
      if (buffer.count == 0) continue;
      if (buffer.data != end) return false;
      end += buffer.bytes();
    }
    return true;
  }
  /// The most elements of a place in a step.
  std::int64_t piece() const { return piece_; }
  /// Elements of a buffer that one step carries.
  struct Piece {
    std::int64_t begin;
    std::int64_t count;
  };

  /// Calls put(buffer, piece, place, readers) for each piece that this rank lays in that step.
  template <typename Put>
  [[gnu::always_inline]] void for_each_laid(std::int64_t step, Put put) const {
    switch (kind()) {
      case OpKind::broadcast:
        if (is_root()) put(input(), whole(input(), step), 0, size_ - 1);
        return;
      case OpKind::reduce:
      case OpKind::gather:
        if (!is_root()) put(input(), whole(input(), step), 0, 1);
        return;
      case OpKind::scatter:
        if (is_root()) for_each_part(put);
        return;
      case OpKind::all_to_all:
        return for_each_part(put);
      case OpKind::all_gather:
      case OpKind::split:
        return put(input(), whole(input(), step), 0, size_ - 1);
      case OpKind::reduce_scatter:
        for (int peer = 0; peer < size_; ++peer)
          if (peer != rank_) put(input(peer), whole(input(peer), step), peer, 1);
        return;
      case OpKind::all_reduce:
        if (way_ == Way::post) return put(input(), whole(input(), step), 0, size_ - 1);
        // Each rank owns a chunk, to which the others' pieces go.
        for (int peer = 0; peer < size_; ++peer)
          if (peer != rank_) put(input(), chunk(peer, step), peer, 1);
        // What this rank has combined in the step before.
        if (step > 0) put(output(), chunk(rank_, step - 1), size_, size_ - 1);
        return;
      default:
        return;
    }
  }

  /// Calls combine(input, piece, place) for the pieces of all that this rank combines in that step,
  /// into the same piece of the output, and copy(peer, place, output, piece) for those that it
  /// copies; the own one, too, where a list has it.
  template <typename Combine, typename Copy>
  [[gnu::always_inline]] void for_each_taken(std::int64_t step, Combine combine, Copy copy) const {
    switch (kind()) {
      case OpKind::broadcast:
        if (!is_root()) copy(collective_.root(), 0, output(), whole(output(), step));
        return;
      case OpKind::reduce:
        if (is_root()) combine(input(), whole(input(), step), 0);
        return;
      case OpKind::gather:
        if (!is_root()) return;
        [[fallthrough]];
      case OpKind::all_gather:
      case OpKind::split:
        for (int peer = 0; peer < size_; ++peer)
          copy(peer, 0, output(peer), whole(output(peer), step));
        return;
      case OpKind::scatter:
        return copy(collective_.root(), place_at(collective_.root()), output(), whole(output(), 0));
      case OpKind::all_to_all:
        for (int peer = 0; peer < size_; ++peer)
          copy(peer, place_at(peer), output(peer), whole(output(peer), 0));
        return;
      case OpKind::reduce_scatter:
        return combine(input(rank_), whole(input(rank_), step), rank_);
      case OpKind::all_reduce:
        if (way_ == Way::post) return combine(input(), whole(input(), step), 0);
        combine(input(), chunk(rank_, step), rank_);
        for (int peer = 0; step > 0 && peer < size_; ++peer)
          if (peer != rank_) copy(peer, size_, output(), chunk(peer, step - 1));
        return;
      default:
        return;
    }
  }

  /// Byte offset of a place among what that rank lays. A place is a rank's or, behind those, the
  /// combined pieces'; of parcels it is the part's number.
  [[gnu::always_inline]] std::size_t offset_of(int place, int layer) const {
    if (has_parcels())
      return static_cast<std::size_t>(place) * (layer == rank_ ? parcel_ : parcel_of_peer(layer));
    if (way_ == Way::stages)
      return static_cast<std::size_t>(place) * static_cast<std::size_t>(piece_) * item_bytes_;
    // Beside a post they lie as the inputs do, one after the other.
    std::size_t offset = 0;
    for (int before = 0; before < place; ++before) offset += input(before).bytes();
    return offset;
  }
  const Buffer& input(int index = 0) const {
    return collective_.inputs[static_cast<std::size_t>(index)];
  }
  const Buffer& output(int index = 0) const {
    return collective_.outputs[static_cast<std::size_t>(index)];
  }
  /// What this rank keeps, where it copies that.
  const Buffer& own_input() const {
    return input(kind() == OpKind::scatter || kind() == OpKind::all_to_all ? rank_ : 0);
  }

 private:
  SharedPlanOf(const CollectiveView& collective, int rank, int size, std::size_t shown_bytes,
               std::size_t item_bytes, Way way)
      : collective_(collective),
        kind_(kind_of(collective)),
        rank_(rank),
        size_(size),
        shown_bytes_(shown_bytes),
        way_(way),
        item_bytes_(item_bytes) {}

  static Kind kind_of(const CollectiveView& collective) {
    if constexpr (std::is_same_v<Kind, OpKind>) return collective.kind();
    return Kind();
  }
  /// As Deliveries::parts_of_giver().
  static std::size_t givers_parts(OpKind kind, int size) {
    return kind == OpKind::gather ? 1 : static_cast<std::size_t>(size - 1);
  }
  /// Of parcels, those of the ranks from the right neighbour on (Deliveries).
  template <typename Put>
  [[gnu::always_inline]] void for_each_part(Put put) const {
    for (int place = 0, peer = rank_; place < size_ - 1; ++place) {
      if (++peer == size_) peer = 0;
      put(input(peer), whole(input(peer), 0), place, 1);
    }
  }
  /// Of the parts that the giver lays, the number of this rank's, as Deliveries::number_at().
  int place_at(int giver) const {
    const int steps = rank_ - giver - 1;
    return steps < 0 ? steps + size_ : steps;
  }

  /// Pieces begin on cache lines.
  static constexpr std::size_t kLine = 64;

  [[gnu::always_inline]] Piece cut(std::int64_t begin, std::int64_t end, std::int64_t step) const {
    begin = std::min(begin + step * piece_, end);
    return {begin, std::min(piece_, end - begin)};
  }
  [[gnu::always_inline]] Piece whole(const Buffer& buffer, std::int64_t step) const {
    return steps_ == 1 ? Piece{0, buffer.count} : cut(0, buffer.count, step);
  }
  [[gnu::always_inline]] Piece chunk(int owner, std::int64_t step) const {
    const Chunk owned = chunk_of(input().count, size_, owner);
    return cut(owned.begin, owned.end, step);
  }

  /// Whose pieces lie side by side on one stage.
  int places() const {
    if (kind() == OpKind::all_reduce) return size_ + 1;
    return kind() == OpKind::reduce_scatter ? size_ : 1;
  }

  /// Of what one place carries in all steps.
  std::int64_t most_elements() const {
    if (kind() == OpKind::all_reduce) return chunk_of(input().count, size_, 0).size();
    std::int64_t most = 0;
    for (const std::span<const Buffer> list : {collective_.inputs, collective_.outputs})
      for (const Buffer& buffer : list) most = std::max(most, buffer.count);
    return most;
  }

  /// Others take the first pieces while the next ones are laid. Where all lay at the same time,
  /// none would begin sooner to take.
  bool flows() const { return kind() == OpKind::broadcast || kind() == OpKind::reduce; }
  void cut_post() {
    if (!flows() || shown_bytes_ <= kPostPieceBytes) return;
    cut_by(kPostPieceBytes);
    steps_of_half_ = steps_;
  }
  void cut_by(std::size_t bytes) {
    const std::int64_t most = most_elements();
    const auto of_line = static_cast<std::int64_t>(kLine / item_bytes_);
    piece_ = static_cast<std::int64_t>(bytes / item_bytes_);
    steps_ = (most + piece_ - 1) / piece_;
    piece_ = std::min(piece_, std::max<std::int64_t>((most + of_line - 1) / of_line, 1) * of_line);
  }

  std::size_t stage_bytes() const { return area_bytes(static_cast<std::size_t>(size_)); }
  void cut_into_steps() {
    if (flows()) {
      cut_by(kStagePieceBytes);
      steps_of_half_ = stage_bytes() / kStagePieceBytes;
      return;
    }
    cut_by(std::max(stage_bytes() / static_cast<std::size_t>(places()) / kLine, 1UL) * kLine);
    // What has been combined in the last step goes to the others in one more.
    if (kind() == OpKind::all_reduce) ++steps_;
  }

  const CollectiveView collective_;
  [[no_unique_address]] const Kind kind_;
  const int rank_;
  const int size_;
  const std::size_t shown_bytes_;
  const Way way_;
  const std::size_t item_bytes_;
  std::uint16_t parcel_ = 0;
  std::int64_t piece_ =
      std::numeric_limits<std::int64_t>::max();  ///< elements of a place in a step
  std::int64_t steps_ = 1;
  std::int64_t steps_of_half_ = 1;
};

using SharedPlan = SharedPlanOf<OpKind>;

}  // namespace dtrun::collectives::cpu
