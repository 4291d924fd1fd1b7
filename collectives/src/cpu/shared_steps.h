// SharedSteps: how far one rank has come in a SharedPlan. All members meet by posts; a post is the
// only step of a small collective, the steps of a large one follow on the stages. A post of these
// says where the buffers lie in shared memory: if all that will be read do, they are read there. A
// value that can be carried on by whoever has time. Used under the engine's lock.
#pragma once

#include <algorithm>
#include <utility>

#include "meeting.h"
#include "shared_pieces.h"
#include "shared_plan.h"

namespace dtrun::collectives::cpu {

class SharedSteps {
 public:
  /// elsewhere: of a plan in place, of which the buffers lie elsewhere. All ranks find that.
  enum class Progress { waiting, moved, done, elsewhere };
  /// At most one step. Before it shows its post, it waits for the least that it needs: a call that
  /// waits for long waits for one call of the slowest rank. @throws Disagreement
  Progress advance(const SharedPlan& plan, Meeting& meeting);

  // Of a plan by posts: what this rank does at once, and what it does once the others have come. In
  // line, and what is not gets a copy of the plan: so that of a short call never lies in memory.
  /// later: ring() follows, once a mutex was taken.
  enum class Rings { now, later };
  /// Shows this rank's post. @return false: others are still busy with what this would overwrite
  /// @throws Disagreement, EarlierDisagreement
  template <typename Plan>
  [[gnu::always_inline]] bool show_post(const Plan& plan, Meeting& meeting, Meeting::Room room,
                                        Rings rings) {
    if (!meeting.begin_turn(plan.laid_bytes(), room)) return false;
    if (plan.steps() > 1) [[unlikely]] {
      lay_in_pieces(SharedPlan(plan), meeting);
      return true;
    }
    lay(plan, meeting, 0, meeting.payload(plan.laid_bytes()));
    if (plan.has_parcels()) meeting.set_parcel(plan.parcel());
    if (rings == Rings::now) {
      post(plan, meeting);
    } else {
      meeting.post_unrung(plan.collective().fingerprint);
      shown_ = is_unrung_ = true;
    }
    return true;
  }
  /// Wakes the sleepers, if show_post() has not.
  template <typename Plan>
  [[gnu::always_inline]] void ring(const Plan& plan, Meeting& meeting) {
    if (std::exchange(is_unrung_, false)) meeting.ring_after_mutex(needed_of(plan));
  }
  /// Takes what the others show. @return false: somebody's is not there yet, or a peer's parts are
  /// other than the plan expects: has_other_parcels() @throws Disagreement
  template <typename Plan>
  [[gnu::always_inline]] bool take_posts(const Plan& plan, Meeting& meeting) {
    for (seen_ = std::max(seen_, plan.first_met()); seen_ < plan.end_of_met(); ++seen_) {
      if (seen_ == plan.rank()) continue;
      if (!meeting.look(seen_)) {
        waited_ = true;
        return false;
      }
      // Who waits for nobody may be ahead.
      if (plan.is_one_way() && !waited_) meeting.fetch_early(seen_);
      if (plan.has_parcels() && meeting.parcel(seen_) != plan.parcel_of_peer(seen_)) [[unlikely]] {
        has_other_parcels_ = true;
        return false;
      }
    }
    if (plan.takes_all_posts()) meeting.met();
    if (plan.meets_all()) return true;
    if (plan.steps() > 1) [[unlikely]]
      return take_pieces(SharedPlan(plan), meeting);
    const auto payload_of = [&](int peer) __attribute__((always_inline)) {
      return meeting.payload(peer, plan.shown_bytes_of(peer));
    };
    take_all(plan, meeting, 0, payload_of);
    return true;
  }
  /// For whom take_posts() waits, of a plan of one step.
  int awaited() const { return seen_; }
  bool shown() const { return shown_; }
  /// A peer's post says that messages bring its parts, or that they are not as long as expected.
  bool has_other_parcels() const { return has_other_parcels_; }
  /// The members' buffers are read where they lie.
  bool is_in_place() const { return in_place_; }

  bool waits_for(int peer, const SharedPlan& plan, Meeting& meeting) const;

 private:
  /// The same of a plan in which everybody meets everybody.
  bool show_places(const SharedPlan& plan, Meeting& meeting);
  /// The others of a broadcast or scatter wait for the root only.
  template <typename Plan>
  static Meeting::Needed needed_of(const Plan& plan) {
    const bool alone = plan.comes_from_root() && plan.is_root();
    return alone ? Meeting::Needed::alone : Meeting::Needed::with_all;
  }
  template <typename Plan>
  [[gnu::always_inline]] void post(const Plan& plan, Meeting& meeting) {
    meeting.post(plan.collective().fingerprint, needed_of(plan));
    shown_ = true;
  }
  // Of a plan by posts that is several steps. Not in line: a short call is one.
  void lay_in_pieces(const SharedPlan& plan, Meeting& meeting);
  /// @return false: not all pieces are there
  bool take_pieces(const SharedPlan& plan, Meeting& meeting);
  /// Whether that peer's piece of this step lies beside its post.
  bool has_laid(int peer, const SharedPlan& plan, const Meeting& meeting) const;
  void lay_half(const SharedPlan& plan, Meeting& meeting) const;
  Progress advance_on_stages(const SharedPlan& plan, Meeting& meeting);
  Progress advance_in_place(const SharedPlan& plan, Meeting& meeting);
  void take_in_place(const SharedPlan& plan, Meeting& meeting) const;

  /// Where a rank's buffers lie among its tensors in shared memory, as its post tells.
  struct Places {
    Offset input = 0;   ///< 0: not there, else more by one
    Offset output = 0;  ///< of what others read of the result; likewise
  };
  static Places places_of(const SharedPlan& plan, const Meeting& meeting);
  bool all_lie_in_place(const SharedPlan& plan, Meeting& meeting) const;
  Places places_of(int peer, Meeting& meeting) const;

  bool shown_ = false;
  bool is_unrung_ = false;
  bool waited_ = false;
  bool has_other_parcels_ = false;
  bool met_ = false;
  bool in_place_ = false;     ///< known once all have met
  bool second_part_ = false;  ///< in place
  bool laid_ = false;         ///< on the stage, in this step and those beside it
  int seen_ = 0;              ///< how many members, in rank order, have come
  std::int64_t step_ = 0;     ///< of the post, or on the stages
};

}  // namespace dtrun::collectives::cpu
