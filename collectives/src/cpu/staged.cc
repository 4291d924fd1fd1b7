#include "staged.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "chunk.h"
#include "reduction.h"

namespace dtrun::collectives::cpu {

namespace {

constexpr std::size_t kLine = 64;

/// Whose pieces lie side by side on one stage.
std::size_t places(const DirectShape& shape) {
  const auto size = static_cast<std::size_t>(shape.size);
  if (shape.kind() == OpKind::all_reduce) return size + 1;
  return shape.kind() == OpKind::reduce_scatter ? size : 1;
}

std::int64_t longest_part(const DirectShape& shape) {
  std::int64_t longest = 0;
  switch (shape.kind()) {
    case OpKind::all_reduce:
      return (shape.input().count + shape.size - 1) / shape.size;
    case OpKind::broadcast:
      return shape.shared().count;
    case OpKind::reduce:
      return shape.input().count;
    case OpKind::reduce_scatter:
      for (const Buffer& buffer : shape.collective.inputs)
        longest = std::max(longest, buffer.count);
      return longest;
    default:
      for (const Buffer& buffer : shape.collective.outputs)
        longest = std::max(longest, buffer.count);
      return longest;
  }
}

}  // namespace

Staged::Staged(const DirectShape& shape)
    : item_bytes_(tensors::item_size(shape.collective.fingerprint.dtype)) {
  if (shape.way != Way::stages) return;
  const std::size_t bytes = kStageBytes / places(shape) / kLine * kLine;
  piece_ = static_cast<std::int64_t>(bytes / item_bytes_);
  data_steps_ = (longest_part(shape) + piece_ - 1) / piece_;
  steps_ = shape.kind() == OpKind::all_reduce ? data_steps_ + 1 : data_steps_;
}

Staged::Piece Staged::piece(const DirectShape& shape, int part, std::int64_t step) const {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  switch (shape.kind()) {
    case OpKind::all_reduce:
      begin = chunk_of(shape.input().count, shape.size, part).begin;
      end = chunk_of(shape.input().count, shape.size, part).end;
      break;
    case OpKind::reduce_scatter:
      end = shape.input(part).count;
      break;
    case OpKind::all_gather:
    case OpKind::split:
      end = shape.output(part).count;
      break;
    default:
      end = longest_part(shape);
  }
  begin = std::min(begin + step * piece_, end);
  return {begin, std::min(piece_, end - begin)};
}

std::byte* Staged::at(const Buffer& buffer, const Piece& piece) const {
  return static_cast<std::byte*>(buffer.data) + static_cast<std::size_t>(piece.begin) * item_bytes_;
}

Staged::Progress Staged::advance(const DirectShape& shape, Meeting& meeting) {
  const bool laying = !laid_;
  if (laying) {
    if (!meeting.begin_step()) return Progress::waiting;
    lay(shape, meeting);
    meeting.step();
    laid_ = true;
  }
  for (int peer = 0; peer < shape.size; ++peer)
    if (shape.needs(peer) && meeting.look_at_stage(peer) == nullptr)
      return laying ? Progress::moved : Progress::waiting;
  take(shape, meeting);
  laid_ = false;
  return ++step_ == steps_ ? Progress::done : Progress::moved;
}

bool Staged::waits_for(int peer, const DirectShape& shape, Meeting& meeting) const {
  const bool matters = peer != shape.rank && (!laid_ || shape.needs(peer));
  return matters && meeting.look_at_stage(peer) == nullptr;
}

/// @return how many bytes others will read
std::size_t Staged::lay_pieces(const DirectShape& shape, std::byte* stage) const {
  const auto put = [&](const Buffer& buffer, const Piece& part, int place_of) {
    const std::size_t bytes = static_cast<std::size_t>(part.count) * item_bytes_;
    if (bytes != 0) std::memcpy(stage + place(place_of), at(buffer, part), bytes);
    return bytes;
  };
  const auto readers = static_cast<std::size_t>(shape.size - 1);
  std::size_t bytes = 0;
  switch (shape.kind()) {
    case OpKind::all_reduce:
    case OpKind::reduce_scatter:
      for (int rank = 0; rank < shape.size; ++rank) {
        if (rank == shape.rank) continue;
        const bool whole = shape.kind() == OpKind::all_reduce;
        const Buffer& from = shape.input(whole ? 0 : rank);
        bytes += put(from, piece(shape, rank, step_), rank);
      }
      return bytes;
    case OpKind::reduce:
      return put(shape.input(), piece(shape, shape.rank, step_), 0);
    default:
      return readers * put(shape.input(), piece(shape, shape.rank, step_), 0);
  }
}

void Staged::lay(const DirectShape& shape, Meeting& meeting) const {
  if (!shape.shows()) return;
  std::byte* stage = meeting.stage();
  std::size_t bytes = step_ < data_steps_ ? lay_pieces(shape, stage) : 0;
  if (shape.kind() == OpKind::all_reduce && step_ > 0) {
    const Piece combined = piece(shape, shape.rank, step_ - 1);
    const std::size_t size = static_cast<std::size_t>(combined.count) * item_bytes_;
    if (size != 0) std::memcpy(stage + place(shape.size), at(shape.output(), combined), size);
    bytes += size * static_cast<std::size_t>(shape.size - 1);
  }
  meeting.counters().shared_memory_bytes_sent += bytes;
}

void Staged::reduce(const DirectShape& shape, Meeting& meeting) const {
  const bool scatter = shape.kind() == OpKind::reduce_scatter;
  const bool to_root = shape.kind() == OpKind::reduce;
  const Piece mine = piece(shape, shape.rank, step_);
  if (mine.count == 0) return;
  const Buffer& own = shape.input(scatter ? shape.rank : 0);
  std::array<const void*, kMostOnStage> pieces;
  for (int rank = 0; rank < shape.size; ++rank)
    pieces[static_cast<std::size_t>(rank)] =
        rank == shape.rank ? at(own, mine)
                           : meeting.look_at_stage(rank) + place(to_root ? 0 : shape.rank);
  reduce_pieces(shape.collective.op(), own.dtype, at(shape.output(), mine), pieces.data(),
                shape.size, mine.count);
  meeting.counters().shared_memory_bytes_received +=
      static_cast<std::size_t>(mine.count) * item_bytes_ * static_cast<std::size_t>(shape.size - 1);
}

void Staged::copy_from(Meeting& meeting, int peer, int place_of, const Buffer& output,
                       const Piece& piece) const {
  const std::size_t bytes = static_cast<std::size_t>(piece.count) * item_bytes_;
  if (bytes == 0) return;
  std::memcpy(at(output, piece), meeting.look_at_stage(peer) + place(place_of), bytes);
  meeting.counters().shared_memory_bytes_received += bytes;
}

void Staged::take(const DirectShape& shape, Meeting& meeting) const {
  switch (shape.kind()) {
    case OpKind::all_reduce:
      if (step_ < data_steps_) reduce(shape, meeting);
      for (int peer = 0; step_ > 0 && peer < shape.size; ++peer)
        if (peer != shape.rank)
          copy_from(meeting, peer, shape.size, shape.output(), piece(shape, peer, step_ - 1));
      return;
    case OpKind::reduce_scatter:
      return reduce(shape, meeting);
    case OpKind::reduce:
      if (shape.is_root()) reduce(shape, meeting);
      return;
    case OpKind::broadcast:
      if (!shape.is_root())
        copy_from(meeting, shape.collective.root(), 0, shape.output(),
                  piece(shape, shape.rank, step_));
      return;
    default:
      for (int peer = 0; peer < shape.size; ++peer) {
        const Buffer& output = shape.output(peer);
        const Piece part = piece(shape, peer, step_);
        if (peer != shape.rank) {
          copy_from(meeting, peer, 0, output, part);
        } else if (part.count != 0 && output.data != shape.input().data) {
          std::memcpy(at(output, part), at(shape.input(), part),
                      static_cast<std::size_t>(part.count) * item_bytes_);
        }
      }
  }
}

}  // namespace dtrun::collectives::cpu
