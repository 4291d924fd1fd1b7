#include "shared_steps.h"

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

bool SharedSteps::show_places(const SharedPlan& plan, Meeting& meeting) {
  if (!meeting.begin_turn(sizeof(Places), Meeting::Room::least)) return false;
  const Places places = places_of(plan, meeting);
  std::memcpy(meeting.payload(sizeof places), &places, sizeof places);
  post(plan, meeting);
  return true;
}

SharedSteps::Places SharedSteps::places_of(const SharedPlan& plan, const Meeting& meeting) {
  if (!plan.shows(plan.rank()) || !plan.has_one_input_block() || plan.writes_what_others_read())
    return {};
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
    const bool has_shown = plan.way() == Way::post ? show_post(plan, meeting, Meeting::Room::least)
                                                   : show_places(plan, meeting);
    if (!has_shown) return Progress::waiting;
  }
  if (!take_posts(plan, meeting)) return shows ? Progress::moved : Progress::waiting;
  met_ = true;
  in_place_ = plan.way() == Way::stages && all_lie_in_place(plan, meeting);
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

// A part's steps wait for nobody. Behind them this rank waits for those that read its buffers, and
// in an all_reduce so for what they have combined, which the second part copies.
SharedSteps::Progress SharedSteps::advance_in_place(const SharedPlan& plan, Meeting& meeting) {
  if (step_ < plan.steps_in_place()) {
    take_in_place(plan, meeting);
    ++step_;
    return Progress::moved;
  }
  const bool tells = !laid_;
  if (tells) {
    if (!meeting.begin_step()) return Progress::waiting;
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
  return shown_ ? plan.meets(peer) && !meeting.has_come(peer) : meeting.is_behind(peer);
}

}  // namespace dtrun::collectives::cpu
