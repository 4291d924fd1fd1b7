// SharedSteps: how far one rank has come in a SharedPlan. All members meet by posts; a post is the
// only step of a small collective, the steps of a large one follow on the stages. A post of these
// says where the buffers lie in shared memory: if all that will be read do, they are read there. A
// value that can be carried on by whoever has time. Used under the engine's lock.
#pragma once

#include "meeting.h"
#include "shared_plan.h"

namespace dtrun::collectives::cpu {

class SharedSteps {
 public:
  enum class Progress { waiting, moved, done };
  /// At most one step. Before it shows its post, it waits for the least that it needs: a call that
  /// waits for long waits for one call of the slowest rank. @throws Disagreement
  Progress advance(const SharedPlan& plan, Meeting& meeting);

  // The post's step in two halves.
  /// Shows this rank's post. @return false: others are still busy with what this would overwrite
  /// @throws Disagreement, EarlierDisagreement
  bool show(const SharedPlan& plan, Meeting& meeting, Meeting::Room room);
  bool shown() const { return shown_; }
  /// The members' buffers are read where they lie.
  bool is_in_place() const { return in_place_; }
  /// Takes what the others show. @return false: not all of it is there. @throws Disagreement
  bool take(const SharedPlan& plan, Meeting& meeting);

  bool waits_for(int peer, const SharedPlan& plan, Meeting& meeting) const;

 private:
  static void lay_post(const SharedPlan& plan, Meeting& meeting, Meeting::Needed needed);
  bool all_came(const SharedPlan& plan, Meeting& meeting);
  /// Whether that peer's piece of this step lies beside its post.
  bool has_laid(int peer, const SharedPlan& plan, const Meeting& meeting) const;
  bool take_posts(const SharedPlan& plan, Meeting& meeting);
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
  bool met_ = false;
  bool in_place_ = false;     ///< known once all have met
  bool second_part_ = false;  ///< in place
  bool laid_ = false;         ///< on the stage, in this step and those beside it
  int seen_ = 0;              ///< how many members, in rank order, have come
  std::int64_t step_ = 0;     ///< of the post, or on the stages
};

}  // namespace dtrun::collectives::cpu
