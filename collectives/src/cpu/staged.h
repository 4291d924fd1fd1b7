// Staged: one rank's part in a large collective by stages. A stage is a block of shared memory that
// one rank writes and the others read. In each step every rank writes pieces to its stage and reads
// the pieces of the others. In an all_reduce every rank owns a part of the buffer: a step carries
// the pieces for the owners to combine, and the combined pieces of the step before. Used under the
// engine's lock.
#pragma once

#include <cstddef>
#include <cstdint>

#include "direct_shape.h"
#include "meeting.h"

namespace dtrun::collectives::cpu {

class Staged {
 public:
  explicit Staged(const DirectShape& shape);

  enum class Progress { waiting, moved, done };
  /// At most one step. All members have met in this turn.
  Progress advance(const DirectShape& shape, Meeting& meeting);
  bool waits_for(int peer, const DirectShape& shape, Meeting& meeting) const;

 private:
  /// The piece of rank `part`'s part that `step` carries: a place in the buffer, in elements.
  struct Piece {
    std::int64_t begin;
    std::int64_t count;
  };
  Piece piece(const DirectShape& shape, int part, std::int64_t step) const;
  std::byte* at(const Buffer& buffer, const Piece& piece) const;
  /// Byte offset in a stage of the pieces for `rank`; place(size): of what its owner has combined.
  std::size_t place(int rank) const {
    return static_cast<std::size_t>(rank) * static_cast<std::size_t>(piece_) * item_bytes_;
  }

  void lay(const DirectShape& shape, Meeting& meeting) const;
  std::size_t lay_pieces(const DirectShape& shape, std::byte* stage) const;
  void take(const DirectShape& shape, Meeting& meeting) const;
  void reduce(const DirectShape& shape, Meeting& meeting) const;
  /// Copies a piece from the peer's stage into `output`.
  void copy_from(Meeting& meeting, int peer, int place_of, const Buffer& output,
                 const Piece& piece) const;

  std::size_t item_bytes_;
  std::int64_t piece_ = 0;       ///< elements of each part in a step
  std::int64_t data_steps_ = 0;  ///< that lay pieces
  std::int64_t steps_ = 0;
  std::int64_t step_ = 0;
  bool laid_ = false;
};

}  // namespace dtrun::collectives::cpu
