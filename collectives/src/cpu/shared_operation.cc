#include "shared_operation.h"

#include <utility>

#include "disagreement.h"
#include "group_channels.h"
#include "group_engine.h"

namespace dtrun::collectives::cpu {

SharedOperation::SharedOperation(const std::shared_ptr<GroupEngine>& engine, Collective collective,
                                 const Situation& situation, Way way, SharedSteps steps)
    : Operation(engine, std::move(collective.call), lane_of(situation)),
      meeting_(engine->meeting(lane())),
      inputs_(std::move(collective.inputs)),
      outputs_(std::move(collective.outputs)),
      plan_({fingerprint(), inputs_, outputs_}, meeting_.rank(), situation, way),
      bytes_(plan_.collective().bytes()),
      steps_(steps) {}

bool SharedOperation::step(GroupChannels& channels) {
  // Who has left will not come any more, even where this rank could go on without it. It may have
  // left because it was sure to be done, after a call that is not this rank's.
  for (int peer = 0; channels.anybody_left() && peer < plan_.size(); ++peer) {
    if (!channels.has_left(peer) || steps_.has_come(peer, meeting_)) continue;
    meeting_.compare_with_those_behind();
    throw LeftError{peer};
  }
  const SharedSteps::Progress progress =
      is_taken_ ? SharedSteps::Progress::done : steps_.advance(plan_, meeting_);
  if (progress == SharedSteps::Progress::waiting) compare_while_waiting();
  if (steps_.is_in_place() && !std::exchange(is_told_, true) && engine().says_ways())
    engine().log_in_place(fingerprint());
  is_taken_ = progress == SharedSteps::Progress::done;
  // Of a call that has failed on a member, what was read there may have been overwritten. The
  // reason is heard by whoever waits.
  void_by_ = is_taken_ && steps_.is_in_place() ? channels.withdrawn_by(*this) : -1;
  if (is_taken_ && void_by_ < 0) complete();
  if (progress != SharedSteps::Progress::waiting && void_by_ < 0) return true;
  // What a member did before it left can be seen by whoever knows that it has left.
  const auto matters = [&](int peer) {
    return void_by_ >= 0 ? peer == void_by_ : steps_.waits_for(peer, plan_, meeting_);
  };
  for (int peer = 0; peer < plan_.size(); ++peer)
    if (channels.has_left(peer) && matters(peer)) throw LeftError{peer};
  return false;
}

/// Who is behind may have made another call, and nothing more to come. As it compares when it waits
/// itself, too, this rank does so at the begin of a wait, and then as often as it watches its
/// peers.
void SharedOperation::compare_while_waiting() {
  const Wait now = steps_.shown() ? Wait::posts : Wait::room;
  if (std::exchange(compared_in_, now) != now || watch_next.expired())
    meeting_.compare_with_those_behind();
}

std::vector<int> SharedOperation::missing() const {
  if (void_by_ >= 0) return {void_by_};
  std::vector<int> peers;
  for (int peer = 0; peer < plan_.size(); ++peer)
    if (steps_.waits_for(peer, plan_, meeting_)) peers.push_back(peer);
  return peers;
}

}  // namespace dtrun::collectives::cpu
