// OneShot: one rank's part in a collective's posts: it shows its own, with its bytes where the
// collective is small, and looks at the others'. A value that can be carried on by whoever has
// time. Used under the engine's lock.
#pragma once

#include "direct_shape.h"
#include "meeting.h"

namespace dtrun::collectives::cpu {

class OneShot {
 public:
  /// Shows this rank's bytes. @return false: others are still busy with what this would overwrite
  bool show(const DirectShape& shape, Meeting& meeting);
  bool shown() const { return shown_; }
  /// Takes what the others show. @return false: not all of them have come. @throws Disagreement
  bool take(const DirectShape& shape, Meeting& meeting);
  /// The peer, who does nothing any more, has come to this turn.
  bool has_come(int peer, const Meeting& meeting) const;
  bool waits_for(int peer, const DirectShape& shape, const Meeting& meeting) const;

 private:
  static bool needs(int peer, const DirectShape& shape);
  bool all_came(const DirectShape& shape, Meeting& meeting);

  bool shown_ = false;
  int seen_ = 0;  ///< how many members, in rank order, have come
};

}  // namespace dtrun::collectives::cpu
