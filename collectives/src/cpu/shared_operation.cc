#include "shared_operation.h"

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
  // Who has left will not come any more, even where this rank could go on without it.
  for (int peer = 0; channels.anybody_left() && peer < plan_.size(); ++peer)
    if (channels.has_left(peer) && !steps_.has_come(peer, meeting_)) throw LeftError{peer};
  const SharedSteps::Progress progress = steps_.advance(plan_, meeting_);
  if (progress == SharedSteps::Progress::done) complete();
  if (progress != SharedSteps::Progress::waiting) return true;
  // What a member did before it left can be seen by whoever knows that it has left.
  for (int peer = 0; peer < plan_.size(); ++peer)
    if (channels.has_left(peer) && steps_.waits_for(peer, plan_, meeting_)) throw LeftError{peer};
  return false;
}

std::vector<int> SharedOperation::missing() const {
  std::vector<int> peers;
  for (int peer = 0; peer < plan_.size(); ++peer)
    if (steps_.waits_for(peer, plan_, meeting_)) peers.push_back(peer);
  return peers;
}

}  // namespace dtrun::collectives::cpu
