#include "shared_steps.h"

#include <algorithm>
#include <cstring>

namespace dtrun::collectives::cpu {

namespace {

/// What others will read of this rank's.
void count_shown(const SharedPlan& plan, Meeting& meeting, std::int64_t step) {
  plan.for_each_laid(step, [&](const Buffer&, const SharedPlan::Piece& piece, int, int readers) {
    meeting.counters().shared_memory_bytes_sent +=
        bytes_of(plan, piece) * static_cast<std::size_t>(readers);
  });
}

}  // namespace

void SharedSteps::lay_in_pieces(const SharedPlan& plan, Meeting& meeting) {
  if (!plan.shows(plan.rank())) return post(plan, meeting);
  std::byte* const payload = meeting.payload(plan.shown_bytes());
  for (std::int64_t step = 0; step < plan.steps(); ++step) {
    lay(plan, meeting, step, payload + plan.offset_of_step(step));
    if (step == 0)
      meeting.begin_post(plan.collective().fingerprint);
    else
      meeting.tell_pieces(static_cast<std::uint32_t>(step + 1));
  }
  meeting.end_post(needed_of(plan));
  shown_ = true;
}

bool SharedSteps::take_pieces(const SharedPlan& plan, Meeting& meeting) {
  for (; step_ < plan.steps(); ++step_) {
    for (int peer = 0; peer < plan.size(); ++peer)
      if (!has_laid(peer, plan, meeting)) return false;
    take_all(plan, meeting, step_, [&](int peer) {
      return meeting.payload(peer, plan.shown_bytes()) + plan.offset_of_step(step_);
    });
  }
  return true;
}

bool SharedSteps::has_laid(int peer, const SharedPlan& plan, const Meeting& meeting) const {
  return plan.steps() == 1 || !plan.needs(peer) || meeting.laid_pieces(peer) > step_;
}

bool SharedSteps::show_places(const SharedPlan& plan, Meeting& meeting) {
  if (!meeting.begin_turn(sizeof(Places), Meeting::Room::least)) return false;
  const Places places = places_of(plan, meeting);
  std::memcpy(meeting.payload(sizeof places), &places, sizeof places);
  post(plan, meeting);
  return true;
}

SharedSteps::Places SharedSteps::places_of(const SharedPlan& plan, const Meeting& meeting) {
  if (!plan.shows(plan.rank()) || !plan.has_one_input_block()) return {};
  // Of what has no elements nothing will be read.
  const auto place = [&](const void* data) -> Offset {
    if (data == nullptr) return 1;
    const std::optional<Offset> offset = meeting.shared_offset_of(data);
    return offset ? *offset + 1 : 0;
  };
  return {place(plan.first_input()), plan.has_second_part() ? place(plan.output().data) : 0};
}

SharedSteps::Places SharedSteps::places_of(int peer, Meeting& meeting) const {
  Places places;
  std::memcpy(&places, meeting.payload(peer, sizeof places), sizeof places);
  return places;
}

// Of the posts, which all have seen: so all ranks find the same.
bool SharedSteps::all_lie_in_place(const SharedPlan& plan, Meeting& meeting) const {
  for (int peer = 0; peer < plan.size(); ++peer) {
    if (!plan.shows(peer)) continue;
    const Places places = places_of(peer, meeting);
    if (places.input == 0 || (plan.has_second_part() && places.output == 0)) return false;
  }
  return true;
}

SharedSteps::Progress SharedSteps::advance(const SharedPlan& plan, Meeting& meeting) {
  if (met_) return in_place_ ? advance_in_place(plan, meeting) : advance_on_stages(plan, meeting);
  const bool shows = !shown_;
  if (shows) {
    if (plan.way() == Way::stages) meeting.open_stage();
    const bool has_shown = plan.way() == Way::post
                               ? show_post(plan, meeting, Meeting::Room::least, Rings::now)
                               : show_places(plan, meeting);
    if (!has_shown) return Progress::waiting;
  }
  if (!take_posts(plan, meeting)) return shows ? Progress::moved : Progress::waiting;
  met_ = true;
  if (plan.way() == Way::post) return Progress::done;
  in_place_ = all_lie_in_place(plan, meeting);
  return in_place_ || plan.way() == Way::stages ? Progress::moved : Progress::elsewhere;
}

void SharedSteps::lay_half(const SharedPlan& plan, Meeting& meeting) const {
  const std::int64_t end = std::min(step_ + plan.steps_of_half(), plan.steps());
  for (std::int64_t step = step_; step < end; ++step) {
    lay(plan, meeting, step, meeting.stage() + plan.offset_of_step(step));
    if (step + 1 < end && plan.shows(plan.rank()))
      meeting.tell_pieces_of_step(static_cast<std::uint32_t>(step + 1 - step_));
  }
  meeting.step();
}

SharedSteps::Progress SharedSteps::advance_on_stages(const SharedPlan& plan, Meeting& meeting) {
  bool has_moved = !laid_;
  if (!laid_) {
    if (!meeting.begin_step(plan.bytes_of_meeting_step())) return Progress::waiting;
    lay_half(plan, meeting);
    laid_ = true;
  }
  while (laid_) {
    const auto piece = static_cast<std::uint32_t>(step_ % plan.steps_of_half());
    for (int peer = 0; peer < plan.size(); ++peer)
      if (plan.needs(peer) && !meeting.has_piece_of_step(peer, piece))
        return has_moved ? Progress::moved : Progress::waiting;
    take_all(plan, meeting, step_,
             [&](int peer) { return meeting.stage_of(peer) + plan.offset_of_step(step_); });
    has_moved = true;
    ++step_;
    laid_ = step_ < plan.steps() && step_ % plan.steps_of_half() != 0;
  }
  return step_ == plan.steps() ? Progress::done : Progress::moved;
}

// A part's steps wait for nobody. Behind them this rank waits for those that read its buffers, and
// in an all_reduce so for what they have combined, which the second part copies.
SharedSteps::Progress SharedSteps::advance_in_place(const SharedPlan& plan, Meeting& meeting) {
  if (step_ < plan.steps_in_place()) {
    const std::int64_t end = std::min(step_ + plan.steps_of_half(), plan.steps_in_place());
    for (; step_ < end; ++step_) take_in_place(plan, meeting);
    return Progress::moved;
  }
  const bool tells = !laid_;
  if (tells) {
    if (!meeting.begin_step(0)) return Progress::waiting;
    meeting.step();
    laid_ = true;
  }
  for (int peer = 0; peer < plan.size(); ++peer)
    if (plan.is_read_by(peer) && !meeting.has_come_to_step(peer))
      return tells ? Progress::moved : Progress::waiting;
  if (second_part_ || !plan.has_second_part()) return Progress::done;
  second_part_ = true;
  laid_ = false;
  step_ = 0;
  return Progress::moved;
}

/// One step of a part: of an all_reduce the first combines, and the second copies.
void SharedSteps::take_in_place(const SharedPlan& plan, Meeting& meeting) const {
  const auto bytes_at = [&](int peer, Offset place, std::ptrdiff_t distance) {
    return meeting.tensor_at(peer, place - 1) + distance;
  };
  if (!second_part_) count_shown(plan, meeting, step_);
  if (second_part_ && step_ + 1 == plan.steps_in_place()) count_shown(plan, meeting, step_ + 1);
  plan.for_each_taken(
      second_part_ ? step_ + 1 : step_,
      [&](const Buffer& own, const SharedPlan::Piece& piece, int) {
        if (second_part_) return;
        combine(plan, meeting, own, piece, 0, [&](int peer) {
          return bytes_at(peer, places_of(peer, meeting).input,
                          at(plan, own, piece) - plan.first_input());
        });
      },
      [&](int peer, int, const Buffer& output, const SharedPlan::Piece& piece) {
        if (plan.has_second_part() && !second_part_) return;
        const auto distance =
            static_cast<std::ptrdiff_t>(static_cast<std::size_t>(piece.begin) * plan.item_bytes());
        copy_piece(plan, meeting, peer, output, piece, [&] {
          const Places places = places_of(peer, meeting);
          return bytes_at(peer, second_part_ ? places.output : places.input, distance);
        });
      });
}

bool SharedSteps::waits_for(int peer, const SharedPlan& plan, Meeting& meeting) const {
  if (peer == plan.rank()) return false;
  if (met_) {
    const bool matters = !laid_ || (in_place_ ? plan.is_read_by(peer) : plan.needs(peer));
    return matters && !meeting.has_come_to_step(peer);
  }
  // Before this rank has shown anything, it waits for those that are far behind.
  if (!shown_) return meeting.is_behind(peer);
  if (!plan.meets(peer)) return false;
  const bool has_come = meeting.has_come(peer);
  return !has_come || (plan.way() == Way::post && !has_laid(peer, plan, meeting));
}

}  // namespace dtrun::collectives::cpu
