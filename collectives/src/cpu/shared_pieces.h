// SharedPieces: carries out what a SharedPlan says of one step: lays this rank's pieces, and takes
// the others' out of their areas. Used under the engine's lock.
#pragma once

#include <array>
#include <cstring>
#include <vector>

#include "meeting.h"
#include "reduction.h"
#include "shared_plan.h"

namespace dtrun::collectives::cpu {

template <typename Plan>
std::size_t bytes_of(const Plan& plan, const typename Plan::Piece& piece) {
  return static_cast<std::size_t>(piece.count) * plan.item_bytes();
}

template <typename Plan>
std::byte* at(const Plan& plan, const Buffer& buffer, const typename Plan::Piece& piece) {
  return static_cast<std::byte*>(buffer.data) +
         static_cast<std::size_t>(piece.begin) * plan.item_bytes();
}

/// A call of memcpy takes as long as the rest of a short piece's way.
[[gnu::always_inline]] inline void copy_bytes(std::byte* to, const std::byte* from,
                                              std::size_t bytes) {
  if (bytes == 4) {
    std::memcpy(to, from, 4);
  } else if (bytes == 8) {
    std::memcpy(to, from, 8);
  } else {
    std::memcpy(to, from, bytes);
  }
}

/// @param area this rank's: a post's payload, or a half of a stage
template <typename Plan>
[[gnu::always_inline]] inline void lay(const Plan& plan, Meeting& meeting, std::int64_t step,
                                       std::byte* area) {
  // In line for each kind: the pieces of a short call take fewer instructions than calls do.
  const auto put = [&](const Buffer& from, const typename Plan::Piece& piece, int place,
                       int readers) __attribute__((always_inline)) {
    const std::size_t bytes = bytes_of(plan, piece);
    if (bytes == 0) return;
    std::byte* const to = area + plan.offset_of(place, plan.rank());
    if (SharedCopy::is_for(bytes)) [[unlikely]]
      meeting.copy_long(to, at(plan, from, piece), bytes, readers == 1 ? place : plan.size());
    else
      copy_bytes(to, at(plan, from, piece), bytes);
    meeting.counters().shared_memory_bytes_sent += bytes * static_cast<std::size_t>(readers);
  };
  plan.for_each_laid(step, put);
}

/// The pieces in rank order: this rank's own, and the others' where they lie in their areas.
template <typename Plan, typename AreaOf>
[[gnu::always_inline]] inline void combine(const Plan& plan, Meeting& meeting, const Buffer& own,
                                           const typename Plan::Piece& piece, std::size_t offset,
                                           AreaOf area_of) {
  if (piece.count == 0) return;
  std::array<const void*, 64> few;
  std::vector<const void*> many;
  const void** pieces = few.data();
  if (static_cast<std::size_t>(plan.size()) > few.size()) {
    many.resize(static_cast<std::size_t>(plan.size()));
    pieces = many.data();
  }
  for (int rank = 0; rank < plan.size(); ++rank)
    pieces[rank] = rank == plan.rank() ? at(plan, own, piece) : area_of(rank) + offset;
  reduce_pieces(plan.collective().op(), own.dtype, at(plan, plan.output(), piece), pieces,
                plan.size(), piece.count);
  meeting.counters().shared_memory_bytes_received +=
      bytes_of(plan, piece) * static_cast<std::size_t>(plan.size() - 1);
}

/// @param source where the peer's piece lies; not called for this rank's own
template <typename Plan, typename Source>
[[gnu::always_inline]] inline void copy_piece(const Plan& plan, Meeting& meeting, int peer,
                                              const Buffer& output,
                                              const typename Plan::Piece& piece, Source source) {
  const std::size_t bytes = bytes_of(plan, piece);
  if (bytes == 0) return;
  if (peer != plan.rank()) {
    copy_bytes(at(plan, output, piece), source(), bytes);
    meeting.counters().shared_memory_bytes_received += bytes;
  } else if (const Buffer& own = plan.own_input(); output.data != own.data) {
    copy_bytes(at(plan, output, piece), at(plan, own, piece), bytes);
  }
}

/// @param area_of a peer's, as lay()'s
template <typename Plan, typename AreaOf>
[[gnu::always_inline]] inline void take_all(const Plan& plan, Meeting& meeting, std::int64_t step,
                                            AreaOf area_of) {
  plan.for_each_taken(
      step,
      [&](const Buffer& own, const typename Plan::Piece& piece, int place)
          __attribute__((always_inline)) {
            combine(plan, meeting, own, piece, plan.offset_of(place, plan.rank()), area_of);
          },
      [&](int peer, int place, const Buffer& output, const typename Plan::Piece& piece)
          __attribute__((always_inline)) {
            const auto source = [&]() __attribute__((always_inline)) {
              return area_of(peer) + plan.offset_of(place, peer);
            };
            copy_piece(plan, meeting, peer, output, piece, source);
          });
}

}  // namespace dtrun::collectives::cpu
