#include "one_shot.h"

#include <array>
#include <cstring>
#include <vector>

#include "reduction.h"

namespace dtrun::collectives::cpu {

namespace {

void copy(void* target, const void* source, std::size_t bytes) {
  if (bytes != 0) std::memcpy(target, source, bytes);
}

/// The pieces of one buffer in rank order: this rank's own, and the others' at `offset` of their
/// payloads.
void reduce(const DirectShape& shape, Meeting& meeting, const Buffer& own, const Buffer& output,
            std::size_t payload_bytes, std::size_t offset) {
  std::array<const void*, 64> few;
  std::vector<const void*> many;
  const void** pieces = few.data();
  if (static_cast<std::size_t>(shape.size) > few.size()) {
    many.resize(static_cast<std::size_t>(shape.size));
    pieces = many.data();
  }
  for (int rank = 0; rank < shape.size; ++rank)
    pieces[rank] = rank == shape.rank ? own.data : meeting.payload(rank, payload_bytes) + offset;
  if (own.count != 0)
    reduce_pieces(shape.collective.op(), own.dtype, output.data, pieces, shape.size, own.count);
  meeting.counters().shared_memory_bytes_received +=
      own.bytes() * static_cast<std::size_t>(shape.size - 1);
}

void write_payload(const DirectShape& shape, Meeting& meeting) {
  const std::size_t bytes = shape.shown_bytes;
  std::byte* payload = meeting.payload(bytes);
  std::size_t written = 0;
  switch (shape.kind()) {
    case OpKind::broadcast:
      copy(payload, shape.input().data, written = bytes);
      break;
    case OpKind::reduce_scatter:
      for (const Buffer& input : shape.collective.inputs) {
        copy(payload + written, input.data, input.bytes());
        written += input.bytes();
      }
      break;
    default:
      copy(payload, shape.input().data, written = shape.input().bytes());
  }
  meeting.counters().shared_memory_bytes_sent +=
      written * static_cast<std::size_t>(shape.kind() == OpKind::reduce ? 1 : shape.size - 1);
}

void read_payloads(const DirectShape& shape, Meeting& meeting) {
  const std::size_t bytes = shape.shown_bytes;
  switch (shape.kind()) {
    case OpKind::all_reduce:
      return reduce(shape, meeting, shape.input(), shape.output(), bytes, 0);
    case OpKind::reduce:
      if (shape.is_root()) reduce(shape, meeting, shape.input(), shape.output(), bytes, 0);
      return;
    case OpKind::reduce_scatter: {
      std::size_t offset = 0;
      for (int rank = 0; rank < shape.rank; ++rank) offset += shape.input(rank).bytes();
      return reduce(shape, meeting, shape.input(shape.rank), shape.output(), bytes, offset);
    }
    case OpKind::broadcast:
      if (shape.is_root()) return;
      copy(shape.output().data, meeting.payload(shape.collective.root(), bytes), bytes);
      meeting.counters().shared_memory_bytes_received += bytes;
      return;
    case OpKind::all_gather:
    case OpKind::split:
      for (int rank = 0; rank < shape.size; ++rank) {
        const Buffer& output = shape.output(rank);
        const bool own = rank == shape.rank;
        const void* from = own ? shape.input().data : meeting.payload(rank, bytes);
        if (from != output.data) copy(output.data, from, output.bytes());
        if (!own) meeting.counters().shared_memory_bytes_received += output.bytes();
      }
      return;
    default:
      return;
  }
}

}  // namespace

bool OneShot::show(const DirectShape& shape, Meeting& meeting) {
  if (!meeting.begin_turn()) return false;
  if (shape.way == Way::post && shape.shows()) write_payload(shape, meeting);
  // The others of a broadcast wait for the root only.
  const bool alone = shape.kind() == OpKind::broadcast && shape.is_root();
  meeting.post(shape.collective.fingerprint,
               alone ? Meeting::Needed::alone : Meeting::Needed::with_all);
  shown_ = true;
  return true;
}

bool OneShot::needs(int peer, const DirectShape& shape) {
  return shape.way == Way::stages ? peer != shape.rank : shape.needs(peer);
}

bool OneShot::all_came(const DirectShape& shape, Meeting& meeting) {
  for (; seen_ < shape.size; ++seen_) {
    if (!needs(seen_, shape)) continue;
    if (!meeting.look(seen_)) return false;
  }
  return true;
}

bool OneShot::take(const DirectShape& shape, Meeting& meeting) {
  if (!all_came(shape, meeting)) return false;
  const bool from_one = shape.kind() == OpKind::broadcast || shape.kind() == OpKind::reduce;
  if (shape.way == Way::stages || !from_one) meeting.met();
  if (shape.way == Way::post) read_payloads(shape, meeting);
  return true;
}

bool OneShot::has_come(int peer, const Meeting& meeting) const {
  return shown_ ? meeting.has_come(peer) : meeting.is_ahead(peer);
}

bool OneShot::waits_for(int peer, const DirectShape& shape, const Meeting& meeting) const {
  // Before this rank has shown anything, it waits for all that are still in the turn before.
  const bool matters = peer != shape.rank && (!shown_ || needs(peer, shape));
  return matters && !meeting.has_come(peer);
}

}  // namespace dtrun::collectives::cpu
