// LateMembers: what an operation that goes by posts asks of the members that have not come to its
// turn: whether one has left, and whether one has called something else. Used under the engine's
// lock.
#pragma once

#include <utility>
#include <vector>

#include "disagreement.h"
#include "group_channels.h"
#include "meeting.h"
#include "operation.h"

namespace dtrun::collectives::cpu {

class LateMembers {
 public:
  explicit LateMembers(Meeting& meeting) : meeting_(meeting) {}

  /// Who has left will not come any more, even where this rank could go on without it. It may have
  /// left because it was sure to be done, after a call that is not this rank's.
  /// @param is_shown this rank's post @throws LeftError, Disagreement, EarlierDisagreement
  void require_come(const GroupChannels& channels, bool is_shown) const {
    for (int peer = 0; channels.anybody_left() && peer < meeting_.size(); ++peer) {
      // Asked first: what the peer posted before it left is seen below.
      if (!channels.has_left(peer)) continue;
      if (is_shown ? meeting_.has_come(peer) : meeting_.is_ahead(peer)) continue;
      report_left(peer);
    }
  }

  /// Of one that has left and will be missed. It may have made another call before.
  /// @throws LeftError, Disagreement, EarlierDisagreement
  [[noreturn]] void report_left(int peer) const {
    meeting_.compare_with_those_behind();
    throw LeftError{peer};
  }

  /// Who is behind may have made another call, and nothing more to come. As it compares when it
  /// waits itself, too, this rank does so at the begin of a wait, and then as often as it watches
  /// its peers. @throws Disagreement, EarlierDisagreement
  void compare(const Operation& operation, bool is_shown) {
    const Wait now = is_shown ? Wait::posts : Wait::room;
    if (std::exchange(compared_in_, now) != now || operation.watch_next.expired())
      meeting_.compare_with_those_behind();
  }

  /// For whom this rank waits that cannot show its post.
  std::vector<int> behind() const {
    std::vector<int> peers;
    for (int peer = 0; peer < meeting_.size(); ++peer)
      if (peer != meeting_.rank() && meeting_.is_behind(peer)) peers.push_back(peer);
    return peers;
  }

 private:
  Meeting& meeting_;
  /// Waiting for room, or for the others' posts: what it waited for when it compared last.
  enum class Wait { none, room, posts } compared_in_ = Wait::none;
};

}  // namespace dtrun::collectives::cpu
