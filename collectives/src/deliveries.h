// Deliveries: the messages of a collective in which each part goes straight from a buffer of one
// rank to a buffer of another, and nothing is combined. Which parts these are is said here and
// nowhere else. Pure.
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

  /// Whether a collective consists of deliveries.
  static constexpr bool make_up(OpKind kind) {
    switch (kind) {
      case OpKind::broadcast:
      case OpKind::all_gather:
      case OpKind::split:
      case OpKind::gather:
      case OpKind::scatter:
      case OpKind::all_to_all:
        return true;
      default:
        return false;
    }
  }

  /// Whether a part of so many elements is a message. Sender and receiver say the same.
  constexpr bool travels(std::int64_t elements) const {
    return elements != 0 || empty_ == EmptyParts::travel;
  }

  /// Another rank, and the buffer in the list of this rank's inputs or outputs.
  struct Delivery {
    int peer;
    int index;
  };
  constexpr int sends() const {
    if (peers_ != nullptr) return static_cast<int>(peers_->of_inputs.size());
    if (kind_ == OpKind::gather) return is_root() ? 0 : 1;
    return has_source() && !is_root() ? 0 : size_ - 1;
  }
  constexpr Delivery send(int number) const {
    if (peers_ != nullptr) return named(peers_->of_inputs, number);
    if (kind_ == OpKind::gather) return {root_, 0};
    const int to = peer(number);
    return {to, gives_list() ? to : 0};
  }
  constexpr int receives() const {
    if (peers_ != nullptr) return static_cast<int>(peers_->of_outputs.size());
    if (has_source()) return is_root() ? 0 : 1;
    return kind_ == OpKind::gather && !is_root() ? 0 : size_ - 1;
  }
  constexpr Delivery receive(int number) const {
    if (peers_ != nullptr) return named(peers_->of_outputs, number);
    if (has_source()) return {root_, 0};
    return {peer(number), peer(number)};
  }

  /// How many parts a rank gives that gives any.
  constexpr int parts_of_giver() const { return kind_ == OpKind::gather ? 1 : size_ - 1; }
  /// Of these, the one that the peer gives to this rank: the number of the peer's send.
  constexpr int number_at(int giver) const {
    return kind_ == OpKind::gather ? 0 : (rank_ + size_ - giver - 1) % size_;
  }

  /// Whether this rank's own part is copied from an input to an output.
  constexpr bool copies_own() const {
    if (kind_ == OpKind::broadcast || peers_ != nullptr) return false;
    return is_root() || (kind_ != OpKind::gather && kind_ != OpKind::scatter);
  }
  constexpr int own_input() const { return gives_list() ? rank_ : 0; }
  constexpr int own_output() const { return kind_ == OpKind::scatter ? 0 : rank_; }

 private:
  static constexpr Delivery named(std::span<const int> peers, int number) {
    return {peers[static_cast<std::size_t>(number)], number};
  }
  constexpr bool is_root() const { return rank_ == root_; }
  /// All comes from the root.
  constexpr bool has_source() const {
    return kind_ == OpKind::broadcast || kind_ == OpKind::scatter;
  }
  constexpr bool gives_list() const {
    return kind_ == OpKind::scatter || kind_ == OpKind::all_to_all;
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
