#include "shared_steps.h"

#include <array>
#include <cstring>
#include <vector>

#include "reduction.h"

namespace dtrun::collectives::cpu {

namespace {

using Piece = SharedPlan::Piece;

std::size_t bytes_of(const SharedPlan& plan, const Piece& piece) {
  return static_cast<std::size_t>(piece.count) * plan.item_bytes();
}

std::byte* at(const SharedPlan& plan, const Buffer& buffer, const Piece& piece) {
  return static_cast<std::byte*>(buffer.data) +
         static_cast<std::size_t>(piece.begin) * plan.item_bytes();
}

/// @param area this rank's: a post's payload, or a half of a stage
void lay(const SharedPlan& plan, Meeting& meeting, std::int64_t step, std::byte* area) {
  plan.for_each_laid(step, [&](const Buffer& from, const Piece& piece, int place, int readers) {
    const std::size_t bytes = bytes_of(plan, piece);
    if (bytes == 0) return;
    std::memcpy(area + plan.offset_of(place), at(plan, from, piece), bytes);
    meeting.counters().shared_memory_bytes_sent += bytes * static_cast<std::size_t>(readers);
  });
}

/// The pieces in rank order: this rank's own, and the others' where they lie in their areas.
template <typename AreaOf>
void combine(const SharedPlan& plan, Meeting& meeting, const Buffer& own, const Piece& piece,
             std::size_t offset, AreaOf area_of) {
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

/// @param area_of a peer's, as lay()'s
template <typename AreaOf>
void take_all(const SharedPlan& plan, Meeting& meeting, std::int64_t step, AreaOf area_of) {
  plan.for_each_taken(
      step,
      [&](const Buffer& own, const Piece& piece, int place) {
        combine(plan, meeting, own, piece, plan.offset_of(place), area_of);
      },
      [&](int peer, int place, const Buffer& output, const Piece& piece) {
        const std::size_t bytes = bytes_of(plan, piece);
        if (bytes == 0) return;
        if (peer != plan.rank()) {
          std::memcpy(at(plan, output, piece), area_of(peer) + plan.offset_of(place), bytes);
          meeting.counters().shared_memory_bytes_received += bytes;
        } else if (output.data != plan.input().data) {
          std::memcpy(at(plan, output, piece), at(plan, plan.input(), piece), bytes);
        }
      });
}

/// Whether this rank meets that peer by posts: on the stages everybody meets everybody.
bool meets(int peer, const SharedPlan& plan) {
  return plan.way() == Way::stages ? peer != plan.rank() : plan.needs(peer);
}

}  // namespace

bool SharedSteps::show(const SharedPlan& plan, Meeting& meeting) {
  if (!meeting.begin_turn()) return false;
  if (plan.way() == Way::post) lay(plan, meeting, 0, meeting.payload(plan.shown_bytes()));
  // The others of a broadcast wait for the root only.
  const bool alone = plan.kind() == OpKind::broadcast && plan.is_root();
  meeting.post(plan.collective().fingerprint,
               alone ? Meeting::Needed::alone : Meeting::Needed::with_all);
  shown_ = true;
  return true;
}

bool SharedSteps::all_came(const SharedPlan& plan, Meeting& meeting) {
  for (; seen_ < plan.size(); ++seen_) {
    if (!meets(seen_, plan)) continue;
    if (!meeting.look(seen_)) return false;
  }
  return true;
}

bool SharedSteps::take(const SharedPlan& plan, Meeting& meeting) {
  if (!all_came(plan, meeting)) return false;
  const bool from_one = plan.kind() == OpKind::broadcast || plan.kind() == OpKind::reduce;
  if (plan.way() == Way::stages || !from_one) meeting.met();
  if (plan.way() == Way::post)
    take_all(plan, meeting, 0, [&](int peer) { return meeting.payload(peer, plan.shown_bytes()); });
  return true;
}

SharedSteps::Progress SharedSteps::advance(const SharedPlan& plan, Meeting& meeting) {
  if (met_) return advance_on_stages(plan, meeting);
  const bool shows = !shown_;
  if (shows) {
    if (plan.way() == Way::stages) meeting.open_stage();
    if (!show(plan, meeting)) return Progress::waiting;
  }
  if (!take(plan, meeting)) return shows ? Progress::moved : Progress::waiting;
  met_ = true;
  return plan.way() == Way::post ? Progress::done : Progress::moved;
}

SharedSteps::Progress SharedSteps::advance_on_stages(const SharedPlan& plan, Meeting& meeting) {
  const bool lays = !laid_;
  if (lays) {
    if (!meeting.begin_step()) return Progress::waiting;
    lay(plan, meeting, step_, meeting.stage());
    meeting.step();
    laid_ = true;
  }
  for (int peer = 0; peer < plan.size(); ++peer)
    if (plan.needs(peer) && meeting.look_at_stage(peer) == nullptr)
      return lays ? Progress::moved : Progress::waiting;
  take_all(plan, meeting, step_, [&](int peer) { return meeting.look_at_stage(peer); });
  laid_ = false;
  return ++step_ == plan.steps() ? Progress::done : Progress::moved;
}

bool SharedSteps::has_come(int peer, const Meeting& meeting) const {
  return shown_ ? meeting.has_come(peer) : meeting.is_ahead(peer);
}

bool SharedSteps::waits_for(int peer, const SharedPlan& plan, Meeting& meeting) const {
  if (peer == plan.rank()) return false;
  if (met_) {
    const bool matters = !laid_ || plan.needs(peer);
    return matters && meeting.look_at_stage(peer) == nullptr;
  }
  // Before this rank has shown anything, it waits for all that are still in the turn before.
  const bool matters = !shown_ || meets(peer, plan);
  return matters && !meeting.has_come(peer);
}

}  // namespace dtrun::collectives::cpu
