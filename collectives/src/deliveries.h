// Deliveries: the messages of a collective in which each part goes straight from the rank that
// gives it to the one that gets it, which keeps it or combines it with its own. Which parts these
// are is said here, and for parcels that all lie beside posts in cpu/shared_plan.h, too. Pure.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dtrun/collectives/backend.h"
#include "dtrun/collectives/fingerprint.h"

namespace dtrun::collectives {

/// Whether a part without elements is a message, too, which tells the receiver that it is one.
enum class EmptyParts : std::uint8_t { travel, stay };

/// They stay where all ranks know all counts by something on which they must agree: the plan of an
/// all_to_all_agreed. Who has nothing to receive then waits for nobody.
constexpr EmptyParts empty_parts_of(const Fingerprint& print) {
  const bool are_known = print.kind == OpKind::all_to_all && print.shape != 0;
  return are_known ? EmptyParts::stay : EmptyParts::travel;
}

class Deliveries {
 public:
  constexpr Deliveries(OpKind kind, int rank, int size, int root, EmptyParts empty)
      : kind_(kind), rank_(rank), size_(size), root_(root), empty_(empty) {}
  /// Of an all_to_all whose lists have the parts of those peers only.
  constexpr explicit Deliveries(const PartPeers& peers)
      : kind_(OpKind::all_to_all), empty_(EmptyParts::stay), peers_(&peers) {}

  /// Whether a part is a message. Sender and receiver say the same.
  constexpr bool travels(bool is_empty) const { return !is_empty || empty_ == EmptyParts::travel; }

  /// This rank combines what it receives with its own part, in the order of the ranks.
  constexpr bool combines() const { return reduces() && (kind_ != OpKind::reduce || is_root()); }

  /// As an index: the part is always empty.
  static constexpr int kNoBuffer = -1;
  /// Another rank, and the buffer in the list of this rank's inputs or outputs. Of what is combined
  /// the index is the place among the received ones.
  struct Delivery {
    int peer;
    int index;
  };
  constexpr int sends() const {
    if (peers_ != nullptr) return static_cast<int>(peers_->of_inputs.size());
    if (goes_to_root()) return is_root() ? 0 : 1;
    return has_source() && !is_root() ? 0 : size_ - 1;
  }
  constexpr Delivery send(int number) const {
    if (peers_ != nullptr) return named(peers_->of_inputs, number);
    if (goes_to_root()) return {root_, 0};
    const int to = peer(number);
    if (kind_ == OpKind::barrier) return {to, kNoBuffer};
    return {to, gives_list() ? to : 0};
  }
  constexpr int receives() const {
    if (peers_ != nullptr) return static_cast<int>(peers_->of_outputs.size());
    if (has_source()) return is_root() ? 0 : 1;
    return goes_to_root() && !is_root() ? 0 : size_ - 1;
  }
  constexpr Delivery receive(int number) const {
    if (peers_ != nullptr) return named(peers_->of_outputs, number);
    if (has_source()) return {root_, 0};
    if (combines()) return {number < rank_ ? number : number + 1, number};
    const int from = peer(number);
    return {from, kind_ == OpKind::barrier ? kNoBuffer : from};
  }

  /// What is combined comes into rows of scratch memory, as long as whole cache lines.
  /// @param bytes of a part
  static constexpr std::size_t row_bytes(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

  /// How many parts a rank gives that gives any.
  constexpr int parts_of_giver() const { return kind_ == OpKind::gather ? 1 : size_ - 1; }
  /// Of these, the one that the peer gives to this rank: the number of the peer's send.
  constexpr int number_at(int giver) const {
    return kind_ == OpKind::gather ? 0 : (rank_ + size_ - giver - 1) % size_;
  }

  /// Whether this rank's own part, which it keeps, is copied from an input to an output.
  constexpr bool copies_own() const {
    switch (kind_) {
      case OpKind::gather:
      case OpKind::scatter:
        return is_root();
      case OpKind::all_gather:
      case OpKind::split:
      case OpKind::all_to_all:
        return peers_ == nullptr;
      default:
        return false;
    }
  }
  /// Of what is combined: so many of the received parts come before this rank's own.
  constexpr int own_place() const { return rank_; }
  constexpr int own_input() const { return gives_list() ? rank_ : 0; }
  constexpr int own_output() const { return kind_ == OpKind::scatter || reduces() ? 0 : rank_; }

 private:
  static constexpr Delivery named(std::span<const int> peers, int number) {
    return {peers[static_cast<std::size_t>(number)], number};
  }
  constexpr bool reduces() const {
    return kind_ == OpKind::all_reduce || kind_ == OpKind::reduce ||
           kind_ == OpKind::reduce_scatter;
  }
  constexpr bool is_root() const { return rank_ == root_; }
  /// All comes from the root.
  constexpr bool has_source() const {
    return kind_ == OpKind::broadcast || kind_ == OpKind::scatter;
  }
  /// All goes to the root.
  constexpr bool goes_to_root() const { return kind_ == OpKind::gather || kind_ == OpKind::reduce; }
  constexpr bool gives_list() const {
    return kind_ == OpKind::scatter || kind_ == OpKind::all_to_all ||
           kind_ == OpKind::reduce_scatter;
  }
  /// From the right neighbour on, so that not all ranks write to rank 0 first.
  constexpr int peer(int number) const { return (rank_ + 1 + number) % size_; }

  OpKind kind_;
  int rank_ = 0;
  int size_ = 0;
  int root_ = -1;
  EmptyParts empty_;
  const PartPeers* peers_ = nullptr;  ///< null: each rank is one
};

}  // namespace dtrun::collectives
