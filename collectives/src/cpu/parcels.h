// Parcels: the parts of a gather, scatter or all_to_all whose ranks share memory. Only who gives a
// part and who gets it know how long it is, so the giver decides how it goes, and says so in its
// post: beside it, where the rank's parts are equal and few bytes, else in messages. All ranks post
// in such a call. Borrows the call's fingerprint and buffers. Used under the engine's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "algorithm.h"
#include "deliveries.h"
#include "dtrun/collectives/backend.h"
#include "meeting.h"
#include "parcel.h"

namespace dtrun::collectives::cpu {

class Parcels {
 public:
  Parcels(const CollectiveView& collective, const Situation& situation, int rank);

  /// Messages bring what this rank gives.
  bool are_in_messages() const { return part_bytes_ == Post::kInMessages; }
  /// Shows this rank's post. @return false: others are still busy with what it would overwrite
  /// @throws Disagreement, EarlierDisagreement; Error kSystem without memory
  bool show(Meeting& meeting, Meeting::Room room);
  bool is_shown() const { return is_shown_; }
  /// Another object, from which this one takes over, has shown it.
  void set_shown() { is_shown_ = true; }

  enum class Found { nothing, part, word_of_message };
  /// Takes the part that the peer gives to this rank, if its post is there and has it.
  /// @throws Disagreement, EarlierDisagreement; Error kSystem where the peer's memory cannot be
  /// mapped
  Found take(int peer, std::span<std::byte> part, Meeting& meeting) const;
  /// All parts have come: tells the meeting, where this rank has seen all others.
  void end(Meeting& meeting) const {
    if (all_.receives() == size_ - 1) meeting.met();
  }

 private:
  std::size_t laid_bytes() const {
    return are_in_messages() ? 0 : static_cast<std::size_t>(all_.sends()) * part_bytes_;
  }

  const CollectiveView collective_;
  const Deliveries all_;
  const int size_;
  std::uint16_t part_bytes_;  ///< as Post::parcel
  bool is_shown_ = false;
};

}  // namespace dtrun::collectives::cpu
